"""Stand-in for `hub_exporter.stage`: it answers at once, and fails as `STAND_IN` says.

`STAND_IN` is JSON: job -> `fail`, `mismatch` or `kill` (the whole step, as a runner does that has run out of memory).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import made_up
import msgspec

from hub_exporter.records import ExportOutcome, StageAnswer, StageError, StageRequest, from_json, to_json
from hub_exporter.sample import draw
from hub_exporter.tasks import TASKS


def main(request_file: str, answer_file: str, *_: str) -> None:
    request = from_json(Path(request_file).read_bytes(), StageRequest)
    Path(answer_file).write_bytes(to_json(answer(request, fault(request))))


def fault(request: StageRequest) -> str:
    faults = json.loads(os.environ.get("STAND_IN") or "{}")
    return faults.get(request.job.name, "") if request.job else ""


def answer(request: StageRequest, wanted: str) -> StageAnswer:
    if request.stage == "sample":
        builtin = request.dataset is not None and request.dataset.path == "builtin"
        return StageAnswer(capture=draw(request.dataset, TASKS[request.model.task]) if builtin else made_up.capture())
    if request.stage == "export":
        if wanted == "kill":
            os.kill(os.getppid(), signal.SIGKILL)
        if wanted == "fail":
            return StageAnswer(error=StageError(kind="HubExporterError", message="The toolchain gave up", hint="Wait"))
        return StageAnswer(outcome=export(request))
    if request.stage == "verify":
        checked = made_up.verification("decoder")
        if wanted == "mismatch":
            checked = msgspec.structs.replace(checked, passed=False, level="loaded", reason="The logits differ")
        return StageAnswer(verification=checked)
    return StageAnswer()


def export(request: StageRequest) -> ExportOutcome:
    backend = request.job.backend
    outcome = made_up.outcome(backend if backend in made_up.FILES else "executorch-xnnpack", "decoder")
    for name in ("export.json", outcome.components[0].file):
        made_up.write(Path(request.folder) / name, f"{backend} {name}\n".encode())
    return outcome


if __name__ == "__main__":
    main(*sys.argv[1:])
