"""What most backends do alike; a backend's module takes these by name and shows only what it does differently."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hub_exporter.backends import TOKEN_PORTS, Arrays
from hub_exporter.capture import sizes_of
from hub_exporter.catalogue import cache_shape
from hub_exporter.mixed_prompt import FEATURES, MixedPrompt
from hub_exporter.records import Component, ExportOutcome
from hub_exporter.wording import axes

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request
    from hub_exporter.loading import Loaded


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """(layout, graphs to trace), for runtimes that take any batch."""
    from hub_exporter.graphs import standard  # with torch, which a runner of the files does not need

    return standard(request)


@contextlib.contextmanager
def patched(request: Request) -> Iterator[None]:
    """What is changed in the engine while it traces: nothing."""
    yield


def restrictions(request: Request, components: list[Component]) -> list[str]:
    """What the files cannot do, in words for the card."""
    from hub_exporter.graphs import is_recurrent

    if request.options.dynamic is False:
        return [f"every axis is fixed: {axes(sizes_of(request.captured))}"]
    return RECURRENT if is_recurrent(request) else []


def accompany(loaded: Loaded, folder: Path) -> list[str]:
    """Files beside the graphs that this runtime's clients look for: none. What cannot be made is said in words."""
    return []


def flat_metadata(metadata: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The engine's manifest of a graph whose ports are no longer the traced ones: flat names in, a flat dict out."""
    from torch.utils import _pytree as pytree  # with torch, which a runner of the files does not need

    return dataclasses.replace(
        metadata,
        kwargs={name: {"container": "Tensor"} for name in inputs},
        in_spec=pytree.treespec_dumps(pytree.tree_structure(((), dict.fromkeys(inputs, 0)))),
        out_spec=pytree.treespec_dumps(pytree.tree_structure(dict.fromkeys(outputs, 0))),
        in_constants={},
        out_constants=[],
    )


def missing_runtime() -> str | None:
    """Why nothing here can run the files: the runtime came with the packages that made them."""
    return None


RECURRENT = ["one token at a time, prompts too", "no padding: rows of one length in a batch"]


def static_mask(mask: np.ndarray, length: int, slots: int, dtype: str) -> np.ndarray:
    """What new tokens may look at in a cache of `slots`: (batch, 1, length, slots), true or 0 where they may.

    `mask` (batch, past + length) says which tokens are real. A token sees itself in any case: a row that sees nothing
    has no softmax, and what it writes into the cache would spoil those who are not to see it.
    """
    batch, total = mask.shape
    places = np.arange(total - length, total)[:, None]  # of the new tokens
    real = np.zeros((batch, 1, slots), bool)
    real[:, 0, :total] = mask
    seen = (np.arange(slots) <= places) & real | (np.arange(slots) == places)
    return seen[:, None] if dtype == "bool" else np.where(seen, 0, np.finfo(dtype).min).astype(dtype)[:, None]


class NamedPortsRunner:
    """A runtime whose graphs take and give arrays by name: what a decoder's graph gives of its cache is carried into
    its inputs of the same name."""

    max_batch: int | None = None

    def __init__(self, folder: Path, outcome: ExportOutcome):
        self.layout = outcome.layout
        self.multi_token = outcome.layout in ("decoder", "static-cache", "multimodal")
        self._folder = folder
        self.padded, self.one_token = outcome.layout != "recurrent", outcome.layout == "recurrent"
        self._components = {part.name: part for part in outcome.components}
        self._source: Arrays = {}
        self._placeholders = outcome.placeholders
        self._past: Arrays | None = None

    def forward(self, inputs: Arrays) -> Arrays:
        parts = [name for name, part in self._components.items() if part.inputs[0].name in inputs]
        return {key: value for name in parts for key, value in self._run(name, inputs).items()}

    def encode(self, inputs: Arrays) -> None:
        if self.layout == "multimodal":
            config = json.loads((self._folder / "config.json").read_text("utf-8"))
            self._prompt = MixedPrompt(inputs, self._placeholders, config["model_type"])
            for name, given in self._prompt.to_encode(self.max_batch):
                self._prompt.encoded(name, self._run(name, given)[FEATURES[name]])
            return
        self._source = {port_of(name): value for name, value in self._run("encoder", inputs).items()}
        self._source |= {f"encoder_{name}": value for name, value in inputs.items() if name == "attention_mask"}

    def start(self, batch: int) -> None:
        self._past = None
        sets = self.layout in ("encoder-decoder", "multimodal")
        part = self._components.get("decode" if sets else "model")
        if part:
            ports = [port for port in part.inputs if port.name not in TOKEN_PORTS and ".encoder." not in port.name]
            shapes = {port.name: _empty(cache_shape(part, port), batch, sets) for port in ports}
            self._past = {port.name: np.zeros(shapes[port.name], port.dtype) for port in ports}

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        name = "model" if "model" in self._components else "prefill" if self._past is None else "decode"
        tokens = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        if self.layout == "multimodal":
            past, length = attention_mask.shape[1] - input_ids.shape[1], input_ids.shape[1]
            embedded = self._run("embed_tokens", {"input_ids": self._prompt.text(input_ids, past)})["inputs_embeds"]
            tokens |= {"inputs_embeds": self._prompt.merge(embedded, past)}
            tokens |= self._prompt.beside(attention_mask, length)
        answer = self._run(name, {**tokens, **self._source, **(self._past or {})})
        into = self._components["decode" if name == "prefill" else name]
        cache = [port.name for port in into.inputs if port.name not in (*TOKEN_PORTS, *self._source)]
        self._past = {port: answer[_output_of(port, answer)] for port in cache}
        return answer["logits"]

    def _run(self, name: str, inputs: Arrays) -> Arrays:
        """Run the component `name` on those of `inputs` that it takes."""
        raise NotImplementedError


def _empty(shape: tuple[int | str, ...], batch: int, grows: bool) -> tuple[int, ...]:
    """The shape of an empty cache: batch rows, free axes of size 0. One that `grows` has no tokens, whatever bound is
    known of them."""
    fixed = tuple(dim if isinstance(dim, int) else 0 for dim in shape[1:])
    return (batch, fixed[0], 0, fixed[2]) if grows else (batch, *fixed)


def port_of(output: str) -> str:
    """The cache input that takes what an output gives: `present.0.key` -> `past_key_values.0.key`."""
    return output.replace("present.", "past_key_values.", 1)


def _output_of(name: str, answer: Arrays) -> str:
    """Which output holds the new value of the cache input `name`."""
    candidates = (name.replace("past_key_values.", "present."), name.replace("input.", "output."), name)
    return next(candidate for candidate in candidates if candidate in answer)
