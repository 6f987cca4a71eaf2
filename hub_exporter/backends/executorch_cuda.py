"""ExecuTorch for CUDA: kernels that AOTInductor compiles for the GPU of the machine that exports.

A language model has its static cache inside. Its weights lie beside the program, in a `.ptd` file, and are bfloat16:
the delegate has kernels for nothing else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hub_exporter.backends import common, executorch
from hub_exporter.errors import HubExporterError

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request
    from hub_exporter.records import Component

FORMAT, DEFAULTS = executorch.FORMAT, {"backend": "cuda"}
accompany, open_runner = common.accompany, executorch.open_runner
patched = functools.partial(executorch.patched, checked=True)
write = functools.partial(executorch.write, delegate="CUDA")


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """As for XNNPACK, but a cache or a state outside is refused: no loader of ours takes it beside a second file."""
    inside = executorch.has_cache_inside(request)
    if request.layout == "decoder" and request.options.generation.cache != "none" and not inside:
        raise HubExporterError(
            "For CUDA, a language model is exported with its static cache inside only",
            hint="Leave `engine.generation.cache` out; recurrent models need another backend",
        )
    return executorch.graphs(request)


def restrictions(request: Request, components: list[Component]) -> list[str]:
    """As for every delegate, the GPU that the kernels were compiled for, and what runs them."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    gpu = f"compiled for compute capability {major}.{minor} ({torch.cuda.get_device_name()})"
    runtime = "needs an ExecuTorch runtime that was built with its CUDA delegate: the wheels for Linux have none"
    return [*executorch.restrictions(request, components), gpu, runtime]


def missing_runtime() -> str | None:
    """The wheels of ExecuTorch 1.4.1 for Linux have no CUDA delegate; one that was built from source may."""
    return executorch.missing_delegate("CudaBackend", "CUDA")
