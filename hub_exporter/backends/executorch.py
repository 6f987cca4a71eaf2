"""ExecuTorch for XNNPACK: bounded graphs, a language model with its static cache inside, run by the Python runtime.

ExecuTorch plans its memory from the upper bounds of the axes, so that no axis may be left without one: unbounded, the
engine guesses (64 tokens for a language model, 12.9 GB for MiniLM).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hub_exporter.backends import Arrays, common
from hub_exporter.errors import HubExporterError
from hub_exporter.records import AxisBounds, Component, ExportOutcome, Port
from hub_exporter.wording import axis

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request

FORMAT = "executorch"
DEFAULTS: dict[str, Any] = {"backend": "xnnpack"}

TEXT_PORTS = ("input_ids", "decoder_input_ids")
"""(batch, length) of tokens."""
accompany = common.accompany


# ── Writing ──


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """Batch 1 and bounded lengths. A decoder wraps the model with a static cache, as ExecuTorch's LLM runner drives
    it: `forward(input_ids[1, n], cache_position[n]) -> logits`; `generation: {cache: dynamic}` keeps it outside."""
    from hub_exporter import graphs as make

    if has_static_cache(request):
        return "static-decoder", {"model": _static_decoder(request)}
    cached = request.options.generation.cache != "none"
    if request.layout == "decoder" and cached:
        return _cache_outside(request)
    rows = {name: value[:1] for name, value in request.captured.items()}  # the padded row, so that the mask is kept
    if request.layout == "multimodal":
        layout, parts = "multimodal", make.pictures_and_decoder(request, rows, capped=True)
    elif request.layout == "seq2seq" and cached:
        layout, parts = "encoder-decoder", make.encoder_and_decoder(request, rows, capped=True)
    else:
        layout = "encoder" if request.layout == "encoder" else "uncached"
        parts = {"model": make.without_cache(request, rows, capped=True)}
    return layout, {name: dataclasses.replace(graph, shapes=_one_row(graph.shapes)) for name, graph in parts.items()}


def _one_row(shapes: Any) -> Any:
    """The shapes with the batch axis left fixed."""
    if isinstance(shapes, list):
        return [_one_row(item) for item in shapes]
    if isinstance(shapes, dict):
        return {key: _one_row(value) for key, value in shapes.items() if key != 0}
    return shapes


def has_static_cache(request: Request) -> bool:
    """Whether the program holds the cache: of a language model, unless it is recurrent or the recipe says otherwise."""
    from hub_exporter.graphs import is_recurrent

    asked = request.options.generation.cache
    return request.layout == "decoder" and asked in (None, "static") and not is_recurrent(request)


def _static_decoder(request: Request) -> Graph:
    import torch
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    from hub_exporter.graphs import Graph, max_length

    model, tokens = request.loaded.model, max_length(request)
    if model._can_set_experts_implementation():  # the engine does so itself, but not through the wrapper
        model.set_experts_implementation("batched_mm")
    model.generation_config.cache_implementation = "static"
    model.generation_config.use_cache = True
    module = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=tokens)
    prompt = torch.from_numpy(request.captured["input_ids"][-1:, -3:])
    inputs = {"input_ids": prompt, "cache_position": torch.arange(prompt.shape[1])}
    length = torch.export.Dim("sequence_length", min=1, max=tokens - 1)
    shapes = {"input_ids": {1: length}, "cache_position": {0: length}}
    return Graph(module, inputs, None if request.options.dynamic is False else shapes, strict=True)


def _cache_outside(request: Request) -> tuple[str, dict[str, Graph]]:
    from hub_exporter.graphs import Graph, is_recurrent, shapes_for, standard

    if not is_recurrent(request):
        layout, parts = standard(request)
        bounded = {name: shapes_for(request, graph.inputs, capped=True) for name, graph in parts.items()}
    else:  # a batch axis beside states is fixed to the captured size by the lowering: to one row, then
        layout, parts = standard(dataclasses.replace(request, captured=_longest_row(request)))
        bounded = {name: _one_row(shapes_for(request, graph.inputs, capped=True)) for name, graph in parts.items()}
    return layout, {name: Graph(graph.module, graph.inputs, bounded[name]) for name, graph in parts.items()}


def _longest_row(request: Request) -> Arrays:
    return {name: value[-1:] for name, value in request.captured.items()}


@contextlib.contextmanager
def patched(request: Request) -> Iterator[None]:
    """What the lowering does not do by itself, and the engine has no option for."""
    from executorch.backends.xnnpack.partition.config.generic_node_configs import GeluConfig
    from transformers.exporters import exporter_executorch as engine
    from transformers.exporters.utils import patch_attribute

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch_attribute(GeluConfig, "check_constraints", _exact_gelu_only))
        if has_static_cache(request):
            methods = runner_methods(request)
            lower = "to_edge_transform_and_lower"
            stack.enter_context(
                patch_attribute(engine, lower, lambda original: functools.partial(original, constant_methods=methods))
            )
        yield


def _exact_gelu_only(original: Any) -> Any:
    """XNNPACK's delegate computes every GELU exactly, the tanh approximation too (3e-4 off in Gemma): leave that one to
    the portable kernel, which computes what is written."""

    def check_constraints(self: Any, node: Any, program: Any) -> bool:
        exact = node.kwargs.get("approximate", "none") == "none"
        return exact and bool(original(self, node, program))

    return check_constraints


def runner_methods(request: Request) -> dict[str, Any]:
    """The constant methods that ExecuTorch's LLM runner and optimum-executorch read from a language model."""
    from hub_exporter.graphs import max_length
    from hub_exporter.loading import generation_config

    config, tokens = request.loaded.model.config.get_text_config(), generation_config(request.loaded.model)
    eos = tokens.eos_token_id
    methods = {
        "get_max_seq_len": max_length(request),
        "get_max_context_len": max_length(request),
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "get_max_batch_size": 1,
        "get_dtype": 6,  # ExecuTorch's number for float32
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": request.options.dynamic is not False,
    }
    if tokens.bos_token_id is not None:
        methods["get_bos_id"] = tokens.bos_token_id
    if eos is not None:
        methods["get_eos_ids"] = eos if isinstance(eos, list) else [eos]
    return methods


def restrictions(request: Request, components: list[Component]) -> list[str]:
    """Batch and length that the program was planned for: the lowering may lower what was asked for."""
    from hub_exporter.graphs import DEFAULT_MAX_BATCH, is_free, is_recurrent, max_length

    if request.options.dynamic is False:
        return ["every axis is fixed to the captured size"]
    if is_recurrent(request):
        return ["batch 1", common.RECURRENT[0]]
    if request.layout == "decoder" and request.options.generation.cache == "dynamic":
        rows = request.options.dynamic_shapes.get("batch_size", AxisBounds()).max or DEFAULT_MAX_BATCH
        return [f"at most {rows} rows", f"at most {max_length(request)} tokens at a time"]
    if request.free is not None:
        largest = [f"{axis(name)} at most {size}" for name, size in request.limits.items() if is_free(request, name)]
        return ["batch 1", *largest]
    if has_static_cache(request):
        return ["batch 1", f"at most {max_length(request)} tokens of text and answer together"]
    lengths = [port.shape[1] for part in components for port in part.inputs if port.name in TEXT_PORTS]
    return ["batch 1", f"at most {min(map(int, lengths))} tokens of input"]


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """The engine's own files and manifest. Raises HubExporterError where nothing was delegated."""
    exported.save_pretrained(folder)
    return [_component(name, part, folder) for name, part in exported.components.items()]


def _component(name: str, part: Any, folder: Path) -> Component:
    from executorch.devtools.backend_debug import get_delegation_info

    info = get_delegation_info(part.program.exported_program().graph_module)
    total = info.num_delegated_nodes + info.num_non_delegated_nodes
    if not info.num_delegated_subgraphs:
        raise HubExporterError(
            f"Nothing of `{name}` was delegated to XNNPACK: it would run on the slow portable kernels",
            hint="XNNPACK takes fp32 graphs; other data types and operators stay outside",
        )
    plan = part.program.executorch_program.execution_plan[0]
    meta = _meta(folder / f"{name}.pte")
    names = _leaf_names(part.metadata, meta.num_inputs())
    return Component(
        name=name,
        file=f"{name}.pte",
        inputs=_ports(names, meta.input_tensor_meta),
        outputs=_ports(output_names(part.metadata.out_spec, meta.num_outputs()), meta.output_tensor_meta),
        planned_memory=sum(plan.non_const_buffer_sizes),
        delegated=round(info.num_delegated_nodes / total, 4),
    )


def _leaf_names(metadata: Any, count: int) -> list[str]:
    """Names of the flat inputs in the order in which the program takes them; of a cache `cache_0`, `cache_1`, ..."""
    from transformers.exporters.metadata import load_treespec

    arguments = load_treespec(metadata.in_spec).children_specs[1]
    names: list[str] = []
    for name, spec in zip(arguments.context, arguments.children_specs, strict=True):
        names += _names_within(name, spec)
    return names[:count]


def _names_within(name: str, spec: Any) -> list[str]:
    """`name` of a tensor, `name.key` of an entry of a dict, `name_0`, `name_1`, ... of any other container."""
    if spec.is_leaf():
        return [name]
    if isinstance(spec.type, type) and issubclass(spec.type, dict):
        return [f"{name}.{key}" for key in spec.context]
    return [name] if spec.num_leaves == 1 else [f"{name}_{leaf}" for leaf in range(spec.num_leaves)]


def _meta(path: Path) -> Any:
    from executorch.runtime import Runtime

    return Runtime.get().load_program(path).metadata("forward")


SCALAR_TYPES = {3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool", 15: "bfloat16"}
"""ExecuTorch's numbers of data types, as its runtime gives them."""


def _ports(names: list[str], info: Any) -> tuple[Port, ...]:
    """Ports with their upper bounds: the program knows no others. Arguments that were constants have none."""
    ports = []
    for index, name in enumerate(names):
        with contextlib.suppress(IndexError):
            tensor = info(index)
            ports.append(Port(name=name, dtype=SCALAR_TYPES[tensor.dtype()], shape=tuple(tensor.sizes())))
    return tuple(ports)


# ── Running ──


def open_runner(folder: Path, outcome: ExportOutcome) -> Any:
    """ExecuTorch's Python runtime over the files in `folder`."""
    if outcome.layout in ("encoder-decoder", "multimodal"):
        from hub_exporter.backends.dynamo import NestedPortsRunner

        return NestedPortsRunner(folder, outcome, f"executorch {outcome.versions['executorch']}", max_batch=1)
    if outcome.layout in ("decoder", "prefill-decode", "recurrent"):
        from hub_exporter.backends.dynamo import EngineRunner

        rows = outcome.components[0].inputs[0].shape[0]  # ExecuTorch knows the largest size of an axis only
        return EngineRunner(folder, outcome, f"executorch {outcome.versions['executorch']}", max_batch=int(rows))
    return ExecutorchRunner(folder, outcome)


class ExecutorchRunner:
    """ExecuTorch's Python runtime. One row at a time; a decoder's cache is inside the program."""

    max_batch = 1
    multi_token = True
    one_token = False

    def __init__(self, folder: Path, outcome: ExportOutcome):
        from executorch.runtime import Runtime

        component = outcome.components[0]
        self.runtime = f"executorch {outcome.versions['executorch']}"
        self.layout, self.padded = outcome.layout, outcome.layout != "static-decoder"
        self._inputs = [port.name for port in component.inputs]
        self._outputs = [port.name for port in component.outputs]
        self._program = Runtime.get().load_program(folder / component.file)
        self._method = self._program.load_method("forward")
        self._position = 0

    def forward(self, inputs: Arrays) -> Arrays:
        return dict(zip(self._outputs, self._execute([inputs[name] for name in self._inputs]), strict=True))

    def start(self, batch: int) -> None:
        self._position = 0

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        length = input_ids.shape[1]
        cache_position = np.arange(self._position, self._position + length, dtype=np.int64)
        self._position += length
        return self._execute([input_ids, cache_position])[0]

    def _execute(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        import torch

        answer = self._method.execute([torch.from_numpy(np.ascontiguousarray(array)) for array in arrays])
        return [tensor.clone().numpy() for tensor in answer]


def output_names(out_spec: str, count: int) -> list[str]:
    """Names of the flat outputs, from the engine's record of what the model returned: the program itself has none."""
    from transformers.exporters.metadata import load_treespec

    spec = load_treespec(out_spec)
    fields = spec.context if isinstance(spec.context, list) else []
    names: list[str] = []
    for name, child in zip(fields, spec.children_specs, strict=False):
        names += _names_within(name, child)
    names = names or ["logits"]
    return [f"mutated_{index}" for index in range(count - len(names))] + names  # inputs written in place come first
