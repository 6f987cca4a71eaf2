"""What one job of a plan leaves on its runner, and what a publisher takes from there.

    FOLDER/<job>/result.json     a `CellResult`: it is there once the job has ended, however it ended
    FOLDER/<job>/files/...       the files of a job that passed, laid out like the target
    FOLDER/<job>/source/...      the side files of its model
    FOLDER/<job>/log.txt         all that its processes said

The publisher trusts the plan, and nothing of this: a runner executes the code of models. So a result counts only for
the job that its place is named after, and only with files that the result describes and a job of this kind may have.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hub_exporter import __version__, folder, pins
from hub_exporter.catalogue import BACKENDS
from hub_exporter.files import expanded
from hub_exporter.index import public_capture, public_result
from hub_exporter.keys import with_key
from hub_exporter.records import (
    Artifact,
    CaptureSpec,
    CellResult,
    Job,
    JobResult,
    ModelRun,
    from_json,
    to_json,
)

RESULT, FILES, SOURCE, LOG = "result.json", "files", "source", "log.txt"

SILENT = "its runner never reported (cancelled, killed or out of time)"

LARGEST = 64_000_000
"""Bytes of a result: the largest seen has a hundredth of it."""


# ── On the runner ─────────────────────────────────────────────────────────────────────────────────────────────────


def write(place: Path, job: Job, result: JobResult, capture: CaptureSpec | None, work: Path) -> None:
    """Put what the job left in `work` together as `place`, all at once. Raises TargetError."""
    with folder.explained(place):
        cell = work / "cell"
        cell.mkdir()
        if result.status == "passed":
            (work / job.name).replace(cell / FILES)
            for path in job.model.side_files:
                (cell / SOURCE / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(job.model.folder) / path, cell / SOURCE / path)
        _write_log(cell / LOG, work)
        made = CellResult(
            tool=f"hub-exporter {__version__}",
            job=_anywhere(job),
            result=public_result(result, str(work)),
            capture=public_capture(capture),
        )
        (cell / RESULT).write_bytes(to_json(made))
        cell.replace(place)


def _write_log(file: Path, work: Path) -> None:
    """One log of all processes, in the order that they ended in."""
    with file.open("wb") as log:
        for part in sorted(work.glob(f"*/{LOG}"), key=lambda path: path.stat().st_mtime):
            log.write(f"── {part.parent.name}\n".encode() + part.read_bytes())


# ── For the publisher ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Cell:
    """The result of one job, and where its files are."""

    result: JobResult
    capture: CaptureSpec | None = None
    place: Path | None = None


def gather(root: Path, jobs: Iterable[Job]) -> dict[str, Cell]:
    """Job -> its result below `root`; a failed one where there is none, or none that can be trusted.

    An artifact of a workflow is named after the job, `<job>` or `<job>@<id of the plan>`, and holds its folder or what
    is in that.
    """
    return {job.name: _cell(root, job) for job in jobs}


def _cell(root: Path, job: Job) -> Cell:
    own = [root / job.name, *sorted(root.glob(f"{glob.escape(job.name)}@*"))]
    places = [place for one in own for place in (one, one / job.name) if (place / RESULT).is_file()]
    try:
        if not places:
            raise ValueError(SILENT)
        if len(places) > 1:
            raise ValueError(f"two results claim to be its own: {' and '.join(f'`{place}`' for place in places)}")
        return _read(places[0], job)
    except ValueError as error:
        failed = JobResult(
            job=job.name, backend=job.backend, variant=job.variant, status="failed", reason=str(error), hint=AGAIN
        )
        return Cell(failed)


AGAIN = "Run this job again, and publish again: what was published of others stays"


def _read(place: Path, job: Job) -> Cell:
    """Raises ValueError for whatever is wrong with a result."""
    try:
        if (place / RESULT).stat().st_size > LARGEST:
            raise ValueError("its result cannot be read: it is too large")
        cell = from_json((place / RESULT).read_bytes(), CellResult)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"its result cannot be read: {error}") from error
    result = cell.result
    if _anywhere(cell.job) != _anywhere(job):
        raise ValueError("its result was made for another plan")
    if (result.job, result.backend, result.variant) != (job.name, job.backend, job.variant):
        raise ValueError(f"its result is that of `{result.job}`")
    if result.status == "passed":
        _check_files(place, job, result)
        result = with_key(result, job, cell.capture, pins.locked(job.backend)) if cell.capture else result
        return Cell(msgspec.structs.replace(result, log=None), cell.capture, place)
    if result.status == "skipped":
        raise ValueError("its result says that it was skipped, and it was planned")
    log = str(place / LOG) if (place / LOG).is_file() else None
    return Cell(msgspec.structs.replace(result, artifacts=(), log=log), cell.capture, place)


def _anywhere(job: Job) -> Job:
    """A job without where its model lay on the machine that planned it."""
    return msgspec.structs.replace(job, model=msgspec.structs.replace(job.model, folder=""))


def _check_files(place: Path, job: Job, result: JobResult) -> None:
    """Every file is in the backend's folder and is the one that was verified; every side file is the model's."""
    backend = BACKENDS[job.backend].folder
    verified = result.verification is not None and result.verification.passed
    if result.export is None or not verified or not result.artifacts or result.folder != backend:
        raise ValueError("its result says that it passed, and does not show it")
    paths = {artifact.path for artifact in result.artifacts}
    for component in result.export.components:
        if f"{backend}/{component.file}" not in paths:
            raise ValueError(f"its result lists a graph `{component.file}`, and no such file")
    for artifact in result.artifacts:
        if not artifact.path.startswith(f"{backend}/"):
            raise ValueError(f"its result lists `{artifact.path}`, which is not in `{backend}/`")
        _check_file(place / FILES, artifact)
    known = {file.path: file for file in job.model.files}
    for path in job.model.side_files:
        if path not in known:
            raise ValueError(f"the plan does not know the digest of `{path}`")
        _check_file(place / SOURCE, Artifact(path=path, size=known[path].size, sha256=known[path].sha256))


def _check_file(root: Path, expected: Artifact) -> None:
    file = root / folder.inside(expected.path)
    if not file.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"`{expected.path}` is a link that leads out of its folder")
    if not file.is_file():
        raise ValueError(f"`{expected.path}` is missing")
    if not folder.holds(root, expected):
        raise ValueError(f"`{expected.path}` is not the file that was verified: its digest is another")


def merged(root: Path, jobs: tuple[Job, ...], cells: dict[str, Cell]) -> ModelRun:
    """The results of one model as if one machine had run all of its jobs.

    Jobs of one plan draw the same rows; a result with others keeps their digest.
    """
    passed = {job.name: cells[job.name] for job in jobs if cells[job.name].result.status == "passed"}
    capture = next((cell.capture for cell in passed.values()), None)
    first = next((cell.place for cell in passed.values() if cell.place), None)
    return ModelRun(
        model=msgspec.structs.replace(jobs[0].model, folder=str(_side_files(jobs[0], first)) if first else ""),
        work=str(root),
        capture=capture,
        results=tuple(_with_rows(cells[job.name], capture) for job in jobs),
        kept={name: str(cell.place / FILES) for name, cell in passed.items() if cell.place},
    )


def _side_files(job: Job, place: Path) -> Path:
    """Where the model's side files are: in its own folder they stay as they are, from elsewhere they come along."""
    home = folder.real(expanded(job.model.source))
    return home if job.model.repo is None and home == folder.real(Path(job.target)) else place / SOURCE


def _with_rows(cell: Cell, common: CaptureSpec | None) -> JobResult:
    own = cell.capture.digest if cell.capture else None
    return msgspec.structs.replace(cell.result, rows=None if common is None or own == common.digest else own)
