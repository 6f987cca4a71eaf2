"""ExecuTorch for XNNPACK: any CPU. A language model has its static cache inside."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hub_exporter.backends import common, executorch

if TYPE_CHECKING:
    from hub_exporter.graphs import Request

FORMAT, DEFAULTS = executorch.FORMAT, {"backend": "xnnpack"}
graphs, restrictions = executorch.graphs, executorch.restrictions
write = functools.partial(executorch.write, delegate="XNNPACK")
accompany, missing_runtime, open_runner = common.accompany, common.missing_runtime, executorch.open_runner


@contextlib.contextmanager
def patched(request: Request) -> Iterator[None]:
    """As for every delegate, and without the approximate GELU."""
    from executorch.backends.xnnpack.partition.config.generic_node_configs import GeluConfig
    from transformers.exporters.utils import patch_attribute

    with patch_attribute(GeluConfig, "check_constraints", _exact_gelu_only), executorch.patched(request):
        yield


def _exact_gelu_only(original: Any) -> Any:
    """XNNPACK's delegate computes every GELU exactly, the tanh approximation too (3e-4 off in Gemma): leave that one to
    the portable kernel, which computes what is written."""

    def check_constraints(self: Any, node: Any, program: Any) -> bool:
        exact = node.kwargs.get("approximate", "none") == "none"
        return exact and bool(original(self, node, program))

    return check_constraints
