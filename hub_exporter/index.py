"""`hub-exporter.json`: read from a target, and made of a run and what earlier runs left there.

It is published, so nothing of the machine goes into it: no path, no log, and of the rows only which they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from hub_exporter import __version__, folder
from hub_exporter.errors import TargetError
from hub_exporter.keys import same_files
from hub_exporter.records import (
    INDEX_FILE,
    SCHEMA_VERSION,
    Artifact,
    CaptureSpec,
    Index,
    JobResult,
    ModelRun,
    Past,
    ResolvedModel,
    Row,
    from_json,
)
from hub_exporter.standing import Standing
from hub_exporter.wording import max_difference


def read_index(target: Standing) -> Index | None:
    """The index of an earlier run in `target`, if there is one. Raises TargetError where it cannot be trusted."""
    place = target.place(INDEX_FILE)
    try:
        data = target.read(INDEX_FILE)
    except OSError as error:
        raise _unreadable(place, error) from error
    return None if data is None else parse_index(data, place)


def parse_index(data: bytes, place: str) -> Index:
    """The index that was read from `place`. Raises TargetError where it cannot be trusted."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if msgspec.json.decode(fields.get("schema", b"0"), type=int) > SCHEMA_VERSION:
            raise TargetError(f"{place} was written by a newer hub-exporter", hint="Upgrade hub-exporter")
        index = from_json(data, Index)
        for artifact in listed(index):
            folder.inside(artifact.path)
    except (msgspec.DecodeError, ValueError) as error:
        raise _unreadable(place, error) from error
    return index


def _unreadable(place: str, error: Exception) -> TargetError:
    hint = "Choose another target; or delete this file, and what earlier exports left counts as yours"
    return TargetError(f"{place} cannot be read: {error}", hint=hint)


def listed(index: Index | None) -> Iterator[Artifact]:
    """Every file that the index knows: of its jobs, and beside them."""
    if index is not None:
        yield from (artifact for job in index.jobs for artifact in job.artifacts)
        yield from index.side_files


def make_index(run: ModelRun, side_files: tuple[Artifact, ...], previous: Index | None, target: Standing) -> Index:
    """The index of `run`, with what still holds of the `previous` one in `target`.

    The same files from the same model give the same index: a run that found nothing new changes no byte.
    """
    carried = _carried(run, previous, target)
    kept = set(map(_kind, carried))
    own = [public_result(result, run.work) for result in run.results if _kind(result) not in kept]
    jobs = [*(_settled(result, run.capture, previous) for result in own), *carried]
    order = {_kind(job): number for number, job in enumerate(previous.jobs)} if previous else {}
    return Index(
        tool=f"hub-exporter {__version__}",
        source=_source(run.model, previous),
        capture=public_capture(run.capture),
        jobs=tuple(sorted(jobs, key=lambda job: order.get(_kind(job), len(order)))),
        side_files=side_files,
    )


def _kind(job: JobResult) -> tuple[str, str]:
    """What tells the jobs of one target apart; their names may have been numbered differently in another recipe."""
    return job.backend, job.variant


def _same_model(previous: Index | None, model: ResolvedModel) -> bool:
    """Whether a model is still what the previous index was made of: another commit may have changed only the card,
    as our own commit into the model's repository does."""
    if previous is None:
        return False
    return previous.source.commit == model.commit or bool(
        model.files and same_files(previous.source.files, model.files)
    )


def _source(model: ResolvedModel, previous: Index | None) -> ResolvedModel:
    public = _public_model(model)
    if previous is None or not _same_model(previous, model):
        return public
    return msgspec.structs.replace(public, commit=previous.source.commit, revision=previous.source.revision)


def _carried(run: ModelRun, previous: Index | None, target: Standing) -> tuple[JobResult, ...]:
    """Results of earlier runs that still hold: of the same commit, their files in place, and nothing newer.

    A job that failed this time says nothing against files that passed before; one that disagreed does.
    """
    if previous is None or not _same_model(previous, run.model):
        return ()
    now = {_kind(result): result.status for result in run.results}
    candidates = [
        job
        for job in previous.jobs
        if _kind(job) not in now or (job.status == "passed" and now[_kind(job)] in ("failed", "skipped"))
    ]
    there = [job for job in candidates if all(target.has(artifact.path) for artifact in job.artifacts)]
    return tuple(_with_rows(job, previous.capture, run.capture) for job in there)


def _settled(result: JobResult, capture: CaptureSpec | None, previous: Index | None) -> JobResult:
    """The earlier result, where it says the same of the same files: times and the last digits differ from run to run,
    and are no reason to publish again."""
    before = next((job for job in previous.jobs if _kind(job) == _kind(result)), None) if previous else None
    if before is None or previous is None or result.status != "passed":
        return result
    before = _with_rows(before, previous.capture, capture)
    if _essence(before) == _essence(result):
        return before
    return msgspec.structs.replace(result, history=(*before.history, *_past(before, previous.source))[-REMEMBERED:])


REMEMBERED = 9
"""Publications before the last that a job keeps the figures of."""


def _past(job: JobResult, source: ResolvedModel) -> tuple[Past, ...]:
    if job.status != "passed":
        return ()
    made = Past(
        commit=source.commit,
        pins=job.key.pins if job.key else "",
        difference=max_difference(job.verification) if job.verification else None,
        size=sum(artifact.size for artifact in job.artifacts),
        seconds=job.seconds,
        latency=job.verification.latency if job.verification else None,
    )
    return (made,)


def _essence(result: JobResult) -> JobResult:
    """A result without what was measured, and without what is only known of it in its target."""
    export, checked = result.export, result.verification
    return msgspec.structs.replace(
        result,
        seconds=0.0,
        peak_memory=0,
        history=(),
        clients=(),
        size_ratio=None,
        export=export and msgspec.structs.replace(export, seconds={}),
        verification=checked
        and msgspec.structs.replace(checked, reason="", cases=(), decodes=(), notes=(), latency=None),
    )


def _with_rows(job: JobResult, then: CaptureSpec | None, now: CaptureSpec | None) -> JobResult:
    rows = job.rows or (then.digest if then else None)
    return msgspec.structs.replace(job, rows=None if now and rows == now.digest else rows)


def public_result(result: JobResult, work: str) -> JobResult:
    """A result without where its work was done."""
    hint = result.hint and result.hint.replace(f"{work}/", "")
    return msgspec.structs.replace(result, log=None, reason=result.reason.replace(f"{work}/", ""), hint=hint)


def _public_model(model: ResolvedModel) -> ResolvedModel:
    return msgspec.structs.replace(model, folder="", source=model.repo or model.name)


def public_capture(spec: CaptureSpec | None) -> CaptureSpec | None:
    """Which rows, not what they say: a dataset has its own terms. Of a file the name, not where it lay."""
    if spec is None:
        return None
    path = Path(spec.path).name if Path(spec.path).is_absolute() else spec.path
    return msgspec.structs.replace(
        spec,
        path=path,
        capture=_ids(spec.capture),
        held_out=_ids(spec.held_out),
        calibration=_ids(spec.calibration),
    )


def _ids(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(Row(id=row.id, values={}) for row in rows)
