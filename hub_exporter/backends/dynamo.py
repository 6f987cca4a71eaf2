"""`torch.export`: a `model.pt2` that torch runs without the model's code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hub_exporter.backends import TOKEN_PORTS, Arrays, common
from hub_exporter.records import Component, ExportOutcome, Port

FORMAT = "dynamo"
DEFAULTS: dict[str, Any] = {}
graphs, restrictions = common.graphs, common.restrictions
accompany, missing_runtime = common.accompany, common.missing_runtime


@contextlib.contextmanager
def patched(request: Any) -> Iterator[None]:
    """Masks that read which tokens belong together are made by broadcasting, as the engine makes them for the other
    formats: a program with `vmap` in it cannot be saved."""
    from transformers import masking_utils
    from transformers.exporters.utils import _patch_broadcast_mask_expansion, patch_attributes

    indexing = (masking_utils, "TransformGetItemToIndex", lambda original: contextlib.nullcontext)
    with patch_attributes([(masking_utils, "_vmap_expansion_sdpa", _patch_broadcast_mask_expansion), indexing]):
        yield


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """The engine's own files and manifest."""
    for part in exported.components.values():
        _forget_trace(part.program)
        _drop_unused(part.program)
    exported.save_pretrained(folder)
    return [
        Component(
            name=name,
            file=f"{name}.pt2",
            inputs=_inputs(part.program),
            outputs=_outputs(part.program),
            min_length=_min_length(part.program) if name == "model" else 1,
        )
        for name, part in exported.components.items()
    ]


def _forget_trace(program: Any) -> None:
    """Drop the stack traces of the nodes: they hold paths of this machine."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            node.meta.pop("stack_trace", None)


def _drop_unused(program: Any) -> None:
    """The trace keeps all weights of the module, an encoder's those of the decoder too, under all their names; and what
    it was traced with, which for a decoder is a whole cache. What nobody reads goes though it counts as random: the
    dropouts of an evaluated model do."""
    from torch.export.graph_signature import InputKind

    program.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=False))
    weights, nodes = (InputKind.PARAMETER, InputKind.BUFFER), {node.name: node for node in program.graph.nodes}
    specs = program.graph_signature.input_specs
    unused = [spec for spec in specs if spec.kind in weights and not nodes[spec.arg.name].users]
    for spec in unused:
        program.graph.erase_node(nodes[spec.arg.name])
        specs.remove(spec)
    used = {spec.target for spec in specs if spec.kind in weights}
    for name in [name for name in program.state_dict if name not in used]:
        del program.state_dict[name]
    program.example_inputs = None
    program.graph_module.recompile()


def _min_length(program: Any) -> int:
    """The trace takes no axis for shorter than 2, so that a cache and new text make 4 tokens at least; the program
    refuses fewer. (A lone axis of 1 runs.)"""
    values = [node.meta["val"] for node in program.graph.nodes if node.name == "attention_mask"]
    sizes = [value.shape[-1] for value in values if value is not None]  # a constant `None` has no axes
    symbols = [size for size in sizes if not isinstance(size, int)]
    bounds = [program.range_constraints.get(symbol.node.expr) for symbol in symbols]
    least = max((int(bound.lower) for bound in bounds if bound is not None), default=1)
    return least if least > 2 else 1


def _inputs(program: Any) -> tuple[Port, ...]:
    wanted = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes}
    return tuple(_port(name, nodes[name].meta["val"]) for name in wanted if hasattr(nodes.get(name), "meta"))


def _outputs(program: Any) -> tuple[Port, ...]:
    nodes = {node.name: node for node in program.graph.nodes}
    names = [name for name in program.graph_signature.user_outputs if isinstance(name, str)]
    return tuple(_port(name, nodes[name].meta["val"]) for name in names if hasattr(nodes[name].meta["val"], "shape"))


_NESTED = re.compile(r"(past_key_values|present)_(\d+)(?:_(decoder|encoder))?_(key|value)")
"""How the trace spells an entry of a dict of tensors."""


def _port(name: str, value: Any) -> Port:
    name = ".".join(filter(None, found.groups())) if (found := _NESTED.fullmatch(name)) else name
    shape = tuple(int(dim) if isinstance(dim, int) else str(dim) for dim in getattr(value, "shape", ()))
    return Port(name=name, dtype=str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch."), shape=shape)


def open_runner(folder: Path, outcome: ExportOutcome) -> Any:
    """Torch over the files in `folder`."""
    runtime = f"torch {outcome.versions['torch']}"
    if outcome.layout in ("encoder-decoder", "multimodal", "two-encoders"):
        return NestedPortsRunner(folder, outcome, runtime)
    return EngineRunner(folder, outcome, runtime)


class NestedPortsRunner(common.NamedPortsRunner):
    """The engine's own loader over a set whose caches are dicts of tensors: the port `past_key_values.0.decoder.key` is
    the entry `0.decoder.key` of the argument `past_key_values`."""

    def __init__(self, folder: Path, outcome: ExportOutcome, runtime: str, max_batch: int | None = None):
        from transformers.exporters.base import ExportedModel

        super().__init__(folder, outcome)
        self.runtime, self.max_batch = runtime, max_batch
        self._runners = ExportedModel.from_pretrained(folder, trust_remote_code=True).runners

    def _run(self, name: str, inputs: Arrays) -> Arrays:
        import torch

        kwargs: dict[str, Any] = {}
        for port in self._components[name].inputs:
            argument, _, key = port.name.partition(".")
            value = inputs[port.name]
            tensor = torch.from_numpy(np.ascontiguousarray(value))
            if not value.size:  # numpy gives an empty array strides that ExecuTorch refuses
                tensor = torch.zeros(value.shape, dtype=tensor.dtype)
            if key:
                kwargs.setdefault(argument, {})[key] = tensor
            else:
                kwargs[argument] = tensor
        answer = self._runners[name](**kwargs)
        flat = {key: value for key, value in answer.items() if hasattr(value, "numpy")}
        flat |= {f"present.{key}": value for key, value in answer.get("present", {}).items()}
        return {key: value.numpy() for key, value in flat.items()}


class EngineRunner:
    """The engine's own loader over a folder. A cache is carried as its flat tensors, and put into the container that
    the graph was traced with: what comes back may remember a length in it, and the graph takes only its own."""

    def __init__(self, folder: Path, outcome: ExportOutcome, runtime: str, max_batch: int | None = None):
        from transformers.exporters.base import ExportedModel

        self.layout = outcome.layout
        self.padded, self.one_token = outcome.layout != "recurrent", outcome.layout == "recurrent"
        self.runtime, self.max_batch = runtime, max_batch
        self.multi_token = outcome.layout in ("decoder", "static-cache")
        self._slots = outcome.cache_length
        self._components = {part.name: part for part in outcome.components}
        self._runners = ExportedModel.from_pretrained(folder, trust_remote_code=True).runners
        self._cache: list[Any] | None = None

    def forward(self, inputs: Arrays) -> Arrays:
        answer = self._call("model", inputs)
        return {name: value.numpy() for name, value in answer.items() if hasattr(value, "numpy")}

    def start(self, batch: int) -> None:
        part = self._components.get("model")
        self._cache = empty_cache(part, batch, self._slots, self.one_token) if part else None

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        from torch.utils import _pytree as pytree

        name = "model" if "model" in self._runners else "prefill" if self._cache is None else "decode"
        tokens = {"input_ids": input_ids, "attention_mask": attention_mask, "position_ids": position_ids}
        if self._slots:
            kind = {port.name: port.dtype for port in self._components[name].inputs}["attention_mask"]
            tokens["attention_mask"] = common.static_mask(attention_mask, input_ids.shape[1], self._slots, kind)
        caches = {}
        if self._cache is not None:
            caches["cache"] = pytree.tree_unflatten(self._cache, cache_spec(self._runners[name].metadata.in_spec))
        answer = self._call(name, tokens, **caches)
        if not self._slots:  # that one was written where it is
            self._cache = pytree.tree_leaves(answer["cache"])
        return np.asarray(answer["logits"])

    def _call(self, name: str, inputs: Arrays, **caches: Any) -> Any:
        import torch

        runner = self._runners[name]
        kwargs = {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in inputs.items()} | caches
        taken = runner.metadata.kwargs.keys() - runner.metadata.in_constants.keys()  # not what was traced as `None`
        return runner(**{key: value for key, value in kwargs.items() if key in taken})


def cache_spec(in_spec: str) -> Any:
    """How a graph takes its cache: the pytree of that one argument."""
    from transformers.exporters.metadata import load_treespec

    arguments = load_treespec(in_spec).children_specs[1]
    return arguments.children_specs[arguments.context.index("cache")]


def empty_cache(component: Component, batch: int, slots: int | None = None, recurrent: bool = False) -> list[Any]:
    """The flat tensors of a cache that no token went into: keys and values of length 0, states of zeros; of a static
    one keys and values of `slots` tokens, and how many they hold. A `recurrent` model's state may have four axes too:
    none of them is free."""
    import torch

    ports = [port for port in component.inputs if port.name not in TOKEN_PORTS]
    return [
        torch.zeros(_empty(port.shape, batch, slots or 0, recurrent), dtype=getattr(torch, port.dtype))
        for port in ports
    ]


def _empty(shape: tuple[int | str, ...], batch: int, slots: int, recurrent: bool) -> list[int]:
    grows = len(shape) == 4 and not (recurrent and isinstance(shape[2], int))
    rest = [slots if axis == 2 and grows else int(size) for axis, size in enumerate(shape) if axis]
    return [batch, *rest] if shape else []
