"""A job of several attempts: what is tried again, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import made_up
import msgspec
import pytest

from hub_exporter import run
from hub_exporter.records import Event, JobResult, StageAnswer, StageError, StageRequest, Toolchain, Verification

GUARD = StageError(kind="ExportError", message="Constraints violated (height)")
REFUSED = Verification(level="loaded", reason="no", passed=False, runtime="onnxruntime 1", immovable=("batch_size",))


def ended(answer: StageAnswer) -> run.Ended:
    return run.Ended(answer, 0)


def job_of(answers: dict[str, list[StageAnswer]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a job whose stages give these answers; what the stages were asked, and what was told."""
    asked: list[StageRequest] = []
    told: list[Event] = []

    def answer(request: StageRequest, *_: object, **__: object) -> run.Ended:
        asked.append(request)
        return ended(answers[request.stage].pop(0))

    monkeypatch.setattr(run, "_run", answer)
    model = msgspec.structs.replace(made_up.encoder(), task="object-detection")
    job = made_up.job("onnx", model)
    place = run.Place(run.CURRENT, Toolchain(pins="", isolated=False, tested={}, locked={}, ran={}))
    result = run._run_job(job, place, made_up.capture(), tmp_path, told.append, verify=True)
    return result, asked, [event.text for event in told if event.kind == "step"]


def test_a_failed_trace_is_tried_again_and_what_helped_is_recorded(tmp_path, monkeypatch) -> None:
    passed = StageAnswer(verification=made_up.verification("encoder"))
    exports = [StageAnswer(error=GUARD), StageAnswer(error=GUARD), StageAnswer(outcome=made_up.outcome("onnx"))]

    result, asked, steps = job_of({"export": exports, "verify": [passed]}, tmp_path, monkeypatch)

    assert isinstance(result, JobResult)
    assert result.status == "passed"
    assert [request.job.engine.static_axes for request in asked if request.job] == [(), (), *[("height", "width")] * 2]
    assert steps == ["again, with assertions left to the runtime", "again, with fixed height and width"]


def test_files_that_refuse_other_batches_are_made_again_and_the_last_verdict_stands(tmp_path, monkeypatch) -> None:
    exports = [StageAnswer(outcome=made_up.outcome("onnx"))] * 2
    checks = [StageAnswer(verification=REFUSED)] * 2

    result, asked, steps = job_of({"export": [*exports], "verify": [*checks]}, tmp_path, monkeypatch)

    assert (result.status, result.reason) == ("mismatch", "no")
    assert len(asked) == 4, "two attempts of two stages, and no third"
    assert steps == ["again, with fixed batch_size"]
