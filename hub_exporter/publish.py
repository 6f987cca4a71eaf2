"""A finished run -> a folder laid out like a Hub repository: files, side files, card and index, put in place at once.

Files that hub-exporter did not write are never changed and never deleted, but for the marked section of a README.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hub_exporter import folder
from hub_exporter.card import merge_card, render_card
from hub_exporter.errors import HubExporterError, TargetError
from hub_exporter.folder import open_work
from hub_exporter.index import listed, make_index, read_index
from hub_exporter.records import INDEX_FILE, Artifact, Index, ModelRun, ResolvedModel, to_json

__all__ = ["needed_bytes", "open_work", "prepare_target", "read_index", "write_folder"]

CARD = "README.md"

PROGRAMS = ("export.json", "model.onnx", "openvino_model.xml", "model.pte", "model.pt2")
"""Names that a backend gives its files in any case: somebody else's are found before the work begins."""


def needed_bytes(model: ResolvedModel, jobs: int) -> int:
    """Disk that exporting takes: an fp32 copy of the weights per job, a third more for what some formats store twice,
    and one copy in transit."""
    return int(model.parameters * 4 * (1.33 * jobs + 1)) + 64_000_000


def prepare_target(target: Path, model: ResolvedModel, needed: int, folders: Iterable[str] = ()) -> None:
    """Refuse a target that could not be written in the end, before any work is done for it.

    `needed` bytes of free disk are asked for; `folders` are those of the planned backends, relative to the target.
    Raises TargetError.
    """
    target = folder.real(target)
    if target.exists() and not target.is_dir():
        raise TargetError(f"`{target}` is a file", hint="Name a folder with `--to`")
    previous = read_index(target)
    _check_same_model(target, previous, model)
    programs = [Artifact(path=f"{name}/{file}", size=-1, sha256="") for name in folders for file in PROGRAMS]
    _check_nothing_foreign(target, previous, [*programs, *_source_side_files(model)])
    folder.check_writable(target, needed)


def write_folder(target: Path, run: ModelRun, *, require: str = "any") -> bool:
    """Write what passed into `target`, and say whether anything was written.

    Nothing is where no job passed, or with `require="all"` where one did not. Raises TargetError, and then the target
    is as it was.
    """
    passed = [result for result in run.results if result.status == "passed"]
    lost = [result for result in run.results if result.status in ("mismatch", "failed")]
    if not passed or (require == "all" and lost):
        return False
    target = folder.real(target)
    previous = read_index(target)
    _check_same_model(target, previous, run.model)
    artifacts = [artifact for result in passed for artifact in result.artifacts]
    _check_nothing_foreign(target, previous, [*artifacts, *_source_side_files(run.model)])
    with folder.explained(target, sum(artifact.size for artifact in artifacts)), open_work(target) as staging:
        stage = staging / "new"
        stage.mkdir()
        index = _stage(stage, target, run, previous)
        if folder.is_replaceable(target):
            folder.replace_whole(stage, target)
        else:
            folder.replace_files(stage, target, staging / "old", _staged(stage, target, index))
            folder.remove_files(target, _stale(target, previous, index, run.model))
    return True


# ── Whose files are they ──────────────────────────────────────────────────────────────────────────────────────────


def _check_same_model(target: Path, previous: Index | None, model: ResolvedModel) -> None:
    if previous is not None and (previous.source.repo or previous.source.name) != (model.repo or model.name):
        raise TargetError(
            f"`{target}` holds exports of `{previous.source.repo or previous.source.name}`",
            hint="Give each model a folder of its own with `--to`",
        )


def _check_nothing_foreign(target: Path, previous: Index | None, planned: Iterable[Artifact]) -> None:
    """Raise TargetError for a file that would be replaced though somebody else wrote or changed it.

    What the previous index lists is ours; its side files only as long as they are as we wrote them, for people edit
    configurations.
    """
    ours = {artifact.path for job in previous.jobs for artifact in job.artifacts} if previous else set()
    side_files = {artifact.path: artifact for artifact in previous.side_files} if previous else {}
    for artifact in planned:
        path = target / artifact.path
        written = side_files.get(artifact.path)
        if not path.exists() or (artifact.path in ours and path.is_file()) or folder.holds(target, artifact):
            continue
        if written is None or not folder.holds(target, written):
            raise TargetError(
                f"`{path}` is not from hub-exporter, or was changed since, and would be replaced",
                hint="Move it away, or choose another folder with `--to`",
            )


def _stale(target: Path, previous: Index | None, index: Index, model: ResolvedModel) -> list[str]:
    """Files that we wrote earlier, that are still as we wrote them, and that this index does not have.

    In the model's own folder the side files were there first.
    """
    current = {artifact.path for artifact in listed(index)} | {CARD, INDEX_FILE}
    if folder.real(Path(model.folder)) == target:
        current |= {artifact.path for artifact in previous.side_files} if previous else set()
    gone = [artifact for artifact in listed(previous) if artifact.path not in current]
    return [artifact.path for artifact in gone if folder.holds(target, artifact)]


# ── Staging ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _stage(stage: Path, target: Path, run: ModelRun, previous: Index | None) -> Index:
    """Everything that the target will get, under `stage`. Returns the index."""
    for result in run.results:
        for artifact in result.artifacts if result.status == "passed" else ():
            _stage_artifact(Path(run.work) / result.job, stage, artifact)
    side_files = _source_side_files(run.model)
    for side_file in side_files:
        (stage / side_file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(run.model.folder) / side_file.path, stage / side_file.path)
    index = _stage_card(stage, target, make_index(run, side_files, previous, target), previous)
    (stage / INDEX_FILE).write_bytes(to_json(index))
    for path in stage.rglob("*"):
        if path.is_file():
            shutil.copymode(stage / INDEX_FILE, path)  # some writers make files that only their owner may read
    return index


def _stage_artifact(made: Path, stage: Path, artifact: Artifact) -> None:
    source = made / folder.inside(artifact.path)
    if not source.is_file() or source.stat().st_size != artifact.size:
        raise HubExporterError(f"`{source}` is not the file that was verified", hint="Report this: it is a bug")
    folder.move(source, stage / artifact.path)


def _stage_card(stage: Path, target: Path, index: Index, previous: Index | None) -> Index:
    """Write the card. The index lists it only where all of it is ours."""
    existing = target / CARD
    written = [artifact for artifact in (previous.side_files if previous else ()) if artifact.path == CARD]
    if existing.exists() and not (written and folder.holds(target, written[0])):
        text = existing.read_bytes().decode("utf-8", "surrogateescape")
        (stage / CARD).write_bytes(merge_card(text, index).encode("utf-8", "surrogateescape"))
        return index
    (stage / CARD).write_bytes(render_card(index).encode("utf-8"))
    return msgspec.structs.replace(index, side_files=(*index.side_files, folder.artifact(stage, CARD)))


def _staged(stage: Path, target: Path, index: Index) -> list[str]:
    """Paths to put in place, without side files that are there already, the index last."""
    same = {artifact.path for artifact in index.side_files if folder.holds(target, artifact)}
    paths = (path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
    return sorted(set(paths) - same, key=lambda path: (path == INDEX_FILE, path))


def _source_side_files(model: ResolvedModel) -> tuple[Artifact, ...]:
    return tuple(folder.artifact(Path(model.folder), folder.inside(path)) for path in model.side_files)
