"""`torch.export`: a `model.pt2` that torch runs without the model's code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hub_exporter.backends import Arrays, common
from hub_exporter.records import Component, ExportOutcome, Port

FORMAT = "dynamo"
DEFAULTS: dict[str, Any] = {}
graphs, patched, restrictions = common.graphs, common.patched, common.restrictions


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """The engine's own files and manifest."""
    exported.save_pretrained(folder)
    return [
        Component(name=name, file=f"{name}.pt2", inputs=_inputs(part.program), outputs=_outputs(part.program))
        for name, part in exported.components.items()
    ]


def _inputs(program: Any) -> tuple[Port, ...]:
    wanted = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes}
    return tuple(_port(name, nodes[name].meta["val"]) for name in wanted if hasattr(nodes.get(name), "meta"))


def _outputs(program: Any) -> tuple[Port, ...]:
    nodes = {node.name: node for node in program.graph.nodes}
    names = [name for name in program.graph_signature.user_outputs if isinstance(name, str)]
    return tuple(_port(name, nodes[name].meta["val"]) for name in names if hasattr(nodes[name].meta["val"], "shape"))


def _port(name: str, value: Any) -> Port:
    shape = tuple(int(dim) if isinstance(dim, int) else str(dim) for dim in getattr(value, "shape", ()))
    return Port(name=name, dtype=str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch."), shape=shape)


def open_runner(folder: Path, outcome: ExportOutcome) -> EngineRunner:
    """Torch over the files in `folder`."""
    return EngineRunner(folder, outcome, f"torch {outcome.versions['torch']}")


class EngineRunner:
    """The engine's own loader over a folder, with the caches of transformers around its graphs."""

    padded = True

    def __init__(self, folder: Path, outcome: ExportOutcome, runtime: str, max_batch: int | None = None):
        from transformers.exporters.base import ExportedModel

        self.runtime, self.max_batch = runtime, max_batch
        self.multi_token = outcome.layout == "decoder"
        exported = ExportedModel.from_pretrained(folder, trust_remote_code=True)
        self._runners = exported.runners
        self._folder, self._cache = folder, None

    def forward(self, inputs: Arrays) -> Arrays:
        answer = self._call("model", inputs)
        return {name: value.numpy() for name, value in answer.items() if hasattr(value, "numpy")}

    def start(self, batch: int) -> None:
        self._cache = empty_cache(self._folder, batch) if "model" in self._runners else None

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        name = "model" if "model" in self._runners else "prefill" if self._cache is None else "decode"
        tokens = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        answer = self._call(name, tokens, **({"cache": self._cache} if self._cache is not None else {}))
        self._cache = answer.get("cache", answer.get("past_key_values"))
        return np.asarray(answer["logits"])

    def _call(self, name: str, inputs: Arrays, **caches: Any) -> Any:
        import torch

        runner = self._runners[name]
        kwargs = {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in inputs.items()} | caches
        return runner(**{key: value for key, value in kwargs.items() if key in runner.metadata.kwargs})


def empty_cache(folder: Path, batch: int) -> Any:
    """A key/value cache of no tokens, as `generate` would make it for the model of this folder's `config.json`."""
    import torch
    from transformers import AutoConfig, DynamicCache
    from transformers.configuration_utils import get_head_shapes

    config = AutoConfig.from_pretrained(folder)
    cache = DynamicCache(config=config)
    heads, sizes = get_head_shapes(config.get_text_config(decoder=True))
    for number, layer in enumerate(cache.layers):
        head = heads[number] if isinstance(heads, (list, tuple)) else heads
        size = sizes[number] if isinstance(sizes, (list, tuple)) else sizes
        nothing = torch.zeros(batch, head, 0, size)
        layer.lazy_initialization(nothing, nothing)
        layer.keys, layer.values = nothing, nothing.clone()
    return cache
