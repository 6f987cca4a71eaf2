"""What ExecuTorch's delegates have in common: bounded graphs, the runner's methods, `.pte` files, the Python runtime.

ExecuTorch plans its memory from the upper bounds of the axes, so that no axis may be left without one: unbounded, the
engine guesses (64 tokens for a language model, 12.9 GB for MiniLM). `executorch_xnnpack.py`, `executorch_mlx.py` and
`executorch_cuda.py` have what only one delegate needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hub_exporter.backends import TOKEN_PORTS, Arrays, common, pte
from hub_exporter.errors import HubExporterError
from hub_exporter.mixed_prompt import alone
from hub_exporter.records import AxisBounds, Component, ExportOutcome, Port
from hub_exporter.wording import axis

if TYPE_CHECKING:
    from hub_exporter.graphs import Graph, Request

FORMAT = "executorch"

TEXT_PORTS = ("input_ids", "decoder_input_ids")
"""(batch, length) of tokens."""

AT_A_TIME = 1024
"""New tokens that a decoder with its cache inside takes at most: memory is planned for all of them. A longer prompt
is fed in pieces, as ExecuTorch's runner does."""


# ── Writing ──


def graphs(request: Request) -> tuple[str, dict[str, Graph]]:
    """Batch 1 and bounded lengths. A decoder wraps the model with a static cache, as ExecuTorch's LLM runner drives
    it: `forward(input_ids[1, n], cache_position[n]) -> logits`. `generation: {cache: ...}` keeps a cache outside: a
    `static` one is written in place, a `dynamic` one grows."""
    from hub_exporter.graphs import is_recurrent

    asked = request.options.generation.cache
    if has_cache_inside(request):
        return "static-decoder", {"model": _static_decoder(request)}
    if request.layout != "decoder" or asked == "none":  # the padded row, so that the mask is kept
        return one_row(row(request, 0))
    if asked == "static":
        return "static-cache", {"model": _static_cache(row(request, -1))}
    # The lowering fixes a batch axis beside states to the captured size.
    return growing(row(request, -1), alone=True) if is_recurrent(request) else growing(request, alone=False)


def row(request: Request, index: int) -> Request:
    """The request with one row alone: 0 has padding, -1 has none."""
    if request.layout == "multimodal":
        captured = alone(request.captured)[index]
    else:
        captured = {name: value[index:][:1] for name, value in request.captured.items()}
    return dataclasses.replace(request, captured=captured)


def one_row(request: Request) -> tuple[str, dict[str, Graph]]:
    """The graphs of anything but a decoder with a cache, for one row."""
    from hub_exporter import graphs as make

    if request.layout == "encoder":
        layout, parts = make.encoders(request, capped=True)
    elif request.options.generation.cache == "none":
        layout, parts = "uncached", {"model": make.without_cache(request, request.captured, capped=True)}
    elif request.layout == "multimodal":
        layout, parts = "multimodal", make.mixed(request, request.captured, capped=True)
    else:
        layout, parts = "encoder-decoder", make.encoder_and_decoder(request, request.captured, capped=True)
    no_batch = {"image_encoder"} if "image_grid_thw" in request.captured else set()
    return layout, {
        name: part if name in no_batch else dataclasses.replace(part, shapes=_fixed_batch(part.shapes))
        for name, part in parts.items()
    }


def growing(request: Request, alone: bool) -> tuple[str, dict[str, Graph]]:
    """A decoder that takes and gives its cache, with an upper bound for every axis; for one row, if `alone`."""
    from hub_exporter.graphs import Graph, shapes_for, standard

    layout, parts = standard(request)
    shapes = {name: shapes_for(request, part.inputs, capped=True) for name, part in parts.items()}
    return layout, {
        name: Graph(part.module, part.inputs, _fixed_batch(shapes[name]) if alone else shapes[name])
        for name, part in parts.items()
    }


def _fixed_batch(shapes: Any) -> Any:
    """The shapes with the batch axis left fixed."""
    if isinstance(shapes, list):
        return [_fixed_batch(item) for item in shapes]
    if isinstance(shapes, dict):
        return {key: _fixed_batch(value) for key, value in shapes.items() if key != 0}
    return shapes


def has_cache_inside(request: Request) -> bool:
    """Whether the program holds the cache: of a language model, unless it is recurrent or the recipe names one."""
    from hub_exporter.graphs import is_recurrent

    return request.layout == "decoder" and request.options.generation.cache is None and not is_recurrent(request)


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
    length = torch.export.Dim("sequence_length", min=1, max=min(tokens - 1, AT_A_TIME))
    shapes = {"input_ids": {1: length}, "cache_position": {0: length}}
    return Graph(module, inputs, None if request.options.dynamic is False else shapes, strict=True)


def _static_cache(request: Request) -> Graph:
    """A decoder that takes a static cache and writes into it. Besides the number of new tokens nothing varies."""
    from torch.export import Dim
    from torch.utils import _pytree as pytree

    from hub_exporter.graphs import Graph, max_length, standard

    (part,) = standard(request)[1].values()
    length = Dim.AUTO(max=min(max_length(request) - 1, AT_A_TIME))
    new = {"input_ids": {1: length}, "position_ids": {1: length}, "attention_mask": {2: length}}
    fixed: dict[str, Any] = {name: [{} for _ in pytree.tree_leaves(part.inputs[name])] for name in part.shapes or ()}
    return Graph(part.module, part.inputs, {**fixed, **new} if fixed else None)


@contextlib.contextmanager
def patched(request: Request, checked: bool = False) -> Iterator[None]:
    """What the engine has no option for: the runner's methods go to the lowering, and what it traces strictly, as it
    does a program with its cache inside, meets no builtin that strict tracing does not know."""
    from transformers.exporters.utils import patch_attributes

    inside = has_cache_inside(request)
    methods = runner_methods(request) if inside else None
    with patch_attributes(_followable() if inside else []), lowering(request, methods, checked):
        yield


def _followable() -> list[tuple[Any, str, Callable[[Any], Any]]]:
    """`view` and `reshape` as operators. The engine wraps both, and torch's strict tracing follows its wrapper to the
    builtin, which it refuses; an operator it takes."""
    import torch

    def through(operator: Any) -> Callable[[Any], Any]:
        def replacement(original: Any) -> Any:
            def method(tensor: Any, *shape: Any, **kwargs: Any) -> Any:
                if kwargs or isinstance(shape[0], torch.dtype):
                    return original(tensor, *shape, **kwargs)
                return operator(tensor, list(shape[0] if isinstance(shape[0], tuple | list) else shape))

            return method

        return replacement

    operators = {"view": torch.ops.aten.view.default, "reshape": torch.ops.aten.reshape.default}
    return [(torch.Tensor, name, through(operator)) for name, operator in operators.items()]


@contextlib.contextmanager
def lowering(request: Request, methods: dict[str, Any] | None, checked: bool) -> Iterator[None]:
    """Lower with these constant methods, and with the bounds of the request.

    `checked` refuses a lowering that fixes an axis: for a delegate whose programs nothing here can run.
    """
    from transformers.exporters import exporter_executorch as engine
    from transformers.exporters.utils import patch_attributes

    def lower(original: Any) -> Callable[..., Any]:
        def run(program: Any, **kwargs: Any) -> Any:
            before = _planned(program)
            lowered = original(program, constant_methods=methods, **kwargs)
            if checked:
                _check_axes(before, _planned(lowered.exported_program()))
            return lowered

        return run

    floor = (engine, "_MAX_DIM_FLOOR", lambda original: max(original, _largest_axis(request)))
    with patch_attributes([(engine, "to_edge_transform_and_lower", lower), floor]):
        yield


def _largest_axis(request: Request) -> int:
    """Sizes up to which the bounds of a text are believed. The engine plans no axis for more than 1,024, or four times
    what was captured. Past and new tokens together are an axis too, and with rows beside them their product."""
    from hub_exporter.graphs import DEFAULT_MAX_BATCH, max_length

    rows = DEFAULT_MAX_BATCH if request.options.generation.cache == "dynamic" else 1
    return 2 * rows * max_length(request) if request.free is None else 0


def _planned(program: Any) -> dict[str, list[int]]:
    """Input -> the largest shape that it is planned for."""
    from executorch.exir.sym_util import eval_shape_upper_bound

    wanted = set(program.graph_signature.user_inputs)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.name in wanted}
    return {name: eval_shape_upper_bound(value.shape) for name, value in values.items() if hasattr(value, "shape")}


def _check_axes(before: dict[str, list[int]], after: dict[str, list[int]]) -> None:
    for name, shape in before.items():
        if after.get(name, shape) != shape:
            raise HubExporterError(
                f"The lowering fixes an axis that was traced free: `{name}` is planned for {after[name]}, not {shape}",
                hint="The file would take inputs of the captured size only; docs/coverage.md says what is known of it",
            )


def runner_methods(request: Request) -> dict[str, Any]:
    """The constant methods that ExecuTorch's LLM runner and optimum-executorch read from a language model."""
    from hub_exporter.graphs import max_length
    from hub_exporter.loading import generation_config

    model = request.loaded.model
    config, tokens = model.config.get_text_config(), generation_config(model)
    eos = tokens.eos_token_id
    methods = {
        "get_max_seq_len": min(max_length(request), AT_A_TIME),  # in one call; the next is of all calls together
        "get_max_context_len": max_length(request),
        "get_vocab_size": config.vocab_size,
        "get_n_layers": config.num_hidden_layers,
        "get_max_batch_size": 1,
        "get_dtype": next(number for number, name in SCALAR_TYPES.items() if str(model.dtype) == f"torch.{name}"),
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

    tokens = max_length(request)
    if request.options.dynamic is False:
        return ["every axis is fixed to the captured size"]
    if is_recurrent(request):
        return ["batch 1", common.RECURRENT[0]]
    if request.layout == "decoder" and request.options.generation.cache == "dynamic":
        rows = request.options.dynamic_shapes.get("batch_size", AxisBounds()).max or DEFAULT_MAX_BATCH
        return [f"at most {rows} rows", f"at most {tokens} tokens at a time"]
    if request.free is not None:
        largest = [f"{axis(name)} at most {size}" for name, size in request.limits.items() if is_free(request, name)]
        answer = [] if request.layout == "encoder" else [f"at most {tokens} tokens of text and answer together"]
        return ["batch 1", *largest, *answer]
    if request.layout == "decoder" and request.options.generation.cache != "none":
        pieces = [f"at most {AT_A_TIME} new tokens at a time"] if tokens > AT_A_TIME else []
        return ["batch 1", f"at most {tokens} tokens of text and answer together", *pieces]
    lengths = [port.shape[1] for part in components for port in part.inputs if port.name in TEXT_PORTS]
    return ["batch 1", f"at most {min(map(int, lengths))} tokens of input"]


def write(exported: Any, folder: Path, layout: str, delegate: str) -> list[Component]:
    """The engine's own files and manifest, every weight once, and beside them the weights that a delegate keeps
    outside of the program. Raises HubExporterError where nothing was delegated."""
    exported.save_pretrained(folder)
    return [_component(name, part, folder, delegate) for name, part in exported.components.items()]


def _component(name: str, part: Any, folder: Path, delegate: str) -> Component:
    from executorch.devtools.backend_debug import get_delegation_info

    info = get_delegation_info(part.program.exported_program().graph_module)
    total = info.num_delegated_nodes + info.num_non_delegated_nodes
    if not info.num_delegated_subgraphs and name != "embed_tokens":  # a table to look up: no delegate takes it
        raise HubExporterError(
            f"Nothing of `{name}` was delegated to {delegate}: it would run on the slow portable kernels",
            hint=f"{delegate} takes some data types and operators only; all others stay outside",
        )
    plan, program = part.program.executorch_program.execution_plan[0], folder / f"{name}.pte"
    pte.share_constants(program)
    meta = _meta(program)
    names = _leaf_names(part.metadata, meta.num_inputs())
    return Component(
        name=name,
        file=program.name,
        data=_write_data(part.program, program),
        inputs=_ports(names, meta.input_tensor_meta),
        outputs=_ports(output_names(part.metadata.out_spec, meta.num_outputs()), meta.output_tensor_meta),
        planned_memory=sum(plan.non_const_buffer_sizes),
        delegated=round(info.num_delegated_nodes / total, 4),
    )


def _write_data(manager: Any, program: Path) -> str | None:
    """Write what the delegate keeps outside of the program beside it, as `<program>.ptd`: the engine does not, and
    ExecuTorch's own name is the same for every program. The name of the file, `None` if there is nothing to write."""
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        manager.write_tensor_data_to_file(folder)
        written = list(Path(folder).iterdir())
        if len(written) > 1:
            raise HubExporterError(f"`{program.name}` keeps its weights in {len(written)} files; one is supported")
        target = program.with_suffix(".ptd")
        return written[0].rename(target).name if written else None


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


def missing_delegate(name: str, title: str) -> str | None:
    """Why the `executorch` of this environment cannot run programs of the delegate that it registers as `name`; `None`
    where it can."""
    from executorch.runtime import Runtime

    if Runtime.get().backend_registry.is_available(name):
        return None
    version = importlib.metadata.version("executorch")
    return f"written, but not run: executorch {version} as installed here has no {title} delegate"


def open_runner(folder: Path, outcome: ExportOutcome) -> Any:
    """ExecuTorch's Python runtime over the files in `folder`."""
    if outcome.layout in ("encoder-decoder", "multimodal", "two-encoders"):
        from hub_exporter.backends.dynamo import NestedPortsRunner

        return NestedPortsRunner(folder, outcome, f"executorch {outcome.versions['executorch']}", max_batch=1)
    if outcome.layout in ("decoder", "prefill-decode", "recurrent"):
        from hub_exporter.backends.dynamo import EngineRunner

        rows = outcome.components[0].inputs[0].shape[0]  # ExecuTorch knows the largest size of an axis only
        runner = EngineRunner(folder, outcome, f"executorch {outcome.versions['executorch']}", max_batch=int(rows))
        runner.padded = runner.padded and _takes_padding(outcome)
        return runner
    return (StaticCacheRunner if outcome.layout == "static-cache" else ExecutorchRunner)(folder, outcome)


def _takes_padding(outcome: ExportOutcome) -> bool:
    """Whether there is a mask for the padding of a text."""
    taken = {port.name for port in outcome.components[0].inputs}
    return "input_ids" not in taken or "attention_mask" in taken


class ExecutorchRunner:
    """ExecuTorch's Python runtime. One row at a time; a decoder's cache is inside the program."""

    max_batch = 1
    multi_token = True
    one_token = False

    def __init__(self, folder: Path, outcome: ExportOutcome):
        component = outcome.components[0]
        self._ports = {port.name: port for port in component.inputs}
        self.runtime = f"executorch {outcome.versions['executorch']}"
        self.layout = outcome.layout
        self._outputs = [port.name for port in component.outputs]
        self.padded = _takes_padding(outcome)
        self._forward = _loaded(folder, component)
        self._position = 0

    def forward(self, inputs: Arrays) -> Arrays:
        return dict(zip(self._outputs, self._execute([inputs[name] for name in self._ports]), strict=True))

    def start(self, batch: int) -> None:
        self._position = 0

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        length = input_ids.shape[1]
        cache_position = np.arange(self._position, self._position + length, dtype=np.int64)
        self._position += length
        return self._execute([input_ids, cache_position])[0]

    def _execute(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        import torch

        answer = self._forward([torch.from_numpy(array).contiguous() for array in arrays])
        return [_array(tensor) for tensor in answer]


class StaticCacheRunner(ExecutorchRunner):
    """A program that takes a static cache and writes into it: the written tensors come out before the logits."""

    def start(self, batch: int) -> None:
        cache = (port for name, port in self._ports.items() if name not in TOKEN_PORTS)
        self._cache = [np.zeros([int(size) for size in port.shape], port.dtype) for port in cache]

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        port = self._ports["attention_mask"]
        mask = common.static_mask(attention_mask, input_ids.shape[1], int(port.shape[3]), port.dtype)
        tokens = {"input_ids": input_ids, "attention_mask": mask, "position_ids": position_ids}
        answer = self._execute([*(tokens[name] for name in self._ports if name in tokens), *self._cache])
        self._cache = answer[: len(self._cache)]
        return answer[len(self._cache)]


def _loaded(folder: Path, component: Component) -> Callable[[list[Any]], Any]:
    """The program's `forward`. Only the older of the two loaders in Python takes weights from a second file."""
    program = folder / component.file
    if component.data is not None:
        from executorch.extension.pybindings.portable_lib import _load_for_executorch

        module = _load_for_executorch(str(program), str(folder / component.data))
        return lambda values: module.run_method("forward", tuple(values))
    from executorch.runtime import Runtime

    loaded = Runtime.get().load_program(program)
    return lambda values: loaded.load_method("forward").execute(values)


def _array(tensor: Any) -> np.ndarray:
    """A copy, out of the memory that the next call writes to; numpy has no bfloat16."""
    import torch

    copy = tensor.clone()
    return np.asarray(copy.float() if copy.dtype == torch.bfloat16 else copy)


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
