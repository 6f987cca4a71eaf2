"""ONNX: one self-contained `model.onnx`, axes and caches named as the clients look for them, run in ONNX Runtime."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hub_exporter.backends import Arrays, common, precision
from hub_exporter.catalogue import CACHE_AXES, axes_of, cache_shape
from hub_exporter.records import Component, ExportOutcome, Port

FORMAT = "onnx"
DEFAULTS: dict[str, Any] = {}
graphs, patched, restrictions = common.graphs, common.patched, common.restrictions
accompany, missing_runtime = common.accompany, common.missing_runtime

EMBED_LIMIT = int(1.9 * 2**30)
"""Bytes of weights up to which they go into the `.onnx` file itself: protobuf ends at 2 GiB."""

DATA = "model.onnx_data"
"""Where weights lie that several graphs share; those of one lie in `<file>_data`, as clients ask."""

INLINE = 256
"""Bytes of a constant up to which it stays in the graph in any case."""

CACHE_PORT = re.compile(r"^(?:input\.|output\.)?cache\.layers\.(\d+)\.(key|value)s$")
"""The engine's name of one tensor of a key/value cache; prefixed where a graph has it on both sides."""


# ── Writing ──


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """Save every component and an `export.json` that fits its port names."""
    entries, programs = {}, {}
    for name, part in exported.components.items():
        program, file = part.program, f"{name}.onnx"
        renamed = rename_cache_ports(program)
        name_axes(program)
        forget_trace(program)
        metadata = common.flat_metadata(part.metadata, *_names(program)) if renamed else part.metadata
        programs[file], entries[name] = program, {"file": file, "metadata": vars(metadata)}
    alone = layout == "two-encoders"  # who embeds texts fetches nothing of the pictures
    for part in [{file: program} for file, program in programs.items()] if alone else [programs]:
        _save(part, folder)
    for file in programs:
        (folder / f"{file}.data").touch()  # the engine insists on it when it loads, and an empty one satisfies it
    manifest = {"schema_version": 1, "export_format": FORMAT, "components": entries}
    (folder / "export.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return [describe(entry["file"], programs[entry["file"]]) for entry in entries.values()]


def convert(components: list[Component], folder: Path, variant: str) -> list[Component]:
    """Put smaller graphs in the place of the fp32 ones, with the names that transformers.js looks for."""
    made = []
    for part in components:
        program = precision.converted(folder / part.file, variant)
        file = f"{part.name}{precision.SUFFIXES[variant]}.onnx"
        _save({file: program}, folder)
        made.append(msgspec.structs.replace(describe(file, program), name=part.name))
    kept = {name for part in made for name in (part.file, part.data)}
    for path in list(folder.iterdir()):
        if path.name not in kept:
            path.unlink()
    return made


def describe(file: str, program: Any) -> Component:
    """What clients and cards have to know of a graph, saved as `file`. `program` is one of `onnx_ir`."""
    import onnx_ir

    tensors = [value.const_value for value in program.graph.initializers.values()]
    places = {tensor.location for tensor in tensors if isinstance(tensor, onnx_ir.ExternalTensor)}
    return Component(
        name=file.removesuffix(".onnx"),
        file=file,
        data=next(iter(places), None),
        inputs=_ports(program.graph.inputs),
        outputs=_ports(program.graph.outputs),
        opsets={domain or "ai.onnx": version for domain, version in program.graph.opset_imports.items()},
        ir_version=program.ir_version,
    )


def _save(programs: dict[str, Any], folder: Path) -> None:
    """One graph keeps its weights inside the file where protobuf allows it. Several share them, and a larger one has
    them, in `<file>_data`, where clients look for them."""
    import onnx_ir

    if len(programs) > 1 or sum(value.const_value.nbytes for value in _weights(programs)) > EMBED_LIMIT:
        _share_weights(programs, folder, f"{next(iter(programs))}_data" if len(programs) == 1 else DATA)
    for file, program in programs.items():
        onnx_ir.save(program, str(folder / file))


def _weights(programs: dict[str, Any]) -> list[Any]:
    """The values that hold constants, of all graphs; those that shape inference needs stay in the graph."""
    values = [value for program in programs.values() for value in program.graph.initializers.values()]
    return [value for value in values if value.const_value is not None and value.const_value.nbytes > INLINE]


def _share_weights(programs: dict[str, Any], folder: Path, data: str) -> None:
    """Move the weights into one file, each content once, and let the graphs point to them."""
    import onnx_ir

    values = _weights(programs)
    keys = [_content(value.const_value) for value in values]
    unique = dict(zip(keys, [value.const_value for value in values], strict=True))
    written = onnx_ir.external_data.convert_tensors_to_external(list(unique.values()), folder, data)
    places = dict(zip(unique, written, strict=True))
    for key, value in zip(keys, values, strict=True):
        at, tensor = places[key], value.const_value
        value.const_value = onnx_ir.ExternalTensor(
            data, at.offset, at.length, tensor.dtype, shape=tensor.shape, name=value.name, base_dir=folder
        )


def _content(tensor: Any) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), hashlib.sha256(tensor.tobytes()).digest()


def rename_cache_ports(program: Any) -> bool:
    """`input.cache.layers.0.keys` -> `past_key_values.0.key`, `output.…` -> `present.0.key`; whether there were any."""
    renamed = False
    for prefix, values in (("past_key_values", program.graph.inputs), ("present", program.graph.outputs)):
        for value in values:
            match = CACHE_PORT.match(value.name)
            if match:
                value.name = f"{prefix}.{match[1]}.{match[2]}"
                renamed = True
    return renamed


def name_axes(program: Any) -> None:
    """Give the symbols of the inputs readable names, and the same names to what is computed from them.

    The trace has one symbol per input and axis (`s44`, `s70`); all that mean one thing get one name. Shapes of inner
    values are dropped: they only repeat the symbols, and runtimes infer them.
    """
    import onnx_ir

    names = _axis_names(program.graph.inputs)
    for value in [*program.graph.inputs, *program.graph.outputs]:
        if value.shape is not None:
            value.shape = onnx_ir.Shape([_renamed(dim, names) for dim in value.shape])
    for value in _growing(program.graph.inputs):
        value.shape = onnx_ir.Shape(CACHE_AXES)
    for node in program.graph:
        for output in node.outputs:
            if not output.is_graph_output():
                output.shape = None


def forget_trace(program: Any) -> None:
    """Drop what the trace noted at each node: stack traces with the paths of this machine, half of a small file."""
    for node in program.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()


def _is_cache(value: Any) -> bool:
    return value.name.startswith("past_key_values.") and len(value.shape) == 4


def _static(inputs: Any) -> bool:
    """Whether the cache has one size: its mask then says for every new token what it may look at."""
    return any(value.name == "attention_mask" and len(value.shape) == 4 for value in inputs)


def _growing(inputs: Any) -> list[Any]:
    """The cache inputs of a decoder whose layers are alike. Their heads and head size become free: optimum derives a
    wrong head size for some models, and a runtime that is given none skips those of an empty tensor."""
    caches = [] if _static(inputs) else [value for value in inputs if _is_cache(value)]
    caches = [value for value in caches if ".encoder." not in value.name]  # given by our encoder, never made empty
    alike = len({(value.shape[1], value.shape[3]) for value in caches}) == 1
    return caches if alike and not any(isinstance(value.shape[2], int) for value in caches) else []


def _axis_names(inputs: Any) -> dict[str, str]:
    has_cache = any(value.name.startswith("past_key_values.") for value in inputs)
    beside, names = [value.name for value in inputs], dict[str, str]()
    for value in inputs:
        dims = [str(dim) if not isinstance(dim, int) else None for dim in value.shape]
        roles = dict(enumerate(axes_of(value.name, len(dims), beside, has_cache)))
        if _is_cache(value):
            past = "encoder_sequence_length" if ".encoder." in value.name else "past_sequence_length"
            roles = {0: "batch_size", 2: "max_cache_len" if _static(inputs) else past}
        for axis, role in roles.items():
            symbol = dims[axis] if axis < len(dims) else None
            if symbol and symbol not in names:
                names[symbol] = role
    return names


def _renamed(dim: Any, names: dict[str, str]) -> int | str:
    if isinstance(dim, int):
        return dim
    text = str(dim)
    if text.isdigit():
        return int(text)
    renamed = re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), text)
    parts = {part.strip() for part in renamed.split("+")}
    return "total_sequence_length" if parts == {"past_sequence_length", "sequence_length"} else renamed


def _names(program: Any) -> tuple[list[str], list[str]]:
    return [value.name for value in program.graph.inputs], [value.name for value in program.graph.outputs]


def _ports(values: Any) -> tuple[Port, ...]:
    return tuple(
        Port(
            name=value.name,
            dtype=str(value.dtype.numpy()),
            shape=tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape),
        )
        for value in values
    )


# ── Running ──


def open_runner(folder: Path, outcome: ExportOutcome) -> OnnxRunner:
    """ONNX Runtime over the files in `folder`."""
    return InPlaceRunner(folder, outcome) if outcome.layout == "static-cache" else OnnxRunner(folder, outcome)


class OnnxRunner(common.NamedPortsRunner):
    """ONNX Runtime on the CPU."""

    def __init__(self, folder: Path, outcome: ExportOutcome):
        import onnxruntime

        super().__init__(folder, outcome)
        self.runtime = f"onnxruntime {onnxruntime.__version__}"
        self._sessions = {
            part.name: onnxruntime.InferenceSession(str(folder / part.file), providers=["CPUExecutionProvider"])
            for part in outcome.components
        }

    def _run(self, name: str, inputs: Arrays) -> Arrays:
        session = self._sessions[name]
        feed = {port.name: inputs[port.name] for port in session.get_inputs() if port.name in inputs}
        return dict(zip([port.name for port in session.get_outputs()], session.run(None, feed), strict=True))


class InPlaceRunner(OnnxRunner):
    """A decoder with a cache of fixed size: each layer's keys and values are one buffer, bound as input and as output,
    so that a step copies none of them. The counters of tokens are small, read before they are written, and carried."""

    def __init__(self, folder: Path, outcome: ExportOutcome):
        super().__init__(folder, outcome)
        self._slots = outcome.cache_length or 0

    def start(self, batch: int) -> None:
        import onnxruntime

        part, session = self._components["model"], self._sessions["model"]
        self._masked = next(port for port in part.inputs if port.name == "attention_mask")
        caches = [port for port in part.inputs if port.name.startswith("past_key_values.")]
        self._counters = {port.name: 0 for port in part.inputs if port.shape == ()}
        self._binding = session.io_binding()
        for port in caches:
            _, heads, _, head_size = cache_shape(part, port)
            zeros = np.zeros((batch, int(heads), self._slots, int(head_size)), port.dtype)
            buffer = onnxruntime.OrtValue.ortvalue_from_numpy(zeros)
            self._binding.bind_ortvalue_input(port.name, buffer)
            self._binding.bind_ortvalue_output(port.name.replace("past_key_values.", "present."), buffer)

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        mask = common.static_mask(attention_mask, input_ids.shape[1], self._slots, self._masked.dtype)
        tokens = {"input_ids": input_ids, "attention_mask": mask, "position_ids": position_ids}
        counts = {name: np.array(count, np.int64) for name, count in self._counters.items()}
        for name, value in (tokens | counts).items():
            self._binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for name in self._output_names():
            if not name.startswith("present."):
                self._binding.bind_output(name)  # anew, for its size differs from step to step
        self._sessions["model"].run_with_iobinding(self._binding)
        self._counters = {name: count + input_ids.shape[1] for name, count in self._counters.items()}
        answers = dict(zip(self._output_names(), self._binding.get_outputs(), strict=True))
        return np.asarray(answers["logits"].numpy())

    def _output_names(self) -> list[str]:
        """In the order in which they were bound."""
        caches = [port.name for port in self._components["model"].outputs if port.name.startswith("present.")]
        return [*caches, "logits", *(name.replace("input.", "output.") for name in self._counters)]
