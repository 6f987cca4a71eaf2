"""What a target holds before anything is written, whether it is a folder or a repository on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from hub_exporter.records import Artifact


class Standing(Protocol):
    """One state of a target. Paths are relative to it."""

    name: str
    """For messages: the folder, or the repository."""
    aside: str
    """What to do about somebody else's file that is in the way."""

    def place(self, path: str) -> str:
        """A file in words, for messages."""
        ...

    def has(self, path: str) -> bool:
        """Whether there is a file of this name."""
        ...

    def blocked(self, path: str) -> bool:
        """Whether there is anything of this name."""
        ...

    def size(self, path: str) -> int:
        """Bytes of a file that is there."""
        ...

    def read(self, path: str) -> bytes | None:
        """A file's content, `None` where there is none. For small files."""
        ...

    def holds(self, artifact: Artifact, local: Path | None = None) -> bool:
        """Whether the file is there with this very content; `local` has it too, where it is at hand."""
        ...
