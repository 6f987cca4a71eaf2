"""Jobs -> results. Every stage runs in a process of its own: sample and reference once per model, export and verify
per job. A crash, a kill or a timeout of one is a failed job with its reason, not the end of the run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hub_exporter import environments
from hub_exporter.attempts import next_job
from hub_exporter.catalogue import BACKENDS
from hub_exporter.environments import CURRENT, Environment
from hub_exporter.errors import ERRORS_BY_NAME, DatasetError, HubExporterError, TargetError
from hub_exporter.folder import artifact
from hub_exporter.machine import memory
from hub_exporter.records import (
    Artifact,
    Ask,
    CaptureSpec,
    Event,
    Job,
    JobResult,
    ModelRun,
    ResolvedModel,
    StageAnswer,
    StageError,
    StageRequest,
    Status,
    Toolchain,
    Verification,
    from_json,
    to_json,
)
from hub_exporter.secrecy import without_secrets

Events = Callable[[Event], None]

ROWS = "rows"
"""Folder in the work folder with the pictures and sounds that the rows name."""

SETTINGS = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONHASHSEED": "0",
}
"""Of every stage process: without the token of the login file either, and with a fixed order of sets."""


INSTALLERS = ("PIP_", "UV_")
"""Their settings may hold an index address with a password in it, and no stage installs anything."""


@dataclass(frozen=True)
class Ended:
    """How a stage process ended."""

    answer: StageAnswer
    peak_memory: int
    """Bytes."""


def run_model(
    model: ResolvedModel, jobs: tuple[Job, ...], work: Path, events: Events, verify: bool = True, isolate: bool = False
) -> ModelRun:
    """Run all jobs of one model, one after another; files of passed jobs stay under `work`.

    `isolate` runs each job in an environment of its backend's pins; rows and reference, which all share, are made in
    that of the first job. A job whose environment cannot be made has failed.

    Raises the error of the shared stages (`DatasetError`, `SourceError`): without rows or a sound checkpoint no job
    can run; and `TargetError` when the disk is full.
    """
    steps = _Steps(model.name, events)
    steps.start("rows and reference" if verify else "rows")
    places = {job.name: _place(job, work, steps, isolate) for job in jobs}
    usable = [place for place in places.values() if isinstance(place, Place)]
    capture = _shared(model, jobs, work, steps, verify, usable[0].environment) if usable else None
    steps.end("passed" if usable else "failed", "")
    results = tuple(_run_job(job, places[job.name], capture, work, events, verify) for job in jobs)
    return ModelRun(model=model, work=str(work), capture=capture, results=results)


def verify_published(
    model: ResolvedModel,
    published: Sequence[tuple[Job, JobResult]],
    root: Path,
    work: Path,
    events: Events,
    isolate: bool = False,
) -> tuple[JobResult, ...]:
    """Compare files that were published, in `root`, with their model once more. Nothing is exported.

    All jobs have the same dataset; the rows that are drawn must be those that the files were made with. Raises like
    `run_model`.
    """
    steps = _Steps(model.name, events)
    steps.start("rows and reference")
    places = {job.name: _place(job, work, steps, isolate) for job, _ in published}
    usable = [place for place in places.values() if isinstance(place, Place)]
    if usable:
        capture = _shared(model, [job for job, _ in published], work, steps, True, usable[0].environment)
        check_rows(published[0][1], capture)
    steps.end("passed" if usable else "failed", "")
    return tuple(_verified(job, made, places[job.name], root, work, events) for job, made in published)


def check_rows(published: JobResult, capture: CaptureSpec | None) -> None:
    """Raise DatasetError for other rows than those that a job was made with."""
    known = published.key.rows if published.key else None
    if capture is not None and known is not None and capture.digest != known:
        raise DatasetError(
            f"The rows of `{capture.path}` are not those that `{published.job}` was made with",
            hint="Name the dataset as it was with `--dataset`",
        )


def _verified(
    job: Job, published: JobResult, place: Place | HubExporterError, root: Path, work: Path, events: Events
) -> JobResult:
    steps = _Steps(job.name, events)
    steps.start(job.name)
    if isinstance(place, HubExporterError):
        result = _without_place(job, place)
    else:
        request = StageRequest(
            stage="verify",
            model=job.model,
            job=job,
            outcome=published.export,
            folder=str(root / published.folder),
            reference=str(work / "reference"),
        )
        ended = _run(request, work / f"{job.name}.verify", job.time_limit, steps.step, place.environment)
        exported = Ended(StageAnswer(outcome=published.export), ended.peak_memory)
        found, error = ended.answer.verification, ended.answer.error
        result = _result(job, published.folder, work, exported, found, error, steps.seconds())
        result = msgspec.structs.replace(
            result, artifacts=published.artifacts, hint=None if error is None else result.hint
        )
    steps.end(result.status, result.reason)
    return result


@dataclass(frozen=True)
class Place:
    """Where a job runs."""

    environment: Environment
    toolchain: Toolchain


def _place(job: Job, work: Path, steps: _Steps, isolate: bool) -> Place | HubExporterError:
    """The environment of a job, or why there is none; what runs there and is not what is locked is told."""
    try:
        environment = CURRENT
        if isolate:
            steps.step(f"environment of {job.backend}")
            environment = environments.isolated(job.backend, environments.linked(work))
        toolchain = environments.toolchain(job.backend, environment)
    except HubExporterError as error:
        return error
    differing = ", ".join(environments.drift(toolchain))
    if differing:
        steps.note(f"{job.backend} runs with {differing}{'' if isolate else '; `--isolate` runs it as locked'}")
    return Place(environment, toolchain)


def load_again(
    jobs: tuple[Job, ...], results: tuple[JobResult, ...], place: Path, work: Path, isolate: bool = False
) -> str | None:
    """Load the files of passed jobs from `place`, where they were published, each in a process of its own.

    `None` if all of them load, else the first that does not, and why.
    """
    passed = {result.job: result for result in results if result.status == "passed"}
    for job in jobs:
        result = passed.get(job.name)
        if result is None or result.export is None:
            continue
        folder = str(place / result.folder)
        request = StageRequest(stage="load", model=job.model, job=job, outcome=result.export, folder=folder)
        where = environments.isolated(job.backend, environments.linked(work)) if isolate else CURRENT
        error = _run(request, work / f"{job.name}.load", job.time_limit, lambda step: None, where).answer.error
        if error is not None:
            return f"`{job.name}`: {error.message}"
    return None


def answer(
    job: Job, result: JobResult, root: Path, ask: Ask, work: Path, say: Callable[[str], None], isolate: bool = False
) -> None:
    """Ask the files of `result`, which lie below `root`, and `say` the text as it comes. Raises like the stage."""
    place = environments.isolated(job.backend, environments.linked(work)) if isolate else CURRENT
    request = StageRequest(
        stage="generate",
        model=job.model,
        job=job,
        outcome=result.export,
        folder=str(root / result.folder),
        ask=ask,
    )
    _checked(_run(request, work / "generate", job.time_limit, lambda piece: say(json.loads(piece)), place))


def _shared(
    model: ResolvedModel, jobs: Iterable[Job], work: Path, steps: _Steps, verify: bool, where: Environment
) -> CaptureSpec:
    """The rows and, if anything is to be verified, the eager model's answers: once for all jobs."""
    jobs = tuple(jobs)
    limit = max(job.time_limit for job in jobs)
    try:
        steps.step("draw the rows")
        request = StageRequest(stage="sample", model=model, dataset=jobs[0].dataset, folder=str(work / ROWS))
        capture = _checked(_run(request, work / "sample", limit, steps.step, where, online=True)).capture
        assert capture is not None
        if verify:
            request = StageRequest(
                stage="reference",
                model=model,
                capture=capture,
                folder=str(work / "reference"),
                rows=str(work / ROWS),
            )
            _checked(_run(request, work / "reference", limit, steps.step, where))
    except HubExporterError as error:
        steps.end("failed", str(error))
        raise
    return capture


def _checked(ended: Ended) -> StageAnswer:
    error = ended.answer.error
    if error is not None:
        raise ERRORS_BY_NAME[error.kind](error.message, hint=error.hint)
    return ended.answer


def _run_job(
    job: Job, place: Place | HubExporterError, capture: CaptureSpec | None, work: Path, events: Events, verify: bool
) -> JobResult:
    steps = _Steps(job.name, events)
    steps.start(job.name)
    if isinstance(place, HubExporterError):
        result = _without_place(job, place)
    else:
        assert capture is not None
        result = _made(job, place, capture, work, steps, verify)
    if result.status != "passed":
        shutil.rmtree(work / job.name, ignore_errors=True)
    steps.end(result.status, result.reason)
    return result


def _without_place(job: Job, error: HubExporterError) -> JobResult:
    return JobResult(
        job=job.name,
        backend=job.backend,
        variant=job.variant,
        status="failed",
        reason=str(error),
        hint=error.hint,
        folder=BACKENDS[job.backend].folder,
    )


def _made(job: Job, place: Place, capture: CaptureSpec, work: Path, steps: _Steps, verify: bool) -> JobResult:
    """Export and verify, as often as something else is worth a try."""
    while True:
        exported, verification, error = _attempt(job, place.environment, capture, work, steps, verify)
        following = next_job(job, error, verification)
        if following is None:
            break
        job, change = following
        steps.step(change)
        shutil.rmtree(work / job.name, ignore_errors=True)
    folder = BACKENDS[job.backend].folder
    result = _result(job, folder, work, exported, verification, error, steps.seconds())
    return msgspec.structs.replace(result, toolchain=place.toolchain)


def _attempt(
    job: Job, where: Environment, capture: CaptureSpec, work: Path, steps: _Steps, verify: bool
) -> tuple[Ended, Verification | None, StageError | None]:
    """One export, and its verification."""
    files = work / job.name / BACKENDS[job.backend].folder
    request = StageRequest(
        stage="export", model=job.model, capture=capture, job=job, folder=str(files), rows=str(work / ROWS)
    )
    exported = _run(request, work / f"{job.name}.export", job.time_limit, steps.step, where)
    verification = None
    error = exported.answer.error
    if error is None and verify:
        request = StageRequest(
            stage="verify",
            model=job.model,
            job=job,
            outcome=exported.answer.outcome,
            folder=str(files),
            reference=str(work / "reference"),
        )
        checked = _run(request, work / f"{job.name}.verify", job.time_limit, steps.step, where)
        error, verification = checked.answer.error, checked.answer.verification
    elif error is None:
        verification = Verification(
            level="exported", reason="verification was switched off with `--no-verify`", passed=True, runtime=""
        )
    return exported, verification, error


def _result(
    job: Job,
    folder: str,
    work: Path,
    exported: Ended,
    verification: Verification | None,
    error: StageError | None,
    seconds: float,
) -> JobResult:
    if error is not None and error.kind == "TargetError":
        raise TargetError(error.message, hint=error.hint)
    passed = error is None and verification is not None and verification.passed
    stage = "export" if exported.answer.error is not None or (verification is None and error is None) else "verify"
    return JobResult(
        job=job.name,
        backend=job.backend,
        variant=job.variant,
        status="passed" if passed else "failed" if error is not None else "mismatch",
        reason="" if passed else error.message if error is not None else _reason(verification),
        hint=error.hint if error is not None else None if passed else MISMATCH_HINT,
        folder=folder,
        export=exported.answer.outcome,
        verification=verification,
        artifacts=_artifacts(work / job.name) if passed else (),
        seconds=round(seconds, 3),
        peak_memory=exported.peak_memory,
        log=None if passed else str(work / f"{job.name}.{stage}" / "log.txt"),
    )


MISMATCH_HINT = "The file was not kept. Options under `engine:` change what is traced; the log has every figure"


def _reason(verification: Verification | None) -> str:
    return verification.reason if verification is not None else ""


def _artifacts(root: Path) -> tuple[Artifact, ...]:
    """Every file below `root`, which is laid out like the target."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return tuple(artifact(root, path.relative_to(root).as_posix()) for path in files)


# ── One process ──


def _run(
    request: StageRequest,
    folder: Path,
    limit: float,
    say: Callable[[str], None],
    where: Environment = CURRENT,
    online: bool = False,
) -> Ended:
    """Run one stage process in `folder` (its request, answer and log), for `limit` seconds at most.

    Only a stage that runs no model code may be `online`.
    """
    request_file, answer_file, log = (folder / name for name in ("request.json", "answer.json", "log.txt"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        request_file.write_bytes(to_json(request))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TargetError(DISK_FULL, hint=DISK_HINT) from error
    reader, writer = os.pipe()
    command = [*where.command(), "-m", "hub_exporter.stage", str(request_file), str(answer_file), str(writer)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writer,),
            env=where.variables(environment(online)),
            start_new_session=True,  # so that its own children are stopped with it
        )
    os.close(writer)
    try:
        in_time = _follow(reader, time.monotonic() + limit, say)
    except BaseException:  # Ctrl-C must not leave a process behind
        _kill(process)
        process.wait()
        raise
    if not in_time:
        _kill(process)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if in_time and process.returncode == 0:
        return Ended(from_json(answer_file.read_bytes(), StageAnswer), peak)
    return Ended(StageAnswer(error=_death(request.stage, process.returncode, in_time, limit, peak, log)), peak)


def environment(online: bool) -> dict[str, str]:
    """Of a stage process: nothing that looks like a secret, and the Hub only for one that draws rows."""
    kept = {key: value for key, value in without_secrets(os.environ).items() if not key.startswith(INSTALLERS)}
    return kept | SETTINGS | ({} if online else {"HF_HUB_OFFLINE": "1"})


def _follow(reader: int, deadline: float, say: Callable[[str], None]) -> bool:
    """Pass on what the process tells until it ends, and its end of the pipe with it; `False` if the deadline came
    first."""
    pending = b""
    with os.fdopen(reader, "rb", buffering=0) as stream, selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            chunk = stream.read(65536)
            if not chunk:
                return True
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                say(line.decode("utf-8", "replace"))
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a stage process and whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _death(stage: str, code: int, in_time: bool, limit: float, peak: int, log: Path) -> StageError:
    """Why a process ended without an answer."""
    if not in_time:
        return StageError(
            kind="HubExporterError",
            message=f"The {stage} stage took longer than {limit / 60:.0f} minutes and was stopped",
            hint="Give it more with `--time-limit MINUTES` or `time-limit:` in the recipe",
        )
    if code == -signal.SIGKILL:
        return StageError(
            kind="HubExporterError",
            message=f"The {stage} stage was killed, most likely for want of memory: it held {peak / 2**30:.1f} GiB "
            f"of the machine's {memory() / 2**30:.1f} GiB",
            hint="Run this job alone on a machine with more memory, or set smaller bounds in `engine.dynamic_shapes`",
        )
    if shutil.disk_usage(log.parent).free < FULL or "No space left on device" in _last_line(log):
        return StageError(kind="TargetError", message=DISK_FULL, hint=DISK_HINT)
    how = f"crashed with {signal.Signals(-code).name}" if code < 0 else f"stopped with exit status {code}"
    return StageError(
        kind="HubExporterError",
        message=f"The {stage} stage {how}: {_last_line(log)}",
        hint="The log has all that it said; run this job alone with `--only` to see whether it happens again",
    )


DISK_FULL, DISK_HINT = "The disk is full", "Free some space, or export to another disk"

FULL = 100_000
"""Bytes of free disk that are none: a process that ran out of it could write neither its answer nor why."""


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it left no output"


class _Steps:
    """Tells the steps of one job as events, with the time since it began."""

    def __init__(self, job: str, events: Events):
        self._job, self._events, self._began = job, events, time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def start(self, text: str) -> None:
        self._events(Event(job=self._job, kind="start", text=text))

    def step(self, text: str) -> None:
        self._events(Event(job=self._job, kind="step", text=text, seconds=self.seconds()))

    def note(self, text: str) -> None:
        self._events(Event(job=self._job, kind="note", text=text, seconds=self.seconds()))

    def end(self, status: Status, text: str) -> None:
        self._events(Event(job=self._job, kind="end", text=text, seconds=self.seconds(), status=status))
