"""What most backends do alike; a backend's module takes these by name and shows only what it does differently."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """(layout, graphs to trace), for runtimes that take any batch."""
    from hub_exporter.graphs import standard  # with torch, which a runner of the files does not need

    return standard(request)


@contextlib.contextmanager
def patched(request: Request) -> Iterator[None]:
    """What is changed in the engine while it traces: nothing."""
    yield


def restrictions(request: Request) -> list[str]:
    """What the files cannot do, in words for the card."""
    from hub_exporter.graphs import is_recurrent

    if request.options.dynamic is False:
        batch, length = request.captured["input_ids"].shape
        return [f"every axis is fixed: batch {batch}, length {length}"]
    return RECURRENT if is_recurrent(request) else []


RECURRENT = ["one token at a time, prompts too", "no padding: rows of one length in a batch"]
