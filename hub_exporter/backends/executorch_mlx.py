"""ExecuTorch for MLX: the GPU of a Mac with Apple Silicon. A language model takes and gives its cache.

MLX refuses a static cache, and its lowering (ExecuTorch 1.4.1) fixes every size of a graph that looks up an attention
mask, batch and total length, to the captured one. So the graphs take one row without a mask: nothing in it is padding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import platform
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hub_exporter.backends import common, executorch
from hub_exporter.errors import HubExporterError

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request
    from hub_exporter.records import Component

FORMAT, DEFAULTS = executorch.FORMAT, {"backend": "mlx"}
write = functools.partial(executorch.write, delegate="MLX")
accompany, open_runner = common.accompany, executorch.open_runner


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """One row of bounded length, without a mask and with the cache outside."""
    if request.options.generation.cache == "static":
        raise HubExporterError(
            "MLX takes no static cache", hint="Leave `engine.generation.cache` out, or set it to `dynamic`"
        )
    alone = executorch.row(request, -1)
    unmasked = {name: value for name, value in alone.captured.items() if name != "attention_mask"}
    bare = dataclasses.replace(alone, captured=unmasked)
    if request.layout == "decoder" and request.options.generation.cache != "none":
        return executorch.growing(bare, alone=True)
    return executorch.one_row(alone if request.layout == "multimodal" else bare)


@contextlib.contextmanager
def patched(request: Request) -> Iterator[None]:
    """Without the runner's methods: the runner takes no cache outside of a program."""
    with executorch.lowering(request, methods=None, checked=True):
        yield


def restrictions(request: Request, components: list[Component]) -> list[str]:
    """One row without padding, of the length that the program was planned for."""
    from hub_exporter.graphs import is_recurrent, max_length

    if request.options.dynamic is False or request.free is not None:
        return executorch.restrictions(request, components)
    if is_recurrent(request):
        return ["batch 1", "one token at a time, prompts too"]
    return ["batch 1, no padding", f"at most {max_length(request)} tokens at a time"]


def missing_runtime() -> str | None:
    """Nothing but a Mac has the delegate, and a virtual one has no GPU that MLX can use."""
    missing = executorch.missing_delegate("MLXBackend", "MLX")
    if missing is None and _virtual_mac():
        return "written, but not run: this Mac is a virtual machine, whose GPU MLX cannot use"
    return missing


def _virtual_mac() -> bool:
    if platform.system() != "Darwin":
        return False
    answer = subprocess.run(["sysctl", "-n", "kern.hv_vmm_present"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == "1"
