"""Where exports go, a folder or a repository on the Hub, behind one face: prepare, work, publish."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hub_exporter import publish, push
from hub_exporter.plan import hub_target
from hub_exporter.records import ModelRun, Publication, ResolvedModel


@dataclass(frozen=True)
class Wishes:
    """What the command line and the recipe say about publishing."""

    require: str = "any"
    """`any` publishes what passed, `all` nothing unless every job did."""
    create_pr: bool = False
    dry_run: bool = False


class Target(Protocol):
    """A place to publish to."""

    def prepare(self, model: ResolvedModel, needed: int, folders: Iterable[str]) -> None:
        """Refuse, before any work, what could not be published in the end."""
        ...

    def open_work(self, *, keep: bool) -> AbstractContextManager[Path]:
        """A folder to work in."""
        ...

    def publish(self, run: ModelRun) -> Publication | None:
        """Put in place what passed; `None` where nothing is to be."""
        ...


def target_of(target: str, wishes: Wishes) -> Target:
    """What a target of the plan names. Raises UsageError."""
    repo = hub_target(target)
    return _Repository(repo, wishes) if repo else _Folder(Path(target), wishes)


@dataclass(frozen=True)
class _Folder:
    path: Path
    wishes: Wishes

    def prepare(self, model: ResolvedModel, needed: int, folders: Iterable[str]) -> None:
        publish.prepare_target(self.path, model, needed, folders)

    def open_work(self, *, keep: bool) -> AbstractContextManager[Path]:
        return publish.open_work(self.path, keep=keep)

    def publish(self, run: ModelRun) -> Publication | None:
        return publish.write_folder(self.path, run, require=self.wishes.require, dry_run=self.wishes.dry_run)


@dataclass(frozen=True)
class _Repository:
    repo: str
    wishes: Wishes

    def prepare(self, model: ResolvedModel, needed: int, folders: Iterable[str]) -> None:
        push.prepare_repository(self.repo, model, needed, folders, create_pr=self.wishes.create_pr)

    def open_work(self, *, keep: bool) -> AbstractContextManager[Path]:
        return push.open_work(self.repo, keep=keep)

    def publish(self, run: ModelRun) -> Publication | None:
        wishes = self.wishes
        return push.publish(self.repo, run, require=wishes.require, create_pr=wishes.create_pr, dry_run=wishes.dry_run)
