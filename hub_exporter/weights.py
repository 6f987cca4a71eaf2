"""Weights on the Hub: known by their headers and digests first, fetched when a job needs them."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

from hub_exporter import hub
from hub_exporter.checkpoint import LocalWeights
from hub_exporter.errors import SourceError
from hub_exporter.hub import Snapshot
from hub_exporter.records import ResolvedModel, SourceFile

_HEADER_GUESS = 100_000
"""Bytes that are asked for first: the headers of most files are shorter."""


class SnapshotWeights:
    """The weights of a snapshot: in its folder, or on the Hub, of which no more than the headers is read."""

    def __init__(self, snapshot: Snapshot):
        self._snapshot, self._local = snapshot, LocalWeights(snapshot.folder)
        self._heads: dict[str, bytes] = {}

    def size(self, name: str) -> int | None:
        """See `Weights`."""
        remote = self._snapshot.remote.get(name)
        return remote.size if remote else self._local.size(name)

    def head(self, name: str, count: int) -> bytes:
        """See `Weights`."""
        if name not in self._snapshot.remote:
            return self._local.head(name, count)
        if len(self._heads.get(name, b"")) < min(count, self._snapshot.remote[name].size):
            asked = max(count, _HEADER_GUESS)
            self._heads[name] = hub.head(self._snapshot.repo, self._snapshot.commit, name, asked)
        return self._heads[name][:count]


def file_of(snapshot: Snapshot, name: str) -> SourceFile:
    """Size and digest of a file of a snapshot: as the Hub says where it was left there."""
    remote = snapshot.remote.get(name)
    if remote and remote.sha256:
        return SourceFile(path=name, size=remote.size, sha256=remote.sha256)
    there = snapshot.files.get(name)
    return _digest(snapshot.folder, name, there.blob if there and there.sha256 is None else None)


def _digest(folder: Path, name: str, blob: str | None = None) -> SourceFile:
    path = folder / name
    size = path.stat().st_size
    with path.open("rb") as file:  # mapped, because reading copies: a third of the time on large weights
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        digest = hashlib.sha256(content).hexdigest()
    return SourceFile(path=name, size=size, sha256=digest, blob=blob)


def missing_weights(model: ResolvedModel) -> int:
    """Bytes of the model that are still on the Hub."""
    return sum(file.size for file in _absent(model))


def fetch_weights(model: ResolvedModel) -> None:
    """Fetch what resolving left on the Hub, into the same folder. Raises SourceError for content that is not what the
    Hub said, HubError when the Hub fails."""
    absent = _absent(model)
    if not absent or model.repo is None:
        return
    hub.fetch(model.repo, model.commit, code=model.remote_code)
    for file in absent:
        if _digest(Path(model.folder), file.path) != file:
            raise SourceError(
                f"`{model.source}`: `{file.path}` did not arrive as it is on the Hub",
                hint="Delete it from the cache (`hf cache rm`), and run the command again",
            )


def _absent(model: ResolvedModel) -> list[SourceFile]:
    return [file for file in model.files if not (Path(model.folder) / file.path).is_file()]
