"""A finished run and what a target holds -> what it is to hold, and what changes by that. Nothing is written here.

The same for a folder and for a repository: files that hub-exporter did not write are never changed and never deleted,
but for the marked section of a README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter import adapt, clients, folder
from hub_exporter.card import OURS, TAGS, merge_card, render_card
from hub_exporter.chart import CHART, chart
from hub_exporter.errors import HubExporterError, TargetError
from hub_exporter.index import listed, make_index
from hub_exporter.metadata import read_json
from hub_exporter.records import INDEX_FILE, Artifact, Change, Index, JobResult, ModelRun, ResolvedModel, to_json
from hub_exporter.standing import Standing

CARD = "README.md"

PROGRAMS = ("export.json", "model.onnx", "openvino_model.xml", "model.pte", "model.pt2")
"""Names that a backend gives its files in any case: somebody else's are found before the work begins."""


@dataclass(frozen=True)
class Content:
    """What a target is to hold of ours."""

    index: Index
    made: Mapping[str, Path]
    """Files of this run, by their path in the target: they may be moved there."""
    carried: Mapping[str, Path]
    """Files that are to stay where they are, by their path in the target: side files of the model, in its folder, and
    results of other machines."""
    adapted: Mapping[str, bytes]
    """Side files that were made of the model's, by their path in the target."""
    card: bytes
    artifacts: Mapping[str, Artifact]
    """Sizes and digests of all of them, card and index included."""
    stale: tuple[str, ...]
    """Files of an earlier run that are not wanted any more."""

    def local(self, path: str) -> Path | None:
        """Where a file of this run or of the model is on this machine."""
        return self.made.get(path) or self.carried.get(path)

    def written(self) -> dict[str, bytes]:
        """Files that exist nowhere yet."""
        return {**self.adapted, CARD: self.card, INDEX_FILE: to_json(self.index)}


def worth_writing(run: ModelRun, require: str) -> bool:
    """Whether anything is to be written: something passed, and with `require="all"` nothing was lost."""
    statuses = {result.status for result in run.results}
    return "passed" in statuses and not (require == "all" and statuses & {"mismatch", "failed"})


def content_of(run: ModelRun, target: Standing, previous: Index | None, *, own: bool = False) -> Content:
    """What `target` is to hold after this run. `own`: it is the model's own repository, where its side files are.

    Raises TargetError for somebody else's file in the way, HubExporterError for a file that is not the verified one.
    """
    model = _without_our_tags(run.model) if own else run.model
    run = msgspec.structs.replace(run, model=model)
    index = make_index(run, (), previous, target)
    adapted = _adapted(target, previous, index, model, own)
    plain = () if own else tuple(artifact for artifact in side_files_of(model) if artifact.path not in adapted)
    side_files = tuple(
        sorted([*plain, *(folder.of_bytes(path, data) for path, data in adapted.items())], key=lambda a: a.path)
    )
    made = dict(_made(run, kept=False))
    planned = [*(artifact for artifact in _artifacts(run)), *side_files]
    carried = {artifact.path: Path(model.folder) / artifact.path for artifact in plain}
    carried |= dict(_made(run, kept=True))
    check_nothing_foreign(target, previous, planned, made | carried)
    index = msgspec.structs.replace(index, side_files=side_files)
    index = _with_clients(index, model, adapted)
    index, card = _with_card(index, target, previous, own)
    written = [folder.of_bytes(CARD, card), folder.of_bytes(INDEX_FILE, to_json(index))]
    artifacts = {artifact.path: artifact for artifact in [*planned, *written]}
    stale = tuple(_stale(target, previous, index, model, own))
    return Content(index, made, carried, adapted, card, artifacts, stale)


def _adapted(
    target: Standing, previous: Index | None, index: Index, model: ResolvedModel, own: bool
) -> dict[str, bytes]:
    """The side files that are made here, but for those in whose place somebody else's are."""
    home = own or str(folder.real(Path(model.folder))) == target.name
    ours = {artifact.path: artifact for artifact in (previous.side_files if previous else ())}
    drawn = chart(index.jobs)
    made = {**adapt.adapted(model, index.jobs, own=home), **({CHART: drawn.encode()} if drawn else {})}
    return {
        path: data
        for path, data in made.items()
        if not target.blocked(path) or (path in ours and target.holds(ours[path]))
    }


def _with_clients(index: Index, model: ResolvedModel, adapted: Mapping[str, bytes]) -> Index:
    """The index, each passed job with the clients that it satisfies and its size beside the weights."""

    def read(path: str) -> Mapping[str, Any]:
        if path in adapted:
            return msgspec.json.decode(adapted[path], type=dict[str, Any])
        return read_json(Path(model.folder), path, model.source) if path in model.side_files else {}

    side = frozenset({artifact.path for artifact in index.side_files} | set(model.side_files))

    def described(job: JobResult) -> JobResult:
        offer = clients.Offer(model, job, side, read)
        return msgspec.structs.replace(job, clients=clients.satisfied(offer), size_ratio=size_ratio(model, job))

    jobs = tuple(described(job) if job.status == "passed" else job for job in index.jobs)
    return msgspec.structs.replace(index, jobs=jobs)


def size_ratio(model: ResolvedModel, job: JobResult) -> float | None:
    """How large a job's graphs and weights are beside the model's parameters in float32, each tied one counted once."""
    parts = job.export.components if job.export else ()
    names = {f"{job.folder}/{name}" for part in parts for name in (part.file, part.data) if name}
    size = sum(artifact.size for artifact in job.artifacts if artifact.path in names)
    return round(size / (4 * model.parameters), 4) if size and model.parameters else None


def changes(target: Standing, content: Content) -> tuple[Change, ...]:
    """What putting `content` in place does to each file, in the order of their paths."""
    found = [_change(target, content, artifact) for artifact in content.artifacts.values()]
    gone = [Change(path=path, size=target.size(path), kind="deleted") for path in content.stale]
    return tuple(sorted([*found, *gone], key=lambda change: change.path))


def _change(target: Standing, content: Content, artifact: Artifact) -> Change:
    if not target.has(artifact.path):
        return Change(path=artifact.path, size=artifact.size, kind="added")
    same = target.holds(artifact, content.local(artifact.path))
    return Change(path=artifact.path, size=artifact.size, kind="unchanged" if same else "changed")


# ── Whose files are they ──────────────────────────────────────────────────────────────────────────────────────────


def check_same_model(target: Standing, previous: Index | None, model: ResolvedModel) -> None:
    """Raise TargetError where the target holds exports of another model."""
    if previous is not None and (previous.source.repo or previous.source.name) != (model.repo or model.name):
        raise TargetError(
            f"`{target.name}` holds exports of `{previous.source.repo or previous.source.name}`",
            hint="Give each model a target of its own with `--to`",
        )


def check_nothing_foreign(
    target: Standing, previous: Index | None, planned: Iterable[Artifact], local: Mapping[str, Path]
) -> None:
    """Raise TargetError for a file that would be replaced though somebody else wrote or changed it.

    What the previous index lists is ours; its side files only as long as they are as we wrote them, for people edit
    configurations. `local` is where the planned files are, as far as they exist yet.
    """
    ours = {artifact.path for job in previous.jobs for artifact in job.artifacts} if previous else set()
    side_files = {artifact.path: artifact for artifact in previous.side_files} if previous else {}
    for artifact in planned:
        path = artifact.path
        if not target.blocked(path) or (path in ours and target.has(path)) or target.holds(artifact, local.get(path)):
            continue
        if path not in side_files or not target.holds(side_files[path]):
            raise TargetError(
                f"{target.place(path)} is not from hub-exporter, or was changed since, and would be replaced",
                hint=target.aside,
            )


def programs(folders: Iterable[str]) -> list[Artifact]:
    """Files that the backends of these folders will write in any case; nobody knows their content yet."""
    return [Artifact(path=f"{name}/{file}", size=-1, sha256="") for name in folders for file in PROGRAMS]


def side_files_of(model: ResolvedModel) -> tuple[Artifact, ...]:
    """The files that come along with a model."""
    return tuple(folder.artifact(Path(model.folder), folder.inside(path)) for path in model.side_files)


def _stale(target: Standing, previous: Index | None, index: Index, model: ResolvedModel, own: bool) -> Iterator[str]:
    """Files that we wrote earlier, that are still as we wrote them, and that this index does not have.

    In the model's own folder the side files were there first; of its own repository only ours are listed.
    """
    current = {artifact.path for artifact in listed(index)} | {CARD, INDEX_FILE}
    if not own and str(folder.real(Path(model.folder))) == target.name:
        current |= {artifact.path for artifact in previous.side_files} if previous else set()
    for artifact in listed(previous):
        if artifact.path not in current and target.holds(artifact):
            yield artifact.path


# ── What it is to hold ────────────────────────────────────────────────────────────────────────────────────────────


def _artifacts(run: ModelRun) -> Iterator[Artifact]:
    for result in run.results:
        yield from result.artifacts if result.status == "passed" else ()


def _made(run: ModelRun, *, kept: bool) -> Iterator[tuple[str, Path]]:
    passed = [result for result in run.results if result.status == "passed" and (result.job in run.kept) == kept]
    for result in passed:
        place = Path(run.kept.get(result.job) or f"{run.work}/{result.job}")
        for artifact in result.artifacts:
            source = place / folder.inside(artifact.path)
            if not source.is_file() or source.stat().st_size != artifact.size:
                raise HubExporterError(f"`{source}` is not the file that was verified", hint="Report this: it is a bug")
            yield artifact.path, source


def _with_card(index: Index, target: Standing, previous: Index | None, own: bool) -> tuple[Index, bytes]:
    """The card, and the index that lists it only where all of it is ours."""
    existing = target.read(CARD)
    written = [artifact for artifact in (previous.side_files if previous else ()) if artifact.path == CARD]
    if existing is not None and folder.of_bytes(CARD, existing) not in written:
        text = existing.decode("utf-8", "surrogateescape")
        return index, merge_card(text, index, own=own).encode("utf-8", "surrogateescape")
    card = render_card(index, own=own).encode("utf-8")
    return msgspec.structs.replace(index, side_files=(*index.side_files, folder.of_bytes(CARD, card))), card


def _without_our_tags(model: ResolvedModel) -> ResolvedModel:
    """In the model's own repository the card has our tags from the run before."""
    ours = {*OURS, *TAGS.values()}
    return msgspec.structs.replace(model, tags=tuple(tag for tag in model.tags if tag not in ours))
