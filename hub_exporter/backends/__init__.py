"""One module per backend, each holding only what differs between them.

Writing half (needs torch and the engine):
    FORMAT                           the engine's name of the format
    DEFAULTS                         what the engine is told besides shapes, where the recipe says nothing
    graphs(request)                  which graphs to trace
    patched(request)                 context in which the engine traces
    restrictions(request, written)   what the files cannot do
    write(exported, folder, layout)  files in the layout that clients load; returns their components
    convert(components, folder, variant)  the written float32 files in another variant, where the row names any
    accompany(loaded, folder)        files beside them that clients need; returns what could not be made, in words

Running half (needs only the backend's own runtime where it can):
    missing_runtime()                why nothing here can run the files; `None` where something can
    open_runner(folder, outcome)     a `Runner` over the written files

`common.py` has what most do alike, `executorch.py` what all delegates of ExecuTorch do. To add a backend: a module
here, named like its row in `catalogue.py` with `_` for `-`, and its tests.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Protocol

import numpy as np

Arrays = dict[str, np.ndarray]

TOKEN_PORTS = (
    "input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids", "beam_idx",
    "encoder_attention_mask",
)  # fmt: skip
"""Inputs of a decoder that are given at every step; all others carry its cache."""


class Runner(Protocol):
    """Written files in their own runtime. Arrays in and out are numpy; token arrays are int64 (batch, length)."""

    runtime: str
    """Name and version: `onnxruntime 1.32.0`."""
    layout: str
    """How the graphs are driven, as in `ExportOutcome`."""
    max_batch: int | None
    """Rows that the graph takes at once; `None` for any number."""
    padded: bool
    """Whether the graph takes a mask; without one, rows are run without their padding."""
    multi_token: bool
    """Whether a step may feed several tokens behind a filled cache."""
    one_token: bool
    """Whether a step takes one token only, even at the beginning."""

    def forward(self, inputs: Arrays) -> Arrays:
        """Run the one graph of an encoder, or one that reads the whole text at every step, on named inputs; of two
        encoders those whose inputs are given."""

    def encode(self, inputs: Arrays) -> None:
        """Read the source of an encoder-decoder, or the pictures of a text, for the steps that follow."""

    def start(self, batch: int) -> None:
        """Empty the cache of a decoder."""

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        """Feed tokens behind the cache; `attention_mask` covers past and new ones.

        Gives logits (batch, length, vocabulary).
        """


def get(backend: str) -> ModuleType:
    """The module of a backend, imported on first use."""
    return importlib.import_module(f"hub_exporter.backends.{backend.replace('-', '_')}")
