"""What a job tries by itself, and when it gives up."""

from __future__ import annotations

import made_up
import msgspec
import pytest

from hub_exporter.attempts import next_job
from hub_exporter.records import CaseResult, EngineOptions, Job, StageError, Verification

GUARD = StageError(kind="ExportError", message="GuardOnDataDependentSymNode: could not guard on u0 < 4")
OTHER = StageError(kind="ExportError", message="ImportError: No module named `timm`")


def job(task: str = "object-detection", **engine: object) -> Job:
    model = msgspec.structs.replace(made_up.encoder(), task=task)
    made = made_up.job("onnx", model)
    return msgspec.structs.replace(made, engine=EngineOptions(**engine))  # type: ignore[arg-type]


def disagreement(*axes: str) -> Verification:
    return Verification(level="loaded", reason="differs", passed=False, runtime="onnxruntime 1", immovable=axes)


def test_a_trace_that_fails_on_a_shape_climbs_the_whole_ladder_and_ends() -> None:
    tried, step = [], job()
    while (following := next_job(step, GUARD, None)) is not None:
        step, words = following
        tried.append(words)

    assert tried == ["again, with assertions left to the runtime", "again, with fixed height and width"]
    assert step.engine.prefer_deferred_runtime_asserts_over_guards is True
    assert step.engine.static_axes == ("height", "width")


def test_a_trace_that_takes_too_long_is_tried_with_fixed_pictures() -> None:
    late = StageError(kind="HubExporterError", message="The export stage took longer than 90 minutes and was stopped")
    following = next_job(job(), late, None)
    assert following is not None
    fixed, _ = following

    assert fixed.engine.static_axes == ("height", "width")
    assert next_job(fixed, late, None) is None


def test_files_that_disagree_at_other_shapes_only_get_these_axes_fixed_once() -> None:
    following = next_job(job(), None, disagreement("batch_size"))
    assert following is not None
    fixed, words = following

    assert (fixed.engine.static_axes, words) == (("batch_size",), "again, with fixed batch_size")
    assert next_job(fixed, None, disagreement("batch_size")) is None


def test_files_that_can_be_run_at_no_shape_get_fixed_pictures() -> None:
    """ExecuTorch plans for the largest picture, and its program may then refuse the captured one too."""
    refused = tuple(CaseResult(case=name, shape=(2, 3), error="refused", passed=False) for name in ("capture", "other"))
    wrong = (refused[0], CaseResult(case="other", shape=(2, 3), passed=False))
    following = next_job(job(), None, msgspec.structs.replace(disagreement(), cases=refused))
    assert following is not None

    assert following[0].engine.static_axes == ("height", "width")
    assert next_job(job(), None, msgspec.structs.replace(disagreement(), cases=wrong)) is None


def test_what_is_wrong_in_the_captured_shape_too_is_not_tried_again() -> None:
    assert next_job(job(), None, disagreement()) is None


def test_what_passed_is_not_tried_again() -> None:
    passed = Verification(level="parity", reason="agrees", passed=True, runtime="onnxruntime 1")

    assert next_job(job(), None, passed) is None


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (job(), OTHER),  # no shape has to do with it
        (job("text-generation"), GUARD),  # a decoder with a fixed axis cannot be run in a loop
        (job(dynamic=False), GUARD),  # everything is fixed already
        (job("time-series-forecasting", prefer_deferred_runtime_asserts_over_guards=False), GUARD),
    ],
)
def test_where_nothing_helps_the_first_error_stands(asked: Job, error: StageError) -> None:
    assert next_job(asked, error, None) is None
