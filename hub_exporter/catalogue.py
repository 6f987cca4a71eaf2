"""The backends that hub-exporter knows, as rows of data.

What is written here decides what a recipe may ask for and what the plan skips; how a backend exports is in its module
under `backends/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hub_exporter.records import Component, Port

Machine = Literal["linux-cpu", "linux-cuda", "macos-arm64"]
Layout = Literal["encoder", "decoder", "seq2seq", "multimodal"]

RUNNERS: dict[str, str] = {"linux-cpu": "ubuntu-latest", "linux-cuda": "linux-cuda", "macos-arm64": "macos-15"}
"""Kind of machine -> label of the runner that stands for it; the recipe's `runners` replaces labels."""

PYTHON = "3.12"
"""Version that a runner sets up: every backend has wheels for it."""

SET_UP = 15
"""Minutes that a runner gets beside the stages of its job: to install, and to fetch the weights."""

STAGES = 4
"""Of one job on a runner, each with the job's time limit: sample, reference, export, verify."""

VARIANTS = ("fp32", "fp16", "bf16", "int8", "int8-static", "int4")
"""What a recipe may name. Which of them a backend makes today is in its row; the rest is skipped with the reason."""

AXES = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "total_sequence_length",
    "encoder_sequence_length",
    "decoder_sequence_length",
    "text_batch_size",
    "image_batch_size",
    "audio_batch_size",
    "height",
    "width",
    "grid_rows",
    "grid_columns",
)
"""Names of the axes that `engine.dynamic_shapes` may bound and `engine.static_axes` may fix."""

COMMON_OPTIONS = frozenset(
    {
        "dynamic",
        "dynamic_shapes",
        "prefer_deferred_runtime_asserts_over_guards",
        "static_axes",
        "strict",
        "attention",
        "multi_token_decode",
        "separate_encoders",
        "generation",
        "components",
    }
)
"""Fields of `EngineOptions` that every backend takes; `Backend.options` adds the ones of its format."""

_EXECUTORCH_OPTIONS = frozenset({"alloc_graph_input", "alloc_graph_output", "alloc_mutable_buffers"})


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One row: what sets a backend apart before anything is exported."""

    name: str
    """As in a recipe and in a job's name: no dot."""
    format: str
    """The engine's `export_format`."""
    delegate: str | None = None
    """The engine's `backend` within ExecuTorch."""
    folder: str
    """Of its files in the target."""
    runner: Machine = "linux-cpu"
    """Machine that it needs; `linux-cpu` stands for any machine."""
    variants: tuple[str, ...] = ()
    """Those that it makes today; the first of them where none is asked for."""
    layouts: tuple[Layout, ...] = ("encoder", "decoder", "seq2seq", "multimodal")
    """Kinds of model that it takes."""
    options: frozenset[str] = frozenset()
    """Fields of `EngineOptions` beyond the common ones."""

    def takes(self, option: str) -> bool:
        """Whether the field of `EngineOptions` means something to this backend."""
        return option in COMMON_OPTIONS or option in self.options

    def runs_on(self, machine: str) -> bool:
        """Whether this kind of machine can make and check its files."""
        return self.runner in ("linux-cpu", machine)


_ROWS = (
    Backend(
        name="onnx",
        format="onnx",
        folder="onnx",
        variants=("fp32", "fp16", "int8", "int4"),
        options=frozenset({"opset_version", "optimize", "ort_fusions"}),
    ),
    Backend(
        name="openvino",
        format="openvino",
        folder="openvino",
        variants=("fp32",),
        options=frozenset({"stateful", "compress_to_fp16"}),
    ),
    Backend(
        name="executorch-xnnpack",
        format="executorch",
        delegate="xnnpack",
        folder="executorch/xnnpack",
        variants=("fp32",),
        options=_EXECUTORCH_OPTIONS,
    ),
    Backend(name="dynamo", format="dynamo", folder="pt2", variants=("fp32",)),
    Backend(
        name="executorch-mlx",
        format="executorch",
        delegate="mlx",
        folder="executorch/mlx",
        runner="macos-arm64",
        variants=("fp32",),
        options=_EXECUTORCH_OPTIONS,
    ),
    Backend(
        name="executorch-cuda",
        format="executorch",
        delegate="cuda",
        folder="executorch/cuda",
        runner="linux-cuda",
        variants=("bf16",),  # the engine casts every model for CUDA
        options=_EXECUTORCH_OPTIONS,
    ),
)

BACKENDS: dict[str, Backend] = {row.name: row for row in _ROWS}

DEFAULT_BACKENDS = tuple(row.name for row in _ROWS if row.runner == "linux-cpu")
"""Those that any machine can make."""


def any_takes(option: str, backends: Iterable[str]) -> bool:
    """Whether the field of `EngineOptions` means something to at least one of the backends."""
    return any(BACKENDS[name].takes(option) for name in backends)


def takers(option: str) -> tuple[str, ...]:
    """Names of the backends that the field of `EngineOptions` is for."""
    return tuple(name for name, row in BACKENDS.items() if row.takes(option))


def axes_of(name: str, rank: int, beside: Iterable[str] = (), has_cache: bool = False) -> tuple[str, ...]:
    """Names of the axes of a graph's input; none for one that is not known.

    `beside` are the other inputs: texts and pictures that meet in one graph have batches of their own. Beside a cache
    the mask covers past and new tokens.
    """
    covers_the_past = ("attention_mask", "token_type_ids") if "inputs_embeds" in beside else ("attention_mask",)
    if rank == 2 and name in covers_the_past and has_cache:
        return ("batch_size", "total_sequence_length")
    if rank == 2 and name in ("decoder_input_ids", "decoder_attention_mask"):
        return ("batch_size", "decoder_sequence_length")
    if name == "encoder_attention_mask":
        return ("batch_size", "encoder_sequence_length")
    if rank == 2 and name in _TEXT_INPUTS:
        return ("text_batch_size" if "pixel_values" in beside else "batch_size", "sequence_length")
    if name in _SOUND_INPUTS and "input_ids" in beside:
        return _SOUND_INPUTS[name]
    axes = _INPUT_AXES.get((name, rank), ())
    return ("image_batch_size", *axes[1:]) if axes and "input_ids" in beside else axes


_SOUND_INPUTS = {
    "input_features": ("audio_batch_size", "feature_size", "feature_length"),
    "input_features_mask": ("audio_batch_size", "feature_length"),
    "feature_attention_mask": ("audio_batch_size", "feature_length"),
}
"""Spectrograms beside a text that asks about them -> names of their axes."""
_TEXT_INPUTS = ("input_ids", "token_type_ids", "position_ids", "attention_mask")
_INPUT_AXES = {
    ("pixel_values", 4): ("batch_size", "num_channels", "height", "width"),
    ("pixel_values", 3): ("grid_rows", "grid_columns", "patch_size"),
    ("pixel_mask", 3): ("batch_size", "height", "width"),
    ("pixel_attention_mask", 3): ("batch_size", "height", "width"),
    ("input_values", 2): ("batch_size", "sequence_length"),
    ("input_values", 3): ("batch_size", "sequence_length", "feature_size"),
    ("inputs_embeds", 3): ("batch_size", "sequence_length", "hidden_size"),
    ("input_features", 3): ("batch_size", "sequence_length", "feature_size"),
    ("input_features_mask", 2): ("batch_size", "feature_length"),
    ("feature_attention_mask", 2): ("batch_size", "feature_length"),
    ("position_ids", 3): ("rope_axes", "batch_size", "sequence_length"),
    ("past_values", 3): ("batch_size", "sequence_length", "num_channels"),
}
"""(Input, rank) -> names of its axes, other than of text."""


CACHE_AXES = ("batch_size", "num_key_value_heads", "past_sequence_length", "head_dim")
"""Names of the axes of a layer's keys or values."""


def cache_shape(component: Component, port: Port) -> tuple[int | str, ...]:
    """The shape of a cache input with its heads and head size as numbers: where the input leaves them to the client,
    the graph's output of the same layer has them."""
    names = (port.name.replace("past_key_values.", "present."), port.name.replace("input.", "output."))
    given = next((output.shape for output in component.outputs if output.name in names), port.shape)
    if len(given) != len(port.shape):
        return port.shape
    sizes = (CACHE_AXES[1], CACHE_AXES[3])
    return tuple(full if dim in sizes else dim for dim, full in zip(port.shape, given, strict=True))
