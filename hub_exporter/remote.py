"""What a repository on the Hub holds, as a place to publish to."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hub_exporter import hub
from hub_exporter.files import git_name
from hub_exporter.hub import Revision
from hub_exporter.records import Artifact


class Repository:
    """What a repository holds at one commit (see `Standing`); nothing at all where it is yet to be made."""

    aside = "Move it away on the Hub, or publish to a repository of its own with `--to`"

    def __init__(self, name: str, at: Revision | None):
        self.name, self.at = name, at
        self._files = at.files if at else {}

    def place(self, path: str) -> str:  # noqa: D102
        return f"`{path}` in `{self.name}`"

    def has(self, path: str) -> bool:  # noqa: D102
        return path in self._files

    def blocked(self, path: str) -> bool:  # noqa: D102
        return path in self._files or any(name.startswith(f"{path}/") for name in self._files)

    def size(self, path: str) -> int:  # noqa: D102
        return self._files[path].size

    def read(self, path: str) -> bytes | None:  # noqa: D102
        return hub.content(self.name, self.at.commit, path) if self.at and path in self._files else None

    def holds(self, artifact: Artifact, local: Path | None = None) -> bool:
        """The Hub tells digests; only a small file that is not at hand has to be read."""
        there = self._files.get(artifact.path)
        if there is None or there.size != artifact.size:
            return False
        if there.sha256 is not None:
            return there.sha256 == artifact.sha256
        if artifact.blob or local is not None:
            return there.blob == (artifact.blob or git_name(local.read_bytes() if local else b""))
        return hashlib.sha256(self.read(artifact.path) or b"").hexdigest() == artifact.sha256

    def has_bytes(self, path: str, data: bytes) -> bool:
        """Whether a small file has this content."""
        there = self._files.get(path)
        if there is not None and there.sha256 is not None:  # where its owner keeps such files as large ones
            return there.sha256 == hashlib.sha256(data).hexdigest()
        return there is not None and there.blob == git_name(data)
