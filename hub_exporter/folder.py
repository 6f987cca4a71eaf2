"""A folder that others read, and that may hold other people's files: working beside it, and putting files in at once.

Every change is a renaming on the folder's own file system, and is taken back when a later one fails.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from hub_exporter import wording
from hub_exporter.errors import TargetError
from hub_exporter.files import LARGEST_IN_GIT, git_name
from hub_exporter.records import Artifact


def real(target: Path) -> Path:
    """The absolute path with symbolic links and `~` followed, so that a link to a folder stays one."""
    return Path(os.path.realpath(target.expanduser()))


@contextlib.contextmanager
def open_work(target: Path, *, keep: bool = False) -> Iterator[Path]:
    """A new folder on the target's file system, removed at the end unless it is to be kept.

    It lies beside the target, or inside it where the target is a mount point or its parent cannot be written. Raises
    TargetError where it cannot be made.
    """
    base, prefix = working_place(real(target))
    made = _missing(base)
    with explained(target):
        base.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    try:
        yield work
    finally:
        if not keep:
            shutil.rmtree(work, ignore_errors=True)  # what cannot be removed must not hide how the run ended
        _remove_empty(made)


def working_place(target: Path) -> tuple[Path, str]:
    """Folder to work in, and the beginning of the name to work under."""
    parent = target.parent
    if target.is_dir() and (target.stat().st_dev != parent.stat().st_dev or not os.access(parent, os.W_OK)):
        return target, ".hub-exporter-"
    return parent, f".{target.name}.hub-exporter-"


def check_writable(target: Path, needed: int) -> None:
    """Raise TargetError unless `target` can be made or written and has `needed` bytes free."""
    with explained(target, needed):
        base, _ = working_place(target)
        existing = next(folder for folder in (base, *base.parents) if folder.exists())
        for folder in {existing, target} if target.exists() else {existing}:
            tempfile.TemporaryDirectory(prefix=".hub-exporter-", dir=folder).cleanup()
        if shutil.disk_usage(existing).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def explained(target: Path, needed: int = 0) -> Iterator[None]:
    """Turn what the operating system refuses into a TargetError that says what was needed and what there is."""
    try:
        yield
    except OSError as error:
        raise _target_error(target, needed, error) from error


def _target_error(target: Path, needed: int, error: OSError) -> TargetError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        existing = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
        free = wording.size(shutil.disk_usage(existing).free)
        need = f"about {wording.size(needed)} needed, " if needed else ""
        hint = "Free some space, export fewer backends at once, or name a folder on another disk with `--to`"
        return TargetError(f"No space left for `{target}`: {need}{free} free", hint=hint)
    where = f" (`{error.filename}`)" if error.filename else ""
    hint = "Name a folder that you may write with `--to`"
    return TargetError(f"`{target}` cannot be written: {error.strerror or error}{where}", hint=hint)


# ── Files in it ───────────────────────────────────────────────────────────────────────────────────────────────────


def inside(path: str) -> str:
    """`path`, if it stays inside the folder that it is relative to; raises ValueError otherwise."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\\" in path or "\0" in path:
        raise ValueError(f"`{path}` is not a path inside the folder")
    return path


def artifact(root: Path, path: str) -> Artifact:
    """Size and digests of a file of `root`."""
    size = (root / path).stat().st_size
    if size <= LARGEST_IN_GIT:
        return of_bytes(path, (root / path).read_bytes())
    with (root / path).open("rb") as file:
        return Artifact(path=path, size=size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def of_bytes(path: str, data: bytes) -> Artifact:
    """The same of a small file that is yet to be written."""
    return Artifact(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=git_name(data))


def holds(root: Path, expected: Artifact) -> bool:
    """Whether the file is there with this very content."""
    path = root / expected.path
    if not path.is_file() or path.stat().st_size != expected.size:
        return False
    made = artifact(root, expected.path)
    return made.sha256 == expected.sha256 and expected.blob in (None, made.blob)


class Folder:
    """What a folder holds (see `Standing`)."""

    aside = "Move it away, or choose another folder with `--to`"

    def __init__(self, root: Path):
        self.root, self.name = root, str(root)

    def place(self, path: str) -> str:  # noqa: D102
        return f"`{self.root / path}`"

    def has(self, path: str) -> bool:  # noqa: D102
        return (self.root / path).is_file()

    def blocked(self, path: str) -> bool:  # noqa: D102
        return (self.root / path).exists()

    def size(self, path: str) -> int:  # noqa: D102
        return (self.root / path).stat().st_size

    def read(self, path: str) -> bytes | None:  # noqa: D102
        return (self.root / path).read_bytes() if self.has(path) else None

    def holds(self, artifact: Artifact, local: Path | None = None) -> bool:  # noqa: D102
        return holds(self.root, artifact)


def move(source: Path, destination: Path) -> None:
    """Rename a file; copied where `source` is on another file system. Never linked: readers refuse linked weights."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, destination)


def is_replaceable(target: Path) -> bool:
    """Whether `target` can be put in place as a whole: it is not there, or empty and nobody stands in it."""
    if not target.exists():
        return True
    return not any(target.iterdir()) and not os.path.ismount(target) and not target.samefile(Path.cwd())


def replace_whole(stage: Path, target: Path) -> None:
    """Put a staged folder in the place of one that is missing or empty."""
    if target.exists():
        shutil.copymode(target, stage)
    stage.replace(target)


def replace_files(stage: Path, target: Path, aside: Path, paths: Iterable[str]) -> None:
    """Put the staged files in, in this order, each over what was there. All of them, or none where one fails.

    `aside` is a folder on the same file system that keeps the old files until the end.
    """
    with contextlib.ExitStack() as undo:
        for path in paths:
            new, destination, old = stage / path, target / path, aside / path
            for folder in reversed(_missing(destination.parent)):
                folder.mkdir()
                undo.callback(_remove_empty, [folder])
            if os.path.lexists(destination):
                undo.callback(_put_back, old, destination)
                _keep(destination, old)
            else:
                undo.callback(destination.unlink, missing_ok=True)
            new.replace(destination)
        undo.pop_all()


def remove_files(target: Path, paths: Iterable[str]) -> None:
    """Delete files, and the folders that are empty then."""
    for path in paths:
        (target / path).unlink(missing_ok=True)
        _remove_empty([target / parent for parent in PurePosixPath(path).parents if parent.parts])


def _keep(file: Path, old: Path) -> None:
    """A second name for `file` for the time being; where the file system has no links its only one."""
    old.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, old, follow_symlinks=False)
    except OSError:
        file.replace(old)


def _put_back(old: Path, file: Path) -> None:
    if os.path.lexists(old):
        old.replace(file)


def _missing(folder: Path) -> list[Path]:
    """`folder` and those above it that do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove those that are there and empty, in this order."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
