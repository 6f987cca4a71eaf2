"""One job -> files: load, capture, trace with the engine, write in the layout that clients load.

The tracing is `transformers.exporters`; this module only chooses what goes in and names what comes out.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from transformers.exporters import AutoExportConfig, AutoHfExporter
from transformers.exporters.base import ExportedComponent, ExportedModel

from hub_exporter import backends, two_encoders, wording
from hub_exporter.capture import Inputs, sizes_of
from hub_exporter.catalogue import axes_of
from hub_exporter.errors import HubExporterError, UsageError
from hub_exporter.graphs import Graph, Request, is_free, max_length
from hub_exporter.inputs import both_ways, fixed_words, prepare
from hub_exporter.loading import DTYPES, load
from hub_exporter.multimodal import placeholders
from hub_exporter.records import CaptureSpec, Component, EngineOptions, ExportOutcome, Job
from hub_exporter.tasks import TASKS
from hub_exporter.voices import traceable

OWN_OPTIONS = {
    "attention",
    "multi_token_decode",
    "separate_encoders",
    "generation",
    "dynamic_shapes",
    "components",
    "dynamic",
    "static_axes",
}
"""Options that decide what is traced; all others go to the engine under their own names."""

RECORDED = (
    "torch", "transformers", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "openvino", "openvino-tokenizers",
    "executorch", "torchao", "tokenizers", "numpy", "pillow",
)  # fmt: skip
"""Packages whose versions the index and the card name."""


class ExportError(HubExporterError):
    """The engine could not export a component. The message ends with the engine's own last line."""


def export(job: Job, spec: CaptureSpec, rows: Path, folder: Path, say: Callable[[str], None]) -> ExportOutcome:
    """Export `job` into `folder` (its backend's folder in the target). `rows` has the files that rows name; `say` is
    told each step as it begins."""
    backend, task = backends.get(job.backend), TASKS[job.model.task]
    clock = _Clock(say)
    clock.step("load")
    loaded = load(job.model, job.variant, job.engine.attention)
    clock.step("capture")
    captured, _ = prepare(loaded, job.model, spec, rows, job.engine.static_axes)
    request = Request(
        loaded, task.layout, captured.inputs, job.engine, job.model.context_length, captured.free, captured.limits
    )
    layout, graphs = _explained("capture", lambda: backend.graphs(request))
    components = {}
    for name, graph in graphs.items():
        clock.step(f"trace {name}" if len(graphs) > 1 else "trace")
        components[name] = _traced(backend, request, name, graph)
    exported = ExportedModel(components, backend.FORMAT, config=None)
    clock.step("save")
    folder.mkdir(parents=True, exist_ok=True)
    written = backend.write(exported, folder, layout)
    if job.variant not in DTYPES:
        clock.step(f"convert to {job.variant}")
        written = backend.convert(written, folder, job.variant)
    missing = backend.accompany(loaded, folder)
    _copy_configs(Path(job.model.folder), folder)
    clock.stop()
    fixed = _fixed(request, layout, written)
    return ExportOutcome(
        components=tuple(written),
        layout=layout,
        constants=two_encoders.constants(loaded.model) if layout == "two-encoders" else {},
        cache_length=max_length(request) if layout == "static-cache" else None,
        restrictions=(
            *fixed_words(captured, job.engine.static_axes),
            *_stated(request, fixed),
            *backend.restrictions(request, written),
            *_least(written, task.inputs),
            *_tiles(layout, captured.inputs),
            *(["a prompt is read in one piece"] if task.layout == "multimodal" and both_ways(captured) else []),
        ),
        placeholders=placeholders(loaded.model.config) if layout == "multimodal" else {},
        fixed=fixed,
        notes=(*loaded.notes, *missing),
        versions=installed(),
        seconds=clock.seconds,
        options=_recorded_options(job.engine),
    )


def _fixed(request: Request, layout: str, components: list[Component]) -> dict[str, int]:
    """Axes that do not vary though the processor would let them: those that were asked to stay, and those that the
    trace made numbers of without a word. ExecuTorch's ports have numbers for upper bounds and tell nothing."""
    sizes = sizes_of(request.captured)
    if request.options.dynamic is False:
        return sizes
    ports = [port for part in components for port in part.inputs if part.planned_memory is None]
    names = [port.name for port in ports]
    found = {
        axis
        for port in ports
        for axis, size in zip(axes_of(port.name, len(port.shape), names), port.shape, strict=False)
        if (request.layout == "encoder" or layout == "uncached") and isinstance(size, int) and is_free(request, axis)
    }
    return {axis: size for axis, size in sizes.items() if axis in found or axis in request.options.static_axes}


def _stated(request: Request, fixed: dict[str, int]) -> list[str]:
    """Fixed axes in words; where all are, the backend says so."""
    each = fixed if request.options.dynamic is not False else {}
    return [f"{wording.axis(axis)} fixed to {size}" for axis, size in each.items()]


def _least(components: list[Component], kind: str) -> list[str]:
    least = max(part.min_length for part in components)
    what = "samples of sound" if kind == "sound" else "tokens of text"
    return [f"at least {least} {what}"] if least > 1 else []


def _tiles(layout: str, inputs: Inputs) -> list[str]:
    """Pictures in tiles are one axis of one graph, which no trace leaves free; encoders get the tiles in a row."""
    pixels = inputs.get("pixel_values")
    if layout != "uncached" or pixels is None or pixels.ndim < 5:
        return []
    return [f"{pixels.shape[1]} tiles of each text's pictures, of zeros where there are fewer"]


def _copy_configs(source: Path, folder: Path) -> None:
    """The source's own configuration beside the graphs, so that a loader that is given the folder finds it. A variant
    that was converted has no manifest for such a loader: several of them lie in one folder."""
    if not (folder / "export.json").is_file():
        return
    for name in ("config.json", "generation_config.json"):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _traced(backend: Any, request: Request, name: str, graph: Graph) -> ExportedComponent:
    config = engine_config(backend, component_options(request.options, name), graph)

    def run() -> ExportedComponent:
        exporter = AutoHfExporter.from_config(config)
        with backend.patched(request), traceable(request.loaded.model):
            return exporter.export(graph.module, dict(graph.inputs), config).components["model"]

    return _explained(name, run)


def engine_config(backend: Any, options: EngineOptions, graph: Graph) -> Any:
    """The engine's configuration for one graph. Options that the format does not have are refused by name."""
    given = {key: value for key, value in msgspec.structs.asdict(options).items() if key not in OWN_OPTIONS}
    chosen = {key: value for key, value in given.items() if value is not None}
    defaults = {"strict": graph.strict, **backend.DEFAULTS}
    settings = {"export_format": backend.FORMAT, "dynamic": graph.shapes is not None, "dynamic_shapes": graph.shapes}
    accepted = {key: value for key, value in chosen.items() if key in _fields(backend.FORMAT)}
    try:
        return AutoExportConfig.from_dict({**settings, **defaults, **accepted})
    except (TypeError, ValueError) as error:
        raise UsageError(f"The engine refuses these options for {backend.FORMAT}: {error}") from error


def _fields(export_format: str) -> set[str]:
    return set(vars(AutoExportConfig.from_dict({"export_format": export_format})))


def component_options(options: EngineOptions, name: str) -> EngineOptions:
    """`options` with what the recipe says for this component laid over them."""
    own = options.components.get(name)
    if not own:
        return options
    merged = msgspec.to_builtins(options) | {"components": {}} | own
    return msgspec.convert(merged, EngineOptions)


def _explained(component: str, run: Callable[[], Any]) -> Any:
    """Run an engine call; whatever it raises becomes an ExportError that ends with the engine's last line."""
    try:
        return run()
    except HubExporterError:
        raise
    except Exception as error:  # the engine and the toolchains below it raise everything there is
        raise ExportError(
            f"The engine cannot export `{component}`: {last_line(error)}", hint=hint_for(error)
        ) from error


_ADVICE = ("For C++ stack trace", "For more information, run with TORCH_LOGS", "The error above occurred when calling")
"""Beginnings of lines with which torch advises its own developers: the first line is then what happened."""


def last_line(error: BaseException) -> str:
    """`Type: last line` of the innermost error of the chain that has a text; the first of one that ends in advice."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    for link in reversed(chain):
        lines = [line.strip() for line in str(link).splitlines() if line.strip()]
        if lines:
            advised = any(line.startswith(_ADVICE) for line in lines)
            said = lines[0].partition(" (unhinted")[0] if advised else lines[-1]
            return f"{type(link).__name__}: {said}"[:500]
    return f"{type(chain[-1]).__name__} without a text"


HINTS = (
    (
        "torch._dynamo.exc.Unsupported",
        "torch cannot trace this architecture strictly; docs/coverage.md says what is known of it",
    ),
    (
        "GuardOnDataDependentSymNode",
        "The model's forward depends on values of its input; see the table in docs/coverage.md",
    ),
    (
        "Constraints violated",
        "An axis that was asked to be free is fixed by the model; drop its bounds in `engine.dynamic_shapes`",
    ),
    ("No module named", "Install the package that is named, in the environment of this backend"),
    ("is required", "Install the package that is named, in the environment of this backend"),
    ("CUDA is not available", "Run this job on a machine with an NVIDIA GPU and a CUDA build of torch"),
    (
        "MLX delegate generated files not found",
        "Only the macOS wheels of ExecuTorch have the MLX delegate: run this job on a Mac with Apple Silicon",
    ),
)


def hint_for(error: BaseException) -> str:
    """What to do about an engine failure."""
    text = f"{type(error).__module__}.{type(error).__name__} {error} {error.__cause__!r}"
    for sign, hint in HINTS:
        if sign in text:
            return hint
    return "The whole traceback is in the job's log; docs/coverage.md lists what the engine is known to fail on"


def installed() -> dict[str, str]:
    """Versions of the packages that decide what an export looks like."""
    found = {}
    for name in RECORDED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _recorded_options(options: EngineOptions) -> dict[str, Any]:
    given = msgspec.to_builtins(options)
    return {
        key: value
        for key, value in given.items()
        if value not in (None, {}, msgspec.to_builtins(type(options)()).get(key))
    }


class _Clock:
    """Wall time of each step, told as it begins."""

    def __init__(self, say: Callable[[str], None]):
        self.seconds: dict[str, float] = {}
        self._say, self._step, self._began = say, "", 0.0

    def step(self, name: str) -> None:
        self.stop()
        self._step, self._began = name, time.monotonic()
        self._say(name)

    def stop(self) -> None:
        if self._step:
            self.seconds[self._step] = round(time.monotonic() - self._began, 3)
