"""OpenVINO IR: `openvino_model.xml` and `.bin`; a decoder keeps its cache inside (stateful)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hub_exporter.backends import Arrays, common
from hub_exporter.records import Component, ExportOutcome, Port

FORMAT = "openvino"
DEFAULTS: dict[str, Any] = {}
graphs, patched, restrictions = common.graphs, common.patched, common.restrictions

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
"""Compile options for comparing: the CPU plugin computes in bf16 on processors that have it, whatever the file says."""


def write(exported: Any, folder: Path, layout: str) -> list[Component]:
    """The engine's own files and manifest; its names are the ones that clients look for."""
    exported.save_pretrained(folder)
    return [
        Component(
            name=name,
            file=f"openvino_{name}.xml",
            inputs=_ports(part.program.inputs),
            outputs=_ports(part.program.outputs),
        )
        for name, part in exported.components.items()
    ]


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


class OpenvinoRunner:
    """The CPU plugin; `exact` compiles for float32, otherwise with the plugin's defaults for this processor."""

    max_batch = None

    def __init__(self, folder: Path, outcome: ExportOutcome, exact: bool = True):
        import openvino

        self.padded, self.one_token = outcome.layout != "recurrent", outcome.layout == "recurrent"

        self.runtime = f"openvino {openvino.__version__.split('-')[0]}"
        self.multi_token = outcome.layout == "decoder"
        core, config = openvino.Core(), EXACT if exact else {}
        self._requests = {
            part.name: core.compile_model(core.read_model(folder / part.file), "CPU", config).create_infer_request()
            for part in outcome.components
        }
        self.precision = str(
            next(iter(self._requests.values())).get_compiled_model().get_property("INFERENCE_PRECISION_HINT")
        )
        self._batch, self._past = 1, None

    def forward(self, inputs: Arrays) -> Arrays:
        return self._run("model", inputs)

    def start(self, batch: int) -> None:
        self._batch, self._past = batch, None
        for request in self._requests.values():
            request.reset_state()

    def step(self, input_ids: np.ndarray, attention_mask: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
        tokens = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "position_ids": position_ids,
            "beam_idx": np.arange(self._batch, dtype=np.int32),
        }
        return self._run("model", tokens)["logits"]

    def _run(self, name: str, inputs: Arrays) -> Arrays:
        request = self._requests[name]
        compiled = request.get_compiled_model()
        names = [port.get_any_name() for port in compiled.inputs]
        answer = request.infer({key: inputs[key] for key in names if key in inputs})
        return {port.get_any_name(): np.array(answer[port]) for port in compiled.outputs}


def open_default_runner(folder: Path, outcome: ExportOutcome) -> OpenvinoRunner:
    """As a user gets it who asks for nothing: bf16 where the processor has it."""
    return OpenvinoRunner(folder, outcome, exact=False)
