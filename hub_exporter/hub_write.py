"""The door to the Hub for writing: rights, one atomic commit, pull requests. Only the publishing process opens it.

The token stays inside the client: it is in no message, and no other process is given it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub_exporter.errors import HubError
from hub_exporter.hub import LOGIN, Revision, explained, patiently, transient, wait

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

WRITE_HINT = f"Use a token with the role `write`: {LOGIN}"


class Unsettled(Exception):
    """A commit was refused because others were quicker, or nobody knows whether it was made: look again.

    `pause` seconds from now, or at once.
    """

    def __init__(self, pause: float):
        super().__init__("a commit is not settled")
        self.pause = pause


@dataclass(frozen=True)
class Upload:
    """A file to be: its content is a file on this machine, or bytes. The digest is known already."""

    path: str
    content: Path | bytes
    sha256: str


@dataclass(frozen=True)
class Pushed:
    """A commit that was made."""

    commit: str
    url: str
    pull_request: int | None = None


# ── Rights, before any work begins ────────────────────────────────────────────────────────────────────────────────


def require_credential(repo: str) -> None:
    """Raise HubError unless there is something to publish to `repo` with: trusted publishing first, else a token."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import OIDCError

    _publish_as_workflow(repo)
    try:
        with explained(repo, None, "model"):
            token = get_token()
    except OIDCError as error:
        raise HubError(
            f"Trusted publishing to `{repo}` is asked for (`HF_OIDC_RESOURCE`), and there is no identity to show",
            hint="Give the job `permissions: id-token: write`, or unset `HF_OIDC_RESOURCE` and use a token",
        ) from error
    except HubError as error:
        if not os.environ.get("HF_OIDC_RESOURCE"):
            raise
        raise HubError(
            f"The Hub does not accept this workflow as a trusted publisher of `{repo}`",
            hint="Add it in the settings of the repository, under Trusted publishers; "
            f"`HF_OIDC_RESOURCE` has to be `{repo}`",
        ) from error
    if not token:
        raise HubError(f"There is no token to publish to `{repo}` with", hint=WRITE_HINT)


def _publish_as_workflow(repo: str) -> None:
    """Ask for trusted publishing where a job of GitHub Actions has an identity to show, and no token.

    The client looks for the variable at every request. The token that it exchanges for it is for this repository alone.
    """
    if os.environ.get("ACTIONS_ID_TOKEN_REQUEST_URL") and not os.environ.get("HF_TOKEN"):
        os.environ["HF_OIDC_RESOURCE"] = repo


def check_writable(repo: str) -> None:
    """Raise HubError unless a commit to an existing repository would be allowed."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with explained(repo, None, "model"):
        try:
            patiently(lambda: HfApi().auth_check(repo, write=True))
        except HfHubHTTPError as error:
            if error.response.status_code not in (401, 403):
                raise
            raise HubError(
                f"The token may not write to `{repo}`",
                hint=f"{WRITE_HINT}; or propose the files to its owner with `--create-pr`",
            ) from error


def check_may_propose(repo: str) -> str:
    """The name that a pull request would carry. Raise HubError for a token that may only read."""
    return str(_writer(repo)["name"])


def check_may_create(repo: str) -> None:
    """Raise HubError unless a repository of this name would be ours to make."""
    me, namespace = _writer(repo), repo.partition("/")[0]
    mine = [me["name"], *(org["name"] for org in me.get("orgs") or ())]
    if namespace not in mine:
        names = ", ".join(f"`{name}`" for name in mine)
        raise HubError(
            f"There is no repository `{repo}`, and the token cannot make one in `{namespace}`",
            hint=f"It can in {names}; check the name, and that the token may read the repository if it is private",
        )


def _writer(repo: str) -> dict[str, Any]:
    from huggingface_hub import HfApi

    with explained(repo, None, "model"):
        me: dict[str, Any] = patiently(lambda: HfApi().whoami())
    if ((me.get("auth") or {}).get("accessToken") or {}).get("role") == "read":
        raise HubError(f"The token may only read, so nothing can be published to `{repo}`", hint=WRITE_HINT)
    return me


# ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def create(repo: str, *, private: bool) -> None:
    """Make a model repository, if nobody did meanwhile. Public unless `private`, or as the organisation has it."""
    from huggingface_hub import HfApi

    with explained(repo, None, "model"):
        patiently(lambda: HfApi().create_repo(repo, private=private or None, exist_ok=True))


def push(
    at: Revision,
    uploads: Sequence[Upload],
    deletions: Sequence[str],
    message: str,
    *,
    description: str = "",
    branch: str | None = None,
    propose: bool = False,
) -> Pushed:
    """All changes as one commit on top of `at`, or as a new pull request (`propose`); `branch` may be one's own.

    Raises Unsettled where the branch has moved on or the answer was lost, HubError where the Hub refuses.
    """
    from huggingface_hub import CommitOperationDelete, HfApi

    api, additions = HfApi(), [_addition(upload) for upload in uploads]
    removals = [CommitOperationDelete(path, is_folder=False) for path in deletions]
    with _uploading(at.repo):
        api.preupload_lfs_files(at.repo, additions, revision=branch, create_pr=propose, free_memory=False)
        with _unsettled():
            made = api.create_commit(
                at.repo,
                [*additions, *removals],
                commit_message=message,
                commit_description=description,
                parent_commit=at.commit,
                revision=branch,
                create_pr=propose,
            )
    return Pushed(made.oid, made.pr_url or made.commit_url, made.pr_num)


def _addition(upload: Upload) -> CommitOperationAdd:
    from huggingface_hub import CommitOperationAdd

    addition = CommitOperationAdd(upload.path, upload.content)
    addition.upload_info.sha256 = bytes.fromhex(upload.sha256)  # so that large files are not hashed once more
    return addition


@contextmanager
def _unsettled() -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        pause = 0.0 if error.response.status_code == 412 else wait(error, attempt=1)
        if pause is None:
            raise
        raise Unsettled(pause) from error
    except transient() as error:
        raise Unsettled(0.5) from error


@contextmanager
def _uploading(repo: str) -> Iterator[None]:
    """Besides the usual, what the client raises for single files; its words are left out, as everywhere."""
    try:
        with explained(repo, None, "model"):
            yield
    except (ValueError, RuntimeError) as error:
        raise HubError(
            f"The upload to `{repo}` failed ({type(error).__name__})",
            hint="Check the metadata of its README.md, then run the command again: what was uploaded stays",
        ) from error


# ── Pull requests ─────────────────────────────────────────────────────────────────────────────────────────────────


def close(repo: str, number: int, text: str) -> None:
    """Close a pull request, and say why."""
    from huggingface_hub import HfApi

    with explained(repo, None, "model"):
        patiently(lambda: HfApi().change_discussion_status(repo, number, new_status="closed", comment=text))


def retitle(repo: str, number: int, title: str) -> None:
    """Let a pull request have another title."""
    from huggingface_hub import HfApi

    with explained(repo, None, "model"):
        patiently(lambda: HfApi().rename_discussion(repo, number, new_title=title))


def describe(repo: str, number: int, text: str) -> str:
    """Let the first comment of a pull request say `text`. Returns the address of its page."""
    from huggingface_hub import HfApi

    api = HfApi()
    with explained(repo, None, "model"):
        details = patiently(lambda: api.get_discussion_details(repo, number))
        first = next((event for event in details.events if event.type == "comment"), None)
        if first is None:
            patiently(lambda: api.comment_discussion(repo, number, text))
        elif getattr(first, "content", None) != text:
            patiently(lambda: api.edit_discussion_comment(repo, number, first.id, text))
    return str(details.url)
