"""A loaded model and its capture inputs -> the graphs to trace: modules, forward inputs, free axes.

Only axes that vary are marked: the trace is spared the resolution of the others, and constants stay numbers in the
file. Axis names are shared between inputs, so that a reader of the graph sees one `batch_size`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree
from transformers.exporters.exporter_dynamo import get_auto_dynamic_shapes, register_cache_pytrees_for_model
from transformers.exporters.utils import decompose_for_generation

from hub_exporter import encoder_decoder, multimodal, two_encoders
from hub_exporter.catalogue import axes_of
from hub_exporter.errors import HubExporterError
from hub_exporter.loading import Loaded, generation_config
from hub_exporter.mixed_prompt import MixedPrompt
from hub_exporter.records import AxisBounds, EngineOptions
from hub_exporter.reference import decoder_ids, forward_inputs
from hub_exporter.voices import least_tokens

DEFAULT_MAX_LENGTH = 2048
"""Tokens that a bounded graph or a static cache takes, where the model's context is not smaller."""

DEFAULT_MAX_BATCH = 4
"""Rows that a bounded graph with its cache outside takes."""

BESIDE_THE_SOURCE = ("decoder_sequence_length", "image_batch_size", "audio_batch_size")
"""Axes that vary whatever the processor fixes: the text of the answer, and pictures or sounds, as many as there are
texts."""

ENGINE_FLAGS = ("use_cache", "return_dict", "output_attentions", "output_hidden_states", "return_loss")
"""Captured kwargs that the engine takes out of the inputs before it traces: they have no shape."""


@dataclass(frozen=True)
class Graph:
    """One graph to trace."""

    module: torch.nn.Module
    inputs: dict[str, Any]
    """Forward kwargs: tensors, and caches."""
    shapes: dict[str, Any] | None
    """`dynamic_shapes` of torch.export; `None` freezes every axis."""
    strict: bool = False


@dataclass(frozen=True)
class Request:
    """What decides the graphs of a job."""

    loaded: Loaded
    layout: str
    captured: dict[str, np.ndarray]
    """The padded batch of two."""
    options: EngineOptions
    context_length: int | None
    free: frozenset[str] | None = None
    """Names of the axes that the processor leaves free; `None` where all are."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Largest size of an axis that is of use, where it is not the model's context."""


def standard(request: Request) -> tuple[str, dict[str, Graph]]:
    """(layout, graphs) for runtimes that take any batch: ONNX Runtime, OpenVINO, torch."""
    if request.layout == "encoder":
        return encoders(request)
    if request.options.generation.cache == "none":
        return "uncached", {"model": without_cache(request, request.captured)}
    if request.layout == "seq2seq":
        return "encoder-decoder", encoder_and_decoder(request, request.captured)
    if request.layout == "multimodal":
        return "multimodal", mixed(request, request.captured)
    return _recurrent(request) if is_recurrent(request) else _decoder(request)


def encoders(request: Request, capped: bool = False) -> tuple[str, dict[str, Graph]]:
    """The whole forward, or what embeds texts and what embeds pictures, where the recipe wants these apart."""
    captured = request.captured
    if not (request.options.separate_encoders and two_encoders.reads_both(captured)):
        return "encoder", {"model": without_cache(request, captured, capped)}
    graphs = {}
    for name, side in two_encoders.GRAPHS.items():
        inputs = tensors(two_encoders.part_of(captured, side))
        shapes = shapes_for(request, inputs, capped, beside=captured)
        graphs[name] = Graph(two_encoders.Encoder(request.loaded.model, side), inputs, shapes)
    return "two-encoders", graphs


def without_cache(request: Request, captured: dict[str, np.ndarray], capped: bool = False) -> Graph:
    """The whole forward as one graph that neither takes nor gives a cache."""
    if is_recurrent(request):
        name = type(request.loaded.model).__name__
        raise HubExporterError(
            f"{name} keeps a state: a graph of a whole text would be fixed to the captured length",
            hint="Leave `generation: {cache: none}` out: a graph of one token at a time reads texts of any length",
        )
    inputs = tensors(forward_inputs(request.loaded.model, request.layout, captured))
    if request.layout == "multimodal":
        return _graph(request, multimodal.Whole(request.loaded.model), inputs, capped)
    flags = {"use_cache": False} if "input_ids" in inputs else {}
    return Graph(request.loaded.model, {**inputs, **flags}, shapes_for(request, inputs, capped))


def encoder_and_decoder(request: Request, captured: dict[str, np.ndarray], capped: bool = False) -> dict[str, Graph]:
    """The closed set of an encoder-decoder. The decoder is captured with three tokens behind it and four before it:
    sizes that neither the batch nor the source has, whose longest row is of an odd length."""
    model, start = request.loaded.model, generation_config(request.loaded.model).decoder_start_token_id
    source = tensors(captured)
    text = torch.from_numpy(np.resize(decoder_ids(model, captured)[:, :3], (len(next(iter(captured.values()))), 7)))
    with torch.no_grad():
        cache = model(**source, decoder_input_ids=text[:, :3], use_cache=True).past_key_values
    past = {
        **encoder_decoder.flat(cache.self_attention_cache, "decoder"),
        **encoder_decoder.flat(cache.cross_attention_cache, "encoder"),
    }
    behind: dict[str, Any] = {"input_ids": text[:, 3:].contiguous(), "past_key_values": past}
    if "attention_mask" in source:
        behind["encoder_attention_mask"] = source["attention_mask"]
    free = {"batch_size", "sequence_length", "past_sequence_length"}  # whatever the processor fixes of the source
    if is_free(request, "sequence_length"):
        free.add("encoder_sequence_length")
    text_varies = dataclasses.replace(request, free=frozenset(free), limits={})
    return {
        "encoder": _graph(request, encoder_decoder.Encoder(model, start), source, capped),
        "decode": _graph(text_varies, encoder_decoder.Decoder(model), behind, capped),
    }


def mixed(request: Request, captured: dict[str, np.ndarray], capped: bool = False) -> dict[str, Graph]:
    """The closed set of a model that reads pictures or sounds in its text. The decoder is captured with all but the
    last four tokens of the text behind it."""
    model, inputs = request.loaded.model, tensors(captured)
    prompt = MixedPrompt(captured, multimodal.placeholders(model.config), model.config.model_type)
    ids, mask = torch.from_numpy(prompt.text(captured["input_ids"], 0)), inputs["attention_mask"]
    beside = tensors(prompt.beside(captured["attention_mask"], ids.shape[1]))
    with torch.no_grad():
        embedded = model.get_input_embeddings()(ids)
        places = beside.pop("position_ids")
        before = {"inputs_embeds": embedded[:, :-4], "attention_mask": mask[:, :-4], "position_ids": places[..., :-4]}
        cache = model(**before, use_cache=True).past_key_values
    behind = {
        "inputs_embeds": embedded[:, -4:].contiguous(),
        "attention_mask": mask,
        "position_ids": places[..., -4:].contiguous(),
        **beside,
        "past_key_values": multimodal.flat(cache),
    }
    text, items = (dataclasses.replace(request, free=free) for free in (TEXT_AXES, ITEM_AXES))
    encoders = dict(reversed([*prompt.to_encode(1 if capped else None)]))  # the first, where it is called for each
    parts = {}
    for name, given in encoders.items():
        module = multimodal.encoder(model, name, tensors(given))
        parts[name] = _graph(items, module, tensors(given), capped)
    parts["embed_tokens"] = _graph(text, multimodal.TokenEmbedding(model), {"input_ids": ids}, capped)
    return parts | {"decode": _graph(text, multimodal.Decoder(model), behind, capped)}


TEXT_AXES = frozenset(
    {"batch_size", "text_batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"}
)
"""That vary in the text of a model which reads pictures or sounds in it."""

ITEM_AXES = frozenset({"batch_size", "grid_rows", "grid_columns"})
"""That vary in what its encoders read: all else is fixed by the processor."""


def _graph(request: Request, module: torch.nn.Module, inputs: dict[str, Any], capped: bool) -> Graph:
    return Graph(module, inputs, shapes_for(request, inputs, capped))


def _decoder(request: Request) -> tuple[str, dict[str, Graph]]:
    multi_token = request.options.multi_token_decode is not False
    parts = decompose_for_generation(
        request.loaded.model,
        tensors(request.captured),
        generation_config=_generation_config(request),
        multi_token_decode=multi_token,
    )
    register_cache_pytrees_for_model(request.loaded.model)
    wanted = {"model": parts["decode"]} if multi_token else parts
    graphs = {name: Graph(module, inputs, shapes_for(request, inputs)) for name, (module, inputs) in wanted.items()}
    if not multi_token:
        return "prefill-decode", graphs
    return ("static-cache" if request.options.generation.cache == "static" else "decoder"), graphs


def is_recurrent(request: Request) -> bool:
    """Whether the model keeps a state that every token changes (Mamba and its hybrids), rather than only keys and
    values that a mask can hide."""
    return request.layout == "decoder" and bool(getattr(request.loaded.model, "_is_stateful", False))


def _recurrent(request: Request) -> tuple[str, dict[str, Graph]]:
    """The single-token decode graph alone: from a state of zeros it reads a prompt token by token. The graph of a
    longer text would be fixed to the captured length."""
    parts = decompose_for_generation(
        request.loaded.model, tensors(request.captured), generation_config=generation_config(request.loaded.model)
    )
    register_cache_pytrees_for_model(request.loaded.model)
    module, inputs = parts["decode"]
    return "recurrent", {"model": Graph(module, inputs, shapes_for(request, inputs))}


def _generation_config(request: Request) -> Any:
    options, changes = request.options.generation, {}
    if options.cache == "static":
        changes = {"cache_implementation": "static", "max_cache_len": max_length(request)}
    return generation_config(request.loaded.model, **changes)


def max_length(request: Request) -> int:
    """Tokens that bounded graphs and static caches are made for."""
    asked = request.options.generation.max_cache_len or _bounds(request, "sequence_length").max
    limit = request.context_length or DEFAULT_MAX_LENGTH
    return min(asked, limit) if asked else min(limit, DEFAULT_MAX_LENGTH)


def tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Arrays as tensors that share their memory."""
    return {name: torch.from_numpy(value) for name, value in inputs.items()}


def shapes_for(
    request: Request, inputs: Mapping[str, Any], capped: bool = False, beside: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """`dynamic_shapes` for `inputs`: the varying axes of text and caches, with the recipe's bounds.

    `capped` gives every axis an upper bound, for a runtime that plans its memory from them. `beside` are the inputs by
    which the axes are named, where they are more than those of the graph.
    """
    if request.options.dynamic is False:
        return None
    has_cache = any(_is_cache(value) or isinstance(value, dict) for value in inputs.values())
    return {
        name: _shape_of(request, name, value, beside or inputs, has_cache, capped)
        for name, value in inputs.items()
        if name not in ENGINE_FLAGS
    }


def _shape_of(request: Request, name: str, value: Any, beside: Mapping[str, Any], has_cache: bool, capped: bool) -> Any:
    def dims(roles: Mapping[int, str]) -> dict[int, Any]:
        return {axis: _dim(request, role, capped) for axis, role in roles.items() if is_free(request, role)}

    if isinstance(value, torch.Tensor) and (axes := axes_of(name, value.dim(), beside, has_cache)):
        return dims(dict(enumerate(axes)))
    past, source = (dims({0: "batch_size", 2: f"{side}_sequence_length"}) for side in ("past", "encoder"))
    if isinstance(value, dict):  # a cache of named tensors
        return {key: source if ".encoder." in key else past for key in value}
    if _is_cache(value):
        children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        state = dims({0: "batch_size"})  # of a convolution or a recurrence: everything else is fixed by the model
        growing = {id(tensor) for layer in _layers(value) for tensor in (layer.keys, layer.values)}
        return pytree.tree_map_only(
            torch.Tensor, lambda leaf: past if id(leaf) in growing else state if leaf.dim() > 1 else {}, list(children)
        )
    return get_auto_dynamic_shapes(value)


def _layers(cache: Any) -> list[Any]:
    """The layers of a cache that hold keys and values; a state may have four axes too."""
    halves = (getattr(cache, half, None) for half in ("self_attention_cache", "cross_attention_cache"))
    caches = [half for half in halves if half is not None] or [cache]
    return [layer for part in caches for layer in part.layers if getattr(layer, "keys", None) is not None]


def is_free(request: Request, axis: str) -> bool:
    """Whether an axis is to have other sizes than the captured one."""
    left_free = request.free is None or axis in request.free or axis in BESIDE_THE_SOURCE
    return axis not in request.options.static_axes and left_free


def _dim(request: Request, axis: str, capped: bool) -> Any:
    bounds = _bounds(request, axis)
    upper = bounds.max
    if upper is None and capped:
        upper = request.limits.get(axis) or (DEFAULT_MAX_BATCH if axis == "batch_size" else max_length(request))
    lower = bounds.min or (least_tokens(request.loaded.model.config) if axis == "sequence_length" else None)
    if lower is None and upper is None:
        return Dim.AUTO
    return Dim.AUTO(min=lower, max=upper)


def _bounds(request: Request, axis: str) -> AxisBounds:
    return request.options.dynamic_shapes.get(axis, AxisBounds())


def _is_cache(value: Any) -> bool:
    return type(value) in pytree.SUPPORTED_NODES and type(value).__name__.endswith("Cache")
