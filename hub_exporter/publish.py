"""A finished run -> a folder laid out like a Hub repository: files, side files, card and index, all at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from hub_exporter import folder
from hub_exporter.errors import TargetError
from hub_exporter.folder import Folder, open_work
from hub_exporter.index import read_index
from hub_exporter.records import INDEX_FILE, ModelRun, Publication, ResolvedModel
from hub_exporter.staging import (
    Content,
    changes,
    check_nothing_foreign,
    check_same_model,
    content_of,
    programs,
    side_files_of,
    worth_writing,
)

__all__ = ["open_work", "prepare_target", "write_folder"]


def prepare_target(target: Path, model: ResolvedModel, needed: int, folders: Iterable[str] = ()) -> None:
    """Refuse a target that could not be written in the end, before any work is done for it.

    `needed` bytes of free disk are asked for; `folders` are those of the planned backends, relative to the target.
    Raises TargetError.
    """
    target = folder.real(target)
    if target.exists() and not target.is_dir():
        raise TargetError(f"`{target}` is a file", hint="Name a folder with `--to`")
    standing = Folder(target)
    previous = read_index(standing)
    check_same_model(standing, previous, model)
    check_nothing_foreign(standing, previous, [*programs(folders), *side_files_of(model)], {})
    folder.check_writable(target, needed)


def write_folder(target: Path, run: ModelRun, *, require: str = "any", dry_run: bool = False) -> Publication | None:
    """Write what passed into `target`, and say what that changed; `dry_run` only says it.

    `None` where no job passed, or with `require="all"` where one did not: nothing is written then. Raises TargetError,
    and then the target is as it was.
    """
    if not worth_writing(run, require):
        return None
    target = folder.real(target)
    standing = Folder(target)
    previous = read_index(standing)
    check_same_model(standing, previous, run.model)
    with folder.explained(target, sum(a.size for result in run.results for a in result.artifacts)):
        content = content_of(run, standing, previous)
        files = changes(standing, content)
        unchanged = all(change.kind == "unchanged" for change in files)
        if not (dry_run or unchanged):
            _put(target, content)
    return Publication(target=str(target), files=files, unchanged=unchanged, dry_run=dry_run)


def _put(target: Path, content: Content) -> None:
    with open_work(target) as staging:
        stage = staging / "new"
        stage.mkdir()
        _stage(stage, content)
        if folder.is_replaceable(target):
            folder.replace_whole(stage, target)
        else:
            folder.replace_files(stage, target, staging / "old", _staged(stage, target, content))
            folder.remove_files(target, content.stale)


def _stage(stage: Path, content: Content) -> None:
    """Everything that the target will get, under `stage`."""
    for path, source in content.made.items():
        folder.move(source, stage / path)
    for path, source in content.carried.items():
        (stage / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, stage / path)
    for path, data in content.written().items():
        (stage / path).write_bytes(data)
    for file in stage.rglob("*"):
        if file.is_file():
            shutil.copymode(stage / INDEX_FILE, file)  # some writers make files that only their owner may read


def _staged(stage: Path, target: Path, content: Content) -> list[str]:
    """Paths to put in place, without side files that are there already, the index last."""
    same = {artifact.path for artifact in content.index.side_files if folder.holds(target, artifact)}
    paths = (path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
    return sorted(set(paths) - same, key=lambda path: (path == INDEX_FILE, path))
