"""Published repositories and folders -> which of their jobs are current, and why the others are not.

It asks as little as can be: one request for a repository whose card tells its state, a second one for its index where
something differs; for the models of one author a listing together, and one request for each of them that moved. No
weights, no model code.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from hub_exporter import folder, hub, keys, pins
from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import HubExporterError, SourceError, TargetError
from hub_exporter.files import expanded, job_name
from hub_exporter.index import listed, parse_index, read_index
from hub_exporter.plan import cells, hub_target, names_of, target_of
from hub_exporter.records import INDEX_FILE, DatasetSpec, Finding, Index, ModelRequest, Reason, State
from hub_exporter.resolve import resolve
from hub_exporter.rows import BUILTIN
from hub_exporter.staleness import Files, SourceNow, Wanted, changed_source, is_current, read_state, reasons
from hub_exporter.tasks import TASKS, dataset_for

TOGETHER = 8
"""Requests that are under way at a time."""

WORTH_LISTING = 3
"""Models of one author that are rather listed than asked for one by one."""

_COMMIT = re.compile(r"[0-9a-f]{40}")

T = TypeVar("T")
R = TypeVar("R")
Ref = tuple[str, str | None]
"""A model on the Hub, and its revision; `None` for the default branch."""


@dataclass(frozen=True)
class Asked:
    """A target to look at; with a request also whether it would be made otherwise today."""

    target: str
    request: ModelRequest | None = None
    name: str = ""
    """Of the model, as the plan has it; from the published source if not given."""
    proposed: bool = False
    """What an open pull request of ours holds counts as well."""


def asked_of(requests: Sequence[ModelRequest], *, proposed: bool = False) -> tuple[Asked, ...]:
    """The targets of these requests. Raises UsageError for what cannot be a target."""
    named = zip(requests, names_of(requests), strict=True)
    return tuple(Asked(target_of(request, name), request, name, proposed) for request, name in named)


def check(asked: Sequence[Asked]) -> tuple[Finding, ...]:
    """What is to be said of every job, in the order of the targets. What cannot be read is `unknown`, and why."""
    places = _together(_seen, asked)
    pairs = [(one, place) for one, place in zip(asked, places, strict=True) if isinstance(place, _Place)]
    sources = _sources(pairs)
    looked = iter(_together(lambda pair: _with_proposal(*pair, sources), pairs))
    found: list[Finding] = []
    for one, place in zip(asked, places, strict=True):
        result = next(looked) if isinstance(place, _Place) else place
        found += [_unknown(one, result)] if isinstance(result, HubExporterError) else result
    return tuple(found)


def _together(function: Callable[[T], R], items: Sequence[T]) -> list[R | HubExporterError]:
    """What a function that waits for the Hub says of each item; an error of ours in its place."""

    def tried(item: T) -> R | HubExporterError:
        try:
            return function(item)
        except HubExporterError as error:
            return error

    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(tried, items))


def _unknown(one: Asked, error: HubExporterError) -> Finding:
    source = one.request.settings.source if one.request else ""
    note = ". ".join(filter(None, (str(error), error.hint)))
    name = one.name or job_name(one.target.rstrip("/"))
    return Finding(
        job=f"{name}.*", backend="*", variant="*", source=source, target=one.target, status="unknown", note=note
    )


# ── The target ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Place:
    """What a target holds. Its index is read when it is needed, and once."""

    target: str
    repo: str | None
    commit: str = ""
    files: Files = field(default_factory=dict)
    state: State | None = None
    _index: Index | None = None

    @property
    def published(self) -> bool:
        """Whether there is anything of ours."""
        return INDEX_FILE in self.files

    def index(self) -> Index:
        if self._index is None:
            assert self.repo is not None
            data = hub.small_file(self.repo, self.commit, INDEX_FILE)
            self._index = parse_index(data, f"`{INDEX_FILE}` in `{self.repo}`")
        return self._index

    def origin(self) -> tuple[str, str | None, str, str]:
        """Source, revision, commit and task of what is published."""
        if self.state is not None:
            return self.state.source, self.state.revision, self.state.commit, self.state.task
        model = self.index().source
        return model.repo or model.name, model.revision, model.commit, model.task


def _seen(one: Asked) -> _Place:
    """Look at a target. Raises TargetError for one that is not there though nobody says what is to be in it."""
    repo = hub_target(one.target)
    place = _folder(expanded(one.target)) if repo is None else _repository(one.target, repo)
    if not place.published and one.request is None:
        raise TargetError(
            f"`{one.target}` holds no exports of hub-exporter",
            hint="Name a repository or a folder that hub-exporter published to, or a recipe with `--recipe`",
        )
    if place.published and (place.state is None or (place.state.others and one.request is None)):
        place.index()
    return place


def _repository(target: str, repo: str, revision: str | None = None) -> _Place:
    at = hub.look(repo, revision)
    if at is None:
        return _Place(target, repo)
    return _Place(target, repo, at.commit, told(at.files), read_state(at.card))


def told(files: Mapping[str, hub.RemoteFile]) -> Files:
    """The digests of files, as the Hub tells them."""
    return {path: file.sha256 or file.blob for path, file in files.items()}


def _folder(path: Path) -> _Place:
    standing = folder.Folder(path)
    index = read_index(standing)
    if index is None:
        return _Place(str(path), None)
    there = [artifact.path for artifact in listed(index) if standing.has(artifact.path)]
    files = {name: folder.artifact(path, name).sha256 for name in there}
    return _Place(str(path), None, files={**files, INDEX_FILE: ""}, _index=index)


# ── The source ────────────────────────────────────────────────────────────────────────────────────────────────────


def _ref(one: Asked, place: _Place) -> Ref | None:
    """The model that a place is, or is to be, made of; `None` for a folder."""
    if one.request is None:
        source, revision, _, _ = place.origin()
        return (source, _branch(revision)) if "/" in source else None
    source, _, revision = one.request.settings.source.partition("@")
    return None if expanded(one.request.settings.source).is_dir() else (source, _branch(revision))


def _branch(revision: str | None) -> str | None:
    return None if revision in (None, "", "main") else revision


def _sources(pairs: Iterable[tuple[Asked, _Place]]) -> dict[Ref, SourceNow | HubExporterError]:
    """Every model that something was made of: where it is now, and its files where that is somewhere else."""
    known: dict[Ref, set[str]] = defaultdict(set)
    now: dict[Ref, SourceNow | HubExporterError] = {}
    for one, place in pairs:
        ref = _ref(one, place) if place.published else None
        if ref is not None:
            known[ref].add(place.origin()[2])
            if ref == (place.repo, None):
                now[ref] = SourceNow(place.commit, place.files)
    asked = [ref for ref in known if ref not in now]
    heads = _heads(repo for repo, revision in asked if revision is None)
    for repo, revision in asked:
        commit = heads.get(repo) if revision is None else revision
        if commit is not None and known[repo, revision] == {commit}:
            now[repo, revision] = SourceNow(commit)
    moved = [ref for ref in asked if ref not in now]
    return now | dict(zip(moved, _together(_source, moved), strict=True))


def _heads(repos: Iterable[str]) -> dict[str, str]:
    """The commits of models whose authors have several among them."""
    by_author: dict[str, list[str]] = defaultdict(list)
    for repo in repos:
        by_author[repo.partition("/")[0]].append(repo)
    several = [(author, names) for author, names in by_author.items() if len(names) >= WORTH_LISTING]
    listings = _together(lambda pair: hub.commits_of(*pair), several)
    return {repo: sha for found in listings if isinstance(found, dict) for repo, sha in found.items()}


def _source(ref: Ref) -> SourceNow:
    at = hub.look(*ref)
    if at is None:
        raise SourceError(
            f"There is no model `{ref[0]}` on the Hub, or it is private", hint=f"Check the name, or {hub.LOGIN}"
        )
    return SourceNow(at.commit, told(at.files))


# ── The jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_proposal(one: Asked, place: _Place, sources: Mapping[Ref, SourceNow | HubExporterError]) -> list[Finding]:
    """What is stale in a target, but for what an open pull request brings it."""
    found = _findings(one, place, sources)
    if not one.proposed or place.repo is None or one.request is None or all(f.status == "current" for f in found):
        return found
    author, model = hub.me(), one.request.settings.source.partition("@")[0]
    beginning = f"Verified exports of {model.rpartition('/')[2]} at "
    proposal = hub.find_proposal(place.repo, beginning, author) if author and place.commit else None
    if proposal is None:
        return found
    there = _repository(place.target, place.repo, f"refs/pr/{proposal.number}")
    if not there.published:
        return found
    ref = _ref(one, there)
    fresh = sources if ref is None or ref in sources else {**sources, ref: _source(ref)}
    judged = {(f.backend, f.variant): f for f in _findings(one, there, fresh)}
    waiting = f"pull request {proposal.number} has it, and waits to be merged"
    return [
        msgspec.structs.replace(old, status="current", reasons=(), note=waiting)
        if judged[old.backend, old.variant].status == "current" and old.status == "stale"
        else old
        for old in found
    ]


def _findings(one: Asked, place: _Place, sources: Mapping[Ref, SourceNow | HubExporterError]) -> list[Finding]:
    """One for each job that is there, or asked for. Raises the error of what cannot be read."""
    if not place.published:
        assert one.request is not None
        never = (Reason(kind="unpublished", text="it was never published"),)
        return [_finding(one, place, backend, variant, never) for backend, variant in _expected(one.request, None)]
    source = _source_now(one, place, sources)
    task = place.origin()[3]
    jobs = _expected(one.request, task) if one.request else _there(place)
    return [
        _judged(one, place, backend, variant, _wanted(one.request, task, backend), source) for backend, variant in jobs
    ]


def _source_now(one: Asked, place: _Place, sources: Mapping[Ref, SourceNow | HubExporterError]) -> SourceNow:
    ref, (published, _, commit, _) = _ref(one, place), place.origin()
    if ref is not None:
        now = sources[ref]
        if isinstance(now, HubExporterError):
            raise now
        _check_same(place, published, ref[0])
        return now
    if one.request is None:
        return SourceNow(commit)  # a folder that only its owner knows
    model = resolve(one.request)
    _check_same(place, published, model.name)
    return SourceNow(model.commit, {file.path: file.sha256 for file in model.files})


def _check_same(place: _Place, published: str, asked: str) -> None:
    if published != asked:
        raise TargetError(
            f"`{place.target}` holds exports of `{published}`", hint="Give each model a target of its own"
        )


def _expected(request: ModelRequest, task: str | None) -> list[tuple[str, str]]:
    """Backend and variant of what is asked for and can be made."""
    layout = TASKS[task].layout if task in TASKS else None
    return [
        (backend, variant)
        for backend, variant in cells(request.settings)
        if variant in BACKENDS[backend].variants and layout in (None, *BACKENDS[backend].layouts)
    ]


def _there(place: _Place) -> list[tuple[str, str]]:
    if place.state is not None and not place.state.others:
        found = [(backend, variant) for backend, _, variant in (name.partition(".") for name in place.state.jobs)]
    else:
        found = [(job.backend, job.variant) for job in place.index().jobs if job.status != "skipped"]
    return [(backend, variant) for backend, variant in found if backend in BACKENDS]


def _judged(one: Asked, place: _Place, backend: str, variant: str, wanted: Wanted, source: SourceNow) -> Finding:
    state, published = place.state, place.origin()
    own = place.repo == published[0]
    if state and is_current(state, backend, variant, BACKENDS[backend].folder, wanted, source, place.files, own):
        return _finding(one, place, backend, variant, (), _moved(one.target, published, source))
    index = place.index()
    job = next((job for job in index.jobs if (job.backend, job.variant) == (backend, variant)), None)
    if job is None:
        never = Reason(kind="unpublished", text="it was never published")
        return _finding(one, place, backend, variant, (never,))
    why = reasons(index, job, wanted, source, place.files)
    moved = "" if changed_source(index.source, source) else _moved(one.target, published, source)
    disagrees = f"it {job.status}es with its model, and would again" if job.status == "mismatch" and not why else ""
    return _finding(one, place, backend, variant, why, disagrees or moved)


def _moved(target: str, published: tuple[str, str | None, str, str], source: SourceNow) -> str:
    """What moved and is no reason."""
    name, _, commit, _ = published
    if commit == source.commit or name == target:
        return ""  # in its own repository it moves with every commit of ours
    return f"{name} moved from {commit[:12]} to {source.commit[:12]}, and what the model is made of is the same"


def _finding(one: Asked, place: _Place, backend: str, variant: str, why: tuple[Reason, ...], note: str = "") -> Finding:
    source = one.request.settings.source if one.request else place.origin()[0]
    name = one.name or job_name(source.partition("@")[0])
    return Finding(
        job=f"{name}.{backend}.{variant}",
        backend=backend,
        variant=variant,
        source=source,
        target=one.target,
        status="stale" if why else "current",
        reasons=why,
        note=note,
    )


# ── What would be made today ──────────────────────────────────────────────────────────────────────────────────────


def _wanted(request: ModelRequest | None, task: str, backend: str) -> Wanted:
    digest, lock = _lock(backend)
    if request is None:
        return Wanted(pins=digest, lock=lock)
    task = request.settings.task or task
    if task not in TASKS:
        return Wanted(request.settings, None, None, digest, lock)
    rows, revision = _rows(msgspec.json.encode(dataset_for(TASKS[task], request.settings.dataset)), task)
    return Wanted(request.settings, rows, revision, digest, lock)


@functools.cache
def _lock(backend: str) -> tuple[str, dict[str, str]]:
    return pins.digest(backend), pins.locked(backend)


@functools.cache
def _rows(dataset: bytes, task: str) -> tuple[str | None, str | None]:
    """Digest of the rows of a file, or the commit of a dataset on the Hub whose revision somebody named: where nobody
    did, what was published keeps its own."""
    spec = msgspec.json.decode(dataset, type=DatasetSpec)
    if spec.path == BUILTIN or keys.is_file(spec):
        from hub_exporter.sample import draw  # with numpy, which most checks do without

        return draw(spec, TASKS[task]).digest, None
    if spec.revision is None or _COMMIT.fullmatch(spec.revision):
        return None, spec.revision
    return None, hub.dataset_commit(spec.path, spec.revision)
