"""A stage process: `python -m hub_exporter.stage REQUEST ANSWER EVENTS`.

Model code and native toolchains run only here: in a process that holds no token, that the run outlives when it
crashes, and whose output goes to a log. REQUEST and ANSWER are files of records, EVENTS is a file descriptor on which
each step is told, a line each.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from hub_exporter.errors import ERRORS_BY_NAME, HubExporterError
from hub_exporter.records import StageAnswer, StageError, StageRequest, from_json, to_json

Say = Callable[[str], None]


def main(arguments: list[str]) -> None:
    """Answer one request."""
    request_file, answer_file, events = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    request = from_json(request_file.read_bytes(), StageRequest)
    stream = os.fdopen(events, "w", encoding="utf-8", buffering=1)  # open to the end: its closing is the end
    answer = answer_for(request, lambda step: print(step, file=stream))
    answer_file.write_bytes(to_json(answer))


def answer_for(request: StageRequest, say: Say) -> StageAnswer:
    """Run the stage. What it raises becomes part of the answer; the traceback goes to the log."""
    try:
        return _STAGES[request.stage](request, say)
    except HubExporterError as error:
        traceback.print_exc()
        kind = type(error).__name__ if type(error).__name__ in ERRORS_BY_NAME else "HubExporterError"
        full = _disk_full(error)
        return StageAnswer(error=full or StageError(kind=kind, message=str(error), hint=error.hint))
    except Exception as error:  # noqa: BLE001 - whatever model code and toolchains raise must not be lost with the process
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        hint = "The whole traceback is in the log; if it is not the model's own code, report it"
        return StageAnswer(error=_disk_full(error) or StageError(kind="HubExporterError", message=message, hint=hint))


def _disk_full(error: BaseException) -> StageError | None:
    """A full disk is the target's trouble, not the model's, however deep it happened."""
    link: BaseException | None = error
    while link is not None:
        text = str(link)
        if getattr(link, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in text:
            return StageError(
                kind="TargetError", message="The disk is full", hint="Free some space, or export to another disk"
            )
        link = link.__cause__ or link.__context__
    return None


def _sample(request: StageRequest, say: Say) -> StageAnswer:
    from hub_exporter.sample import draw
    from hub_exporter.tasks import TASKS

    return StageAnswer(capture=draw(request.dataset, TASKS[request.model.task], Path(request.folder)))


def _reference(request: StageRequest, say: Say) -> StageAnswer:
    from hub_exporter.reference import make

    assert request.capture is not None
    say("load and check the checkpoint")
    make(request.model, request.capture, Path(request.rows), Path(request.folder), say)
    return StageAnswer()


def _export(request: StageRequest, say: Say) -> StageAnswer:
    from hub_exporter.export import export

    assert request.job is not None
    assert request.capture is not None
    return StageAnswer(outcome=export(request.job, request.capture, Path(request.rows), Path(request.folder), say))


def _verify(request: StageRequest, say: Say) -> StageAnswer:
    from hub_exporter.verify import read_reference, verify

    assert request.job is not None
    assert request.outcome is not None
    reference, arrays = read_reference(Path(request.reference))
    folder, job = Path(request.folder), request.job
    return StageAnswer(verification=verify(job.backend, request.outcome, folder, reference, arrays, say, job.variant))


def _load(request: StageRequest, say: Say) -> StageAnswer:
    """Whether the runtime finds all that it needs, wherever the files are now; if there is one here."""
    from hub_exporter import backends

    assert request.job is not None
    assert request.outcome is not None
    module = backends.get(request.job.backend)
    if module.missing_runtime() is None:
        module.open_runner(Path(request.folder), request.outcome)
    return StageAnswer()


def _generate(request: StageRequest, say: Say) -> StageAnswer:
    from hub_exporter.generate import generate

    assert request.job is not None
    assert request.outcome is not None
    assert request.ask is not None
    generate(request.job, request.outcome, Path(request.folder), request.ask, say)
    return StageAnswer()


_STAGES = {
    "sample": _sample,
    "reference": _reference,
    "export": _export,
    "verify": _verify,
    "load": _load,
    "generate": _generate,
}


if __name__ == "__main__":
    main(sys.argv[1:])
