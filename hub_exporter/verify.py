"""Written files beside the eager model: every graph, other shapes, both paddings, and a decode loop.

Runs in a process of its own that loads nothing but the files and the reference arrays. There is no "succeeded with a
warning": what disagrees is a mismatch, what could not be run says so in its level.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hub_exporter import backends
from hub_exporter.backends import Arrays, Runner
from hub_exporter.capture import positions
from hub_exporter.compare import TOLERANCE, TOLERANCES, figure, passes
from hub_exporter.decoding import Loop, fed
from hub_exporter.mixed_prompt import alone
from hub_exporter.records import (
    CaseResult,
    DecodeResult,
    ExportOutcome,
    Figure,
    Level,
    Reference,
    ReferenceCase,
    ReferenceDecode,
    Verification,
    from_json,
)
from hub_exporter.wording import axis

Say = Callable[[str], None]


def read_reference(folder: Path) -> tuple[Reference, Mapping[str, np.ndarray]]:
    """What `reference.make` wrote. The arrays are read one at a time, as they are asked for."""
    return from_json((folder / "reference.json").read_bytes(), Reference), np.load(folder / "reference.npz")


def verify(
    backend: str,
    outcome: ExportOutcome,
    folder: Path,
    reference: Reference,
    arrays: Mapping[str, np.ndarray],
    say: Say = lambda step: None,
    variant: str = "fp32",
) -> Verification:
    """Compare the files of one job in `folder` with the reference, within the bounds of its variant. Never raises for
    what the files do wrong."""
    module = backends.get(backend)
    missing = module.missing_runtime()
    if missing:
        return Verification(level="exported", reason=missing, passed=True, runtime="")
    say("load the files")
    try:
        runner = module.open_runner(folder, outcome)
    except Exception as error:  # noqa: BLE001 - a runtime refuses a broken file in its own way
        return _refused(backend, f"the runtime cannot load the files: {_line(error)}")
    unrunnable = _unrunnable(outcome) or _incomparable(variant)
    if unrunnable:
        return Verification(level="loaded", reason=unrunnable, passed=True, runtime=runner.runtime)
    bounds = TOLERANCES[variant]
    cases, decodes = _measure(runner, reference, arrays, outcome, say, bounds)
    problem = _problem(cases, decodes, bounds)
    if problem:
        found = _verdict(runner, problem, "loaded", False, cases, decodes, (), bounds)
        return msgspec.structs.replace(found, immovable=_immovable(reference, cases))
    if reference.decodes and not decodes:
        reason = f"{_shown(reference, cases, decodes, bounds)}; a decode loop cannot be run with such graphs"
        return _verdict(runner, reason, "loaded", True, cases, decodes, (), bounds)
    notes = _default_precision(module, folder, outcome, reference, arrays, say)
    level: Level = "parity" if bounds is TOLERANCE else "close"
    found = _verdict(runner, _shown(reference, cases, decodes, bounds), level, True, cases, decodes, notes, bounds)
    say("time a few runs")
    return msgspec.structs.replace(found, latency=_latency(runner, reference, arrays, outcome))


TIMED = 5
"""Runs that the median is of."""


def _latency(runner: Runner, reference: Reference, arrays: Mapping[str, np.ndarray], outcome: ExportOutcome) -> float:
    """Median seconds of the first input, after it was run before."""
    case = next(_fitting(reference.cases, outcome))
    inputs = {name: arrays[f"{case.name}/in/{name}"] for name in case.inputs}
    times = []
    for _ in range(TIMED):
        began = time.perf_counter()
        _forward(runner, inputs, outcome.constants)
        times.append(time.perf_counter() - began)
    return round(statistics.median(times), 6)


RUNNABLE = (
    "encoder", "two-encoders", "encoder-decoder", "multimodal", "uncached", "static-decoder", "recurrent",
)  # fmt: skip
"""Layouts that are driven here whatever the options."""


def _unrunnable(outcome: ExportOutcome) -> str | None:
    """Why these graphs cannot be driven here, so that loading them is all that can be shown."""
    given = {outcome.options.get(name) for name in ("alloc_graph_input", "alloc_graph_output")}
    if outcome.layout == "static-cache" and False in given:
        return "the memory of its cache is the caller's, which ExecuTorch's Python runtime cannot give it"
    if outcome.layout in RUNNABLE:
        return None
    if outcome.options.get("dynamic") is False:
        return "a decoder of fixed shapes takes one length of past text only: there is no loop to run it in"
    if outcome.layout == "prefill-decode" and "beam_idx" in {port.name for port in outcome.components[-1].inputs}:
        return (
            "the decode graph keeps its cache inside and cannot be given the prefill's; `stateful: false` could be run"
        )
    inside = "beam_idx" in {port.name for port in outcome.components[0].inputs}
    if outcome.options.get("generation", {}).get("cache") == "static" and (outcome.layout != "static-cache" or inside):
        return "graphs of this kind that take a static cache were loaded, but are not run in a loop here"
    return None


def _incomparable(variant: str) -> str | None:
    """Why agreement is not judged."""
    return (
        None if variant in TOLERANCES else f"how far `{variant}` may differ from float32 is not decided: not compared"
    )


def _measure(
    runner: Runner,
    reference: Reference,
    arrays: Mapping[str, np.ndarray],
    outcome: ExportOutcome,
    say: Say,
    bounds: Mapping[str, float] = TOLERANCE,
) -> tuple[list[CaseResult], list[DecodeResult]]:
    cases = []
    for case in _fitting(reference.cases, outcome):
        if not runner.padded and reference.layout == "encoder" and _begins_with_padding(case, arrays):
            continue  # its tokens stand at other places without it, where places count from the beginning
        say(f"verify {case.name}")
        cases.append(run_case(runner, reference, case, arrays, outcome, bounds))
    decodes = []
    for decode in reference.decodes if outcome.options.get("dynamic") is not False else ():
        if decode.batch > (runner.max_batch or decode.batch) or (decode.batch > 1 and not runner.padded):
            continue
        if sum(decode.chunks) + arrays[f"{decode.name}/tokens"].shape[1] > _max_length(outcome):
            continue
        if decode.chunks[0] < _min_length(outcome) or (len(decode.chunks) > 1 and not runner.multi_token):
            continue
        say(f"verify decoding {decode.name}")
        decodes.append(run_decode(runner, reference, decode, arrays, bounds))
    return cases, decodes


def _begins_with_padding(case: ReferenceCase, arrays: Mapping[str, np.ndarray]) -> bool:
    return "attention_mask" in case.inputs and not arrays[f"{case.name}/in/attention_mask"][:, 0].all()


def _min_length(outcome: ExportOutcome) -> int:
    return max(part.min_length for part in outcome.components)


def _max_length(outcome: ExportOutcome) -> float:
    """Tokens, text and answer together, that the caller's cache of fixed size holds."""
    return outcome.cache_length or float("inf")


def _fitting(cases: tuple[ReferenceCase, ...], outcome: ExportOutcome) -> Iterator[ReferenceCase]:
    """All cases that are no shorter and no longer than the graph says it takes, and that have the sizes that it states
    as fixed."""
    least, most = _min_length(outcome), _max_length(outcome)
    for case in cases:
        if case.length is not None and not least <= case.length <= most:
            continue
        if all(case.sizes.get(axis) == size for axis, size in outcome.fixed.items()):
            yield case


# ── One forward ──

ARGMAX = {"classes": -1, "tokens": -1, "pixels": 1}
"""Metric -> axis of `logits` along which the largest value is the model's choice."""


def run_case(
    runner: Runner,
    reference: Reference,
    case: ReferenceCase,
    arrays: Mapping[str, np.ndarray],
    outcome: ExportOutcome,
    bounds: Mapping[str, float] = TOLERANCE,
) -> CaseResult:
    """Run one held-out input, row by row where the graph takes one row, and compare every output but those that were
    left out on purpose."""
    inputs = {name: arrays[f"{case.name}/in/{name}"] for name in case.inputs}
    left_out = {name for part in outcome.components for name in part.left_out}
    wanted = (*case.outputs, *(case.features if outcome.layout == "two-encoders" else ()))
    expected = {name: arrays[f"{case.name}/out/{name}"] for name in wanted if name not in left_out}
    shape = tuple(case.sizes.values())
    try:
        got = _forward(runner, inputs, outcome.constants)
    except Exception as error:  # noqa: BLE001 - a runtime refuses a shape in its own way: that is the finding
        return CaseResult(case=case.name, shape=shape, error=_line(error), passed=False)
    missing = sorted(set(expected) - set(got))
    if missing:
        return CaseResult(case=case.name, shape=shape, error=f"output `{missing[0]}` is missing", passed=False)
    along = ARGMAX.get(reference.metric)
    figures = tuple(
        figure(name, got[name], value, inputs.get("attention_mask"), along if name == "logits" else None)
        for name, value in expected.items()
    )
    return CaseResult(
        case=case.name, shape=shape, figures=figures, passed=all(passes(item, bounds) for item in figures)
    )


def _forward(runner: Runner, inputs: Arrays, constants: Mapping[str, float]) -> Arrays:
    if runner.layout == "two-encoders":
        return _forward_apart(runner, inputs, constants)
    return _forward_rows(runner, inputs)


def _forward_rows(runner: Runner, inputs: Arrays) -> Arrays:
    batch = len(inputs["input_ids"]) if runner.layout == "multimodal" else max(map(len, inputs.values()))
    if runner.padded and batch <= (runner.max_batch or batch):
        return _forward_batch(runner, inputs)
    if runner.layout == "encoder" and "pixel_values" in inputs and "input_ids" in inputs:
        return _forward_pairs(runner, inputs)
    answers = [_forward_row(runner, row) for row in alone(inputs)]
    return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}


def _forward_pairs(runner: Runner, inputs: Arrays) -> Arrays:
    """Every picture with every text, where the graph takes one of each."""
    pictures, texts = (range(len(inputs[name])) for name in ("pixel_values", "input_ids"))
    answers = [
        [runner.forward({k: v[[p if k == "pixel_values" else t]] for k, v in inputs.items()}) for t in texts]
        for p in pictures
    ]
    scores = np.array([[answer["logits_per_image"][0, 0] for answer in line] for line in answers])
    sides = {"image_embeds": [line[0] for line in answers], "text_embeds": answers[0]}
    return {
        "logits_per_image": scores,
        "logits_per_text": scores.T,
        **{name: np.concatenate([answer[name] for answer in side]) for name, side in sides.items()},
    }


def _forward_apart(runner: Runner, inputs: Arrays, constants: Mapping[str, float]) -> Arrays:
    """What each encoder gives of its own inputs, and what the model makes of both."""
    pictures = {"pixel_values": inputs["pixel_values"]}
    texts = {name: value for name, value in inputs.items() if name not in pictures}
    (image,), (text,) = (_forward_rows(runner, side).values() for side in (pictures, texts))
    image_embeds, text_embeds = (side / np.linalg.norm(side, axis=-1, keepdims=True) for side in (image, text))
    scores = constants["scale"] * image_embeds @ text_embeds.T + constants.get("bias", 0.0)
    return {
        "logits_per_image": scores,
        "logits_per_text": scores.T,
        "image_embeds": image_embeds,
        "text_embeds": text_embeds,
        "image_features": image,
        "text_features": text,
    }


def _forward_row(runner: Runner, row: Arrays) -> Arrays:
    if runner.padded:
        return _forward_batch(runner, row)
    real = row["attention_mask"][0].astype(bool)
    answer = _forward_batch(runner, {name: value[:, real] for name, value in row.items()})
    return {name: _spread(value, real) for name, value in answer.items()}


def _spread(value: np.ndarray, real: np.ndarray) -> np.ndarray:
    """What stands at the real tokens, at their places among the padding; what is of the whole row as it is."""
    if value.shape[1] != real.sum():
        return value
    spread = np.zeros((1, real.size, *value.shape[2:]), value.dtype)
    spread[:, real] = value
    return spread


def _forward_batch(runner: Runner, inputs: Arrays) -> Arrays:
    if runner.layout in ("encoder", "two-encoders", "uncached"):
        return runner.forward(inputs)
    text = "decoder_input_ids" if runner.layout == "encoder-decoder" else "input_ids"
    ids = inputs[text]
    runner.start(ids.shape[0])
    if runner.layout in ("encoder-decoder", "multimodal"):
        runner.encode(inputs)
    mask = np.ones_like(ids) if runner.layout == "encoder-decoder" else inputs["attention_mask"]
    return {"logits": fed(runner, ids, mask, positions(mask))}


# ── A decode loop ──


def run_decode(
    runner: Runner,
    reference: Reference,
    decode: ReferenceDecode,
    arrays: Mapping[str, np.ndarray],
    bounds: Mapping[str, float] = TOLERANCE,
) -> DecodeResult:
    """A greedy loop beside `generate`. It is fed the token that `generate` chose, which is its own as long as they
    agree, so that one difference does not hide what comes after it."""
    tokens, logits = arrays[f"{decode.name}/tokens"], arrays[f"{decode.name}/logits"]
    agreed, worst, first = 0, 0.0, None
    try:
        for step, answer in enumerate(_answers(runner, reference, decode, arrays)):
            worst = max(worst, float(np.abs(answer - logits[step]).max()))
            chosen = _without(answer, reference.eos_tokens).argmax(axis=-1)
            same = chosen == tokens[:, step]
            agreed += int(same.sum())
            if first is None and not same.all():
                row = int((~same).argmax())
                first = f"row {row}, token {step + 1}: {int(chosen[row])} instead of {int(tokens[row, step])}"
    except Exception as error:  # noqa: BLE001 - as in `run_case`
        return _broken_decode(decode, tokens, agreed, _line(error))
    close = np.isfinite(worst) and worst <= bounds.get("max_rel", np.inf) * float(np.abs(logits).max())
    return DecodeResult(
        case=decode.name,
        prompts=decode.batch,
        tokens=tokens.size,
        agreed=agreed,
        first_difference=first,
        max_abs=worst if np.isfinite(worst) else None,
        passed=bool(close and agreed >= bounds.get("agreement", 1.0) * tokens.size),
    )


def _answers(
    runner: Runner, reference: Reference, decode: ReferenceDecode, arrays: Mapping[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """Logits (batch, vocabulary) of every step."""
    given, tokens = (
        {name: arrays[f"{decode.name}/in/{name}"] for name in decode.inputs},
        arrays[f"{decode.name}/tokens"],
    )
    start = reference.start_token if reference.layout == "seq2seq" else None
    loop = Loop(runner, start, reference.model_type)
    yield loop.begin(given, decode.chunks if reference.layout != "seq2seq" else ())
    for step in range(tokens.shape[1] - 1):
        yield loop.go_on(tokens[:, step : step + 1])


def _without(logits: np.ndarray, tokens: tuple[int, ...]) -> np.ndarray:
    suppressed = logits.copy()
    suppressed[:, list(tokens)] = -np.inf
    return suppressed


def _broken_decode(decode: ReferenceDecode, tokens: np.ndarray, agreed: int, error: str) -> DecodeResult:
    return DecodeResult(
        case=decode.name,
        prompts=decode.batch,
        tokens=tokens.size,
        agreed=agreed,
        max_abs=None,
        error=error,
        passed=False,
    )


# ── The verdict ──


def _problem(cases: list[CaseResult], decodes: list[DecodeResult], bounds: Mapping[str, float]) -> str | None:
    """The first thing that disagrees, in one sentence."""
    for case in cases:
        if not case.passed:
            return f"`{case.case}` ({'×'.join(map(str, case.shape))}): {case.error or _worst(case.figures, bounds)}"
    for decode in decodes:
        if not decode.passed:
            found = decode.error or decode.first_difference or f"logits differ by {decode.max_abs}"
            return f"decoding `{decode.case}`: {decode.agreed} of {decode.tokens} tokens agree; {found}"
    if not cases:
        return "no held-out input fits these graphs, so that nothing could be compared"
    return None


def _immovable(reference: Reference, cases: list[CaseResult]) -> tuple[str, ...]:
    """The axes that explain what failed: every failed case moved one of them and no passed case did, as far as that can
    be. As few as possible, the batch last, and a picture's height and width together. None where a case of the captured
    shape failed too."""
    sizes = {case.name: case.sizes for case in reference.cases}
    captured = sizes[reference.cases[0].name]

    def moved(case: CaseResult) -> set[str]:
        return {axis for axis, size in captured.items() if sizes[case.case][axis] != size}

    failed = [moved(case) for case in cases if not case.passed]
    passed = [moved(case) for case in cases if case.passed]
    if not passed or not all(failed):
        return ()
    suspects = [axes.difference(*passed) or axes for axes in failed]
    blamed: set[str] = set()
    while suspects:
        worst = max(captured, key=lambda axis: (sum(axis in axes for axes in suspects), "batch" not in axis))
        blamed |= {"height", "width"} & captured.keys() if worst in ("height", "width") else {worst}
        suspects = [axes for axes in suspects if not axes & blamed]
    return tuple(axis for axis in captured if axis in blamed)


def _worst(figures: tuple[Figure, ...], bounds: Mapping[str, float]) -> str:
    bad = next(item for item in figures if not passes(item, bounds))
    if bad.problem:
        return f"output `{bad.output}`: {bad.problem}"
    if "max_rel" not in bounds and bad.agreement is not None:
        return (
            f"output `{bad.output}`: {bad.agreement:.2f} of the choices are the same (at least {bounds['agreement']})"
        )
    if "max_rel" not in bounds:
        return f"output `{bad.output}`: cosine {bad.cosine:.4f} (at least {bounds['cosine']})"
    return (
        f"output `{bad.output}` differs by {bad.max_abs:.2g}, {bad.max_rel:.2g} of its largest value "
        f"(allowed {bounds['max_rel']:.0e}), cosine {bad.cosine:.6f}"
    )


def _shown(
    reference: Reference, cases: list[CaseResult], decodes: list[DecodeResult], bounds: Mapping[str, float]
) -> str:
    sizes = ", ".join("×".join(map(str, shape)) for shape in sorted({case.shape for case in cases}))
    verb = "agrees" if "max_rel" in bounds else "stays within its bounds"
    text = f"{verb} on {len(cases)} inputs of {' × '.join(map(axis, reference.cases[0].sizes))} {sizes}"
    if decodes:
        agreed, total = sum(decode.agreed for decode in decodes), sum(decode.tokens for decode in decodes)
        text += f", and on {agreed} of {total} greedy tokens in {len(decodes)} decode loops"
    return text


def _verdict(
    runner: Runner,
    reason: str,
    level: Level,
    passed: bool,
    cases: list[CaseResult],
    decodes: list[DecodeResult],
    notes: tuple[str, ...],
    bounds: Mapping[str, float],
) -> Verification:
    return Verification(
        level=level,
        reason=reason,
        passed=passed,
        runtime=runner.runtime,
        tolerance=dict(bounds),
        cases=tuple(cases),
        decodes=tuple(decodes),
        notes=notes,
    )


def _refused(backend: str, reason: str) -> Verification:
    return Verification(level="exported", reason=reason, passed=False, runtime=backend)


def _default_precision(
    module: Any, folder: Path, outcome: ExportOutcome, reference: Reference, arrays: Mapping[str, np.ndarray], say: Say
) -> tuple[str, ...]:
    """What the runtime's own default costs, where it is not the precision of the file."""
    opener = getattr(module, "open_default_runner", None)
    if opener is None:
        return ()
    runner = opener(folder, outcome)
    if runner.precision == "f32":
        return ("on this processor the default precision is float32, as verified",)
    cases, decodes = _measure(runner, reference, arrays, outcome, lambda step: say(f"{step} (default precision)"))
    worst = max((item.max_abs or 0.0) for case in cases for item in case.figures)
    note = f"by default this processor computes in {runner.precision}: outputs differ by up to {worst:.2g}"
    if decodes:
        agreed, total = sum(item.agreed for item in decodes), sum(item.tokens for item in decodes)
        note += f", {agreed} of {total} greedy tokens are the same"
    return (note,)


def _line(error: Exception) -> str:
    """The first line that says something: OpenVINO says first where in its own code it was, line by line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if not line.endswith(":")), lines[0] if lines else "without a text")
    return f"{type(error).__name__}: {said}"[:400]
