"""OpenVINO IR: `openvino_model.xml` and `.bin`; a decoder keeps its cache inside (stateful)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hub_exporter.backends import Arrays, common
from hub_exporter.records import Component, ExportOutcome, Port

if TYPE_CHECKING:
    from hub_exporter.loading import Loaded

FORMAT = "openvino"
DEFAULTS: dict[str, Any] = {}
graphs, patched, restrictions = common.graphs, common.patched, common.restrictions
missing_runtime = common.missing_runtime

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
"""Compile options for comparing: the CPU plugin computes in bf16 on processors that have it, whatever the file says."""


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """The engine's own files and manifest; its names are the ones that clients look for."""
    left_out = {name: leave_out(part) for name, part in exported.components.items()}
    for part in exported.components.values():
        _describe_stateful(part)
    exported.save_pretrained(folder)
    return [
        Component(
            name=name,
            file=f"openvino_{name}.xml",
            data=f"openvino_{name}.bin",
            inputs=_ports(part.program.inputs),
            outputs=_ports(part.program.outputs),
            left_out=left_out[name],
        )
        for name, part in exported.components.items()
    ]


def leave_out(part: Any) -> tuple[str, ...]:
    """Remove what a text encoder gives beside its last hidden state, and give its name: OpenVINO GenAI embeds with
    graphs of one output only. To the engine's loader it is a constant `None` from then on."""
    names = [port.get_any_name() for port in part.program.outputs]
    takes_text = "input_ids" in [port.get_any_name() for port in part.program.inputs]
    if "last_hidden_state" not in names or not takes_text:
        return ()
    others = [port for port in part.program.outputs if port.get_any_name() != "last_hidden_state"]
    for port in others:
        part.program.remove_result(port.get_node())
    constants = {index: None for index, name in enumerate(names) if name != "last_hidden_state"}
    part.metadata.out_constants = [*part.metadata.out_constants, *map(list, constants.items())]
    return tuple(name for name in names if name != "last_hidden_state")


def _describe_stateful(part: Any) -> None:
    """The manifest of a graph with its cache inside names the ports that are left: the engine's own still promises a
    cache, and its loader ends in `StopIteration` over it."""
    if part.program.get_variables():
        inputs = [port.get_any_name() for port in part.program.inputs]
        outputs = [port.get_any_name() for port in part.program.outputs]
        part.metadata = common.flat_metadata(part.metadata, [name for name in inputs if name != "beam_idx"], outputs)


def accompany(loaded: Loaded, folder: Path) -> list[str]:
    """The tokenizer as OpenVINO graphs beside the model, where OpenVINO GenAI looks for them; why not, in words."""
    import openvino
    from openvino_tokenizers import convert_tokenizer

    if loaded.tokenizer is None:
        return []
    try:
        converted = convert_tokenizer(loaded.tokenizer, with_detokenizer=True)
        for name, graph in zip(("openvino_tokenizer", "openvino_detokenizer"), converted, strict=True):
            openvino.save_model(graph, folder / f"{name}.xml", compress_to_fp16=False)
    except Exception as error:  # noqa: BLE001 - it refuses what it cannot convert with errors of every kind
        return [f"its tokenizer cannot be converted to OpenVINO ({type(error).__name__}), which OpenVINO GenAI needs"]
    return []


def _ports(ports: Any) -> tuple[Port, ...]:
    return tuple(
        Port(
            name=port.get_any_name(),
            dtype=str(np.dtype(port.get_element_type().to_dtype())),
            shape=tuple(dim.get_length() if dim.is_static else "?" for dim in port.get_partial_shape()),
        )
        for port in ports
    )


def open_runner(folder: Path, outcome: ExportOutcome) -> OpenvinoRunner:
    """The CPU plugin over the files in `folder`, computing in float32."""
    return OpenvinoRunner(folder, outcome)


class OpenvinoRunner(common.NamedPortsRunner):
    """The CPU plugin; `exact` compiles for float32, otherwise with the plugin's defaults for this processor."""

    def __init__(self, folder: Path, outcome: ExportOutcome, exact: bool = True):
        import openvino

        super().__init__(folder, outcome)
        self.runtime = f"openvino {openvino.__version__.split('-')[0]}"
        core, config = openvino.Core(), EXACT if exact else {}
        self._requests = {
            part.name: core.compile_model(core.read_model(folder / part.file), "CPU", config).create_infer_request()
            for part in outcome.components
        }
        compiled = next(iter(self._requests.values())).get_compiled_model()
        self.precision: str = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()

    def start(self, batch: int) -> None:
        super().start(batch)
        for request in self._requests.values():
            request.reset_state()

    def _run(self, name: str, inputs: Arrays) -> Arrays:
        request = self._requests[name]
        rows = {
            "beam_idx": np.arange(len(next(iter(inputs.values()))), dtype=np.int32)
        }  # every row goes on with its own past
        # By their order: the plugin gives some ports a second name, and which of them it tells is chance.
        part, compiled = self._components[name], request.get_compiled_model()
        given = {**rows, **inputs}
        taken = {
            port: given[named.name]
            for named, port in zip(part.inputs, compiled.inputs, strict=True)
            if named.name in given
        }
        answer = request.infer(taken)
        return {named.name: np.array(answer[port]) for named, port in zip(part.outputs, compiled.outputs, strict=True)}


def open_default_runner(folder: Path, outcome: ExportOutcome) -> OpenvinoRunner:
    """As a user gets it who asks for nothing: bf16 where the processor has it."""
    return OpenvinoRunner(folder, outcome, exact=False)
