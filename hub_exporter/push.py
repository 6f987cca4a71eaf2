"""A finished run -> one commit on the Hub, or one pull request: all of it or nothing, and once however often tried.

Every attempt starts from what the repository holds at that moment. So a conflict is merged anew, and after an answer
that was lost the next look tells whether the commit was made.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hub_exporter import folder, hub, hub_write
from hub_exporter.card import proposal_title, render_pull_request
from hub_exporter.errors import HubError
from hub_exporter.hub import Revision
from hub_exporter.hub_write import Pushed, Unsettled, Upload
from hub_exporter.index import read_index
from hub_exporter.records import Change, Index, ModelRun, Publication, ResolvedModel
from hub_exporter.remote import Repository
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

ATTEMPTS = 8
"""How often a commit is tried while others commit as well, or the Hub does not answer."""


# ── Before the work ───────────────────────────────────────────────────────────────────────────────────────────────


def prepare_repository(
    repo: str, model: ResolvedModel, needed: int, folders: Iterable[str] = (), *, create_pr: bool = False
) -> None:
    """Refuse a repository that could not be published to in the end, before any work is done for it.

    `needed` bytes of free disk are asked for; `folders` are those of the planned backends, relative to the repository.
    Raises HubError for a missing right, TargetError for somebody else's files.
    """
    hub_write.require_credential(repo)
    at = hub.look(repo)
    if at is None:
        hub_write.check_may_create(repo)
    elif create_pr:
        hub_write.check_may_propose(repo)
    else:
        hub_write.check_writable(repo)
    standing = Repository(repo, at)
    previous = read_index(standing)
    check_same_model(standing, previous, model)
    side_files = () if repo == model.repo else side_files_of(model)
    local = {artifact.path: Path(model.folder) / artifact.path for artifact in side_files}
    check_nothing_foreign(standing, previous, [*programs(folders), *side_files], local)
    folder.check_writable(_work_place(repo), needed)


@contextmanager
def open_work(repo: str, *, keep: bool = False) -> Iterator[Path]:
    """A new folder for the files on their way to the Hub, on the disk of the temporary files."""
    with folder.open_work(_work_place(repo), keep=keep) as work:
        yield work


def _work_place(repo: str) -> Path:
    return Path(tempfile.gettempdir()) / repo.rpartition("/")[2]


# ── Publishing ────────────────────────────────────────────────────────────────────────────────────────────────────


def publish(
    repo: str, run: ModelRun, *, require: str = "any", create_pr: bool = False, dry_run: bool = False
) -> Publication | None:
    """Put what passed into `repo`, as a commit or as a pull request; `dry_run` only says what that would change.

    `None` where no job passed, or with `require="all"` where one did not: nothing is published then. Raises HubError
    and TargetError, and then the repository is as others have it.
    """
    if not worth_writing(run, require):
        return None
    publishing = _Publishing(repo, run, create_pr, dry_run)
    for _ in range(ATTEMPTS):
        try:
            return publishing.attempt()
        except Unsettled as unsettled:
            time.sleep(unsettled.pause)
    raise HubError(
        f"Nothing could be published to `{repo}` in {ATTEMPTS} attempts: others commit to it, or the Hub is too busy",
        hint="Run the command again later: what was uploaded stays",
    )


class _Publishing:
    """One publication and what its attempts have in common."""

    def __init__(self, repo: str, run: ModelRun, create_pr: bool, dry_run: bool):
        self._repo, self._run, self._create_pr, self._dry_run = repo, run, create_pr, dry_run
        self._own = repo == run.model.repo
        self._files: tuple[Change, ...] = ()
        """What the first attempt that pushed was about to change."""

    def attempt(self) -> Publication:
        """Look, compare, and change what differs. Raises Unsettled where that has to begin again."""
        main = Repository(self._repo, hub.look(self._repo))
        content, files = self._compared(main)
        if _nothing(files) or self._dry_run:
            return self._published(main.at.commit if main.at and not self._dry_run else None, files)
        if main.at is None:
            hub_write.create(self._repo, private=self._restricted())
            raise Unsettled(0.0)
        if self._create_pr:
            return self._propose(main, content, files)
        pushed = self._push(main.at, content, files)
        self._check(pushed.commit, content)
        return self._published(pushed.commit, files, url=pushed.url)

    def _compared(self, standing: Repository) -> tuple[Content, tuple[Change, ...]]:
        previous = read_index(standing)
        check_same_model(standing, previous, self._run.model)
        content = content_of(self._run, standing, previous, own=self._own)
        return content, changes(standing, content)

    def _restricted(self) -> bool:
        """Exports of a model that not everybody can read are not for everybody either."""
        source = hub.look(self._run.model.repo) if self._run.model.repo else None
        return source.restricted if source else self._run.model.repo is not None

    def _push(self, at: Revision, content: Content, files: tuple[Change, ...], **options: Any) -> Pushed:
        self._files = self._files or files
        uploads = [_upload(content, change.path) for change in files if change.kind in ("added", "changed")]
        deletions = [change.path for change in files if change.kind == "deleted"]
        return hub_write.push(at, uploads, deletions, _message(content.index), **options)

    def _propose(self, main: Repository, content: Content, files: tuple[Change, ...]) -> Publication:
        """One pull request: ours that is open, whatever commit of the model it was opened for, or a new one."""
        author, title = hub_write.check_may_propose(self._repo), _message(content.index)
        found = hub.find_proposal(self._repo, proposal_title(content.index.source), author)
        if found is None:
            assert main.at is not None
            text = render_pull_request(content.index, self._repo, None)
            pushed = self._push(main.at, content, files, propose=True, description=text)
            commit, number = pushed.commit, pushed.pull_request
            assert number is not None
            self._only_one(number, author, content.index.source)
        else:
            number, branch = found.number, f"refs/pr/{found.number}"
            standing = Repository(self._repo, hub.look(self._repo, branch))
            assert standing.at is not None
            content, files = self._compared(standing)
            commit = standing.at.commit
            if not _nothing(files):
                commit = self._push(standing.at, content, files, branch=branch).commit
            if found.title != title:
                hub_write.retitle(self._repo, number, title)
        self._check(commit, content)
        url = hub_write.describe(self._repo, number, render_pull_request(content.index, self._repo, number))
        return self._published(commit, files, number, url)

    def _only_one(self, number: int, author: str, model: ResolvedModel) -> None:
        """Somebody may have opened one at the same time: the later of them is closed, and the other one updated."""
        first = hub.find_proposal(self._repo, proposal_title(model), author)
        if first is not None and first.number < number:
            hub_write.close(self._repo, number, f"The same as pull request {first.number}, which was opened before it.")
            raise Unsettled(0.0)

    def _check(self, commit: str, content: Content) -> None:
        """Read the published revision again: every file of this run is there, as it was verified."""
        at = hub.look(self._repo, commit)
        published, written = Repository(self._repo, at), content.written()
        for path, local in content.made.items():
            if not published.holds(content.artifacts[path], local):
                raise _not_there(self._repo, commit, path)
        for path, data in written.items():
            if not published.has_bytes(path, data):
                raise _not_there(self._repo, commit, path)

    def _published(
        self, commit: str | None, files: tuple[Change, ...], number: int | None = None, url: str | None = None
    ) -> Publication:
        """After a lost answer nothing differs any more: then the commit was ours, and changed what it was to change."""
        return Publication(
            target=self._repo,
            files=self._files or files,
            commit=commit,
            pull_request=number,
            url=url,
            unchanged=_nothing(self._files or files),
            dry_run=self._dry_run,
        )


def _upload(content: Content, path: str) -> Upload:
    return Upload(path, content.local(path) or content.written()[path], content.artifacts[path].sha256)


def _nothing(files: tuple[Change, ...]) -> bool:
    return all(change.kind == "unchanged" for change in files)


def _message(index: Index) -> str:
    """Title of the commit or pull request: the same for the same state of the source."""
    return proposal_title(index.source) + index.source.commit.removeprefix("sha256:")[:12]


def _not_there(repo: str, commit: str, path: str) -> HubError:
    return HubError(
        f"`{repo}` at `{commit}` does not hold `{path}` as it was verified",
        hint="Run the command again; if it stays so, report it: it is a bug",
    )
