"""What is published, once more: compared with its model, rebuilt and compared byte for byte, or asked. Nothing is
written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from hub_exporter import folder, hub, pins
from hub_exporter.catalogue import BACKENDS, PYTHON
from hub_exporter.differences import first_difference
from hub_exporter.errors import DatasetError, SourceError, TargetError, UsageError
from hub_exporter.files import expanded
from hub_exporter.index import read_index
from hub_exporter.keys import is_file, same_files
from hub_exporter.machine import this_machine
from hub_exporter.plan import hub_target, matches
from hub_exporter.records import (
    Ask,
    DatasetSpec,
    EngineOptions,
    Index,
    Job,
    JobResult,
    ModelRequest,
    ModelSettings,
    Reproduction,
    ResolvedModel,
)
from hub_exporter.remote import Repository
from hub_exporter.resolve import resolve
from hub_exporter.run import Events, answer, check_rows, run_model, verify_published
from hub_exporter.weights import fetch_weights

_TIME_LIMIT = 4 * 3600.0

T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """A target with exports, at one state of it."""

    target: str
    repo: str | None
    commit: str
    index: Index
    model: ResolvedModel
    jobs: tuple[tuple[Job, JobResult], ...]
    """Those that passed and were asked for, as they were planned and as they came out."""

    def files(self, work: Path) -> Path:
        """A folder that holds the files of the jobs, laid out like the target."""
        if self.repo is None:
            return expanded(self.target)
        paths = [artifact.path for _, result in self.jobs for artifact in result.artifacts]
        return hub.fresh_copy(self.repo, self.commit, paths, work / "cache")


def published(
    target: str, only: Sequence[str], source: str | None = None, dataset: str | None = None, consent: bool = False
) -> Published:
    """What a target holds, with its model at the commit that it was made of.

    `source` and `dataset` say where a folder and a file are now: of such an index has no more than the names. `consent`
    is the user's, to run code that the model brings; the index cannot give it. Raises
    TargetError, SourceError for a model that is another now, UsageError for patterns that match nothing.
    """
    repo, commit, index = _read(target)
    model = _model(index, source, consent)
    found = tuple(_jobs(index, model, target, dataset))
    chosen = tuple(pair for pair in found if matches(pair[0].name, only))
    if not chosen:
        names = ", ".join(f"`{job.name}`" for job, _ in found)
        raise UsageError(f"`{target}` holds no such job that can run here", hint=f"It holds {names or 'none'}")
    return Published(target, repo, commit, index, model, chosen)


def _read(target: str) -> tuple[str | None, str, Index]:
    repo = hub_target(target)
    at = hub.look(repo) if repo else None
    standing = Repository(repo, at) if repo else folder.Folder(expanded(target))
    index = read_index(standing)
    if index is None:
        raise TargetError(f"`{target}` holds no exports of hub-exporter", hint="Name what hub-exporter published to")
    return repo, at.commit if at else "", index


def generate(
    target: str, backend: str, variant: str, ask: Ask, work: Path, say: Callable[[str], None], isolate: bool
) -> None:
    """Answer `ask` with the published files of a backend, and `say` the text as it comes.

    Raises UsageError for files that are not there or cannot run here, and what the files raise.
    """
    repo, commit, index = _read(target)
    result = _made_for(index, backend, variant, target)
    side = [artifact.path for artifact in index.side_files] or index.source.side_files
    paths = [*(artifact.path for artifact in result.artifacts), *side]
    root = hub.fresh_copy(repo, commit, paths, work / "cache") if repo else expanded(target).resolve()
    # The index is the target's own word: it cannot consent to running code that lies beside it.
    model = msgspec.structs.replace(index.source, folder=str(root), remote_code=False)
    answer(_job(result, model, target, None), result, root, ask, work, say, isolate)


def _made_for(index: Index, backend: str, variant: str, target: str) -> JobResult:
    there = {(result.backend, result.variant): result for result in index.jobs if result.status == "passed"}
    if (backend, variant) not in there:
        held = ", ".join(f"`{name}` in {kind}" for name, kind in there)
        raise UsageError(
            f"`{target}` holds nothing for `{backend}` in {variant}", hint=f"It holds {held or 'no exports'}"
        )
    if not BACKENDS[backend].runs_on(this_machine()):
        raise UsageError(
            f"`{backend}` runs on `{BACKENDS[backend].runner}`, this is `{this_machine()}`",
            hint="Ask it there, or name another backend of the target",
        )
    return there[backend, variant]


def _model(index: Index, source: str | None, consent: bool) -> ResolvedModel:
    made = index.source
    if made.repo is None and source is None:
        raise SourceError(
            f"It was made of the folder `{made.name}`, and the index does not say where that is",
            hint="Name it with `--source FOLDER`",
        )
    where = source or f"{made.repo}@{made.commit}"
    settings = ModelSettings(source=where, task=made.task, trust_remote_code=consent)
    model = resolve(ModelRequest(settings=settings))
    if not same_files(model.files, made.files):
        raise SourceError(f"`{where}` is not the model that it was made of", hint="Its files have other digests now")
    return msgspec.structs.replace(model, name=made.name)


def _jobs(index: Index, model: ResolvedModel, target: str, dataset: str | None) -> Iterator[tuple[Job, JobResult]]:
    for result in index.jobs:
        here = result.status == "passed" and BACKENDS[result.backend].runs_on(this_machine())
        if not here or result.recipe is None or result.key is None:
            continue
        yield _job(result, model, target, _dataset(result.recipe.dataset, dataset)), result


def _job(result: JobResult, model: ResolvedModel, target: str, dataset: DatasetSpec | None) -> Job:
    return Job(
        name=result.job,
        model=model,
        backend=result.backend,
        variant=result.variant,
        engine=result.recipe.engine if result.recipe else EngineOptions(),
        dataset=dataset,
        runner="",
        python=PYTHON,
        pins=result.key.pins if result.key else "",
        time_limit=_TIME_LIMIT,
        minutes=0,
        target=target,
    )


def _dataset(spec: DatasetSpec | None, path: str | None) -> DatasetSpec | None:
    if spec is None or path is None:
        if spec is not None and is_file(spec) and not expanded(spec.path).is_file():
            raise DatasetError(
                f"It was made with rows of the file `{spec.path}`, and the index does not say where that is",
                hint="Name it with `--dataset FILE`",
            )
        return spec
    return msgspec.structs.replace(spec, path=path)


def other_lock(made: Published) -> list[str]:
    """Jobs whose lock is another one now: they cannot be rebuilt as they were."""
    return [job.name for job, _ in made.jobs if pins.digest(job.backend) != job.pins]


def verify(made: Published, work: Path, events: Events, isolate: bool = False) -> tuple[JobResult, ...]:
    """Compare the published files with their model. Raises like `run_model`."""
    fetch_weights(made.model)
    root = made.files(work)
    _check_whole(made, root)
    return _by_rows(made, work, lambda pairs, place: verify_published(made.model, pairs, root, place, events, isolate))


def reproduce(made: Published, work: Path, events: Events, isolate: bool = False) -> tuple[Reproduction, ...]:
    """Rebuild the published files and compare them. Raises like `run_model`."""
    fetch_weights(made.model)

    def rebuilt(pairs: list[tuple[Job, JobResult]], place: Path) -> tuple[Reproduction, ...]:
        run = run_model(made.model, tuple(job for job, _ in pairs), place, events, isolate=isolate)
        check_rows(pairs[0][1], run.capture)
        return tuple(_compared(made, job, old, new, place) for (job, old), new in zip(pairs, run.results, strict=True))

    return _by_rows(made, work, rebuilt)


def _by_rows(
    made: Published, work: Path, call: Callable[[list[tuple[Job, JobResult]], Path], tuple[T, ...]]
) -> tuple[T, ...]:
    """What `call` says of the jobs, those with the same rows together, in a folder of their own."""
    groups: dict[str, list[tuple[Job, JobResult]]] = {}
    for job, result in made.jobs:
        groups.setdefault(result.key.rows if result.key else "", []).append((job, result))
    found: list[T] = []
    for number, pairs in enumerate(groups.values()):
        place = work / f"rows-{number}"
        place.mkdir()
        found += call(pairs, place)
    return tuple(found)


def _check_whole(made: Published, root: Path) -> None:
    """Raise TargetError for a file that is not what the index says."""
    for _, result in made.jobs:
        for artifact in result.artifacts:
            if not folder.holds(root, artifact):
                raise TargetError(
                    f"`{artifact.path}` in `{made.target}` is missing or was altered since it was published",
                    hint="`hub-exporter export` makes it again",
                )


def _compared(made: Published, job: Job, old: JobResult, new: JobResult, work: Path) -> Reproduction:
    if new.status != "passed":
        return Reproduction(job=job.name, status="failed", difference=new.reason)
    before, after = ({artifact.path: artifact for artifact in result.artifacts} for result in (old, new))
    for path in dict.fromkeys([*before, *after]):
        if path not in before or path not in after:
            where = "published" if path in before else "rebuilt"
            return Reproduction(job=job.name, status="different", file=path, difference=f"it was only {where}")
        if before[path].sha256 != after[path].sha256:
            files = msgspec.structs.replace(old, artifacts=(before[path],))
            was = Published(made.target, made.repo, made.commit, made.index, made.model, ((job, files),)).files(work)
            words = first_difference(was / path, work / job.name / path) or "the published file was altered"
            return Reproduction(job=job.name, status="different", file=path, difference=_in_graph(old, path, words))
    return Reproduction(job=job.name, status="same")


def _in_graph(result: JobResult, path: str, difference: str) -> str:
    parts = result.export.components if result.export else ()
    name = next((part.name for part in parts if f"{result.folder}/{part.file}" == path), None)
    return f"{difference}, in the graph `{name}`" if name else difference
