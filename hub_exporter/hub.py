"""The door to the Hub for reading. Its client is imported inside the functions: it costs too much for `--help`.

Messages never repeat what the client says: a URL or a header in it could carry a token.
"""

from __future__ import annotations

import functools
import glob
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hub_exporter.errors import HubError, SourceError
from hub_exporter.files import LARGEST_IN_GIT, listing, require_config, wanted, weight_candidates

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

T = TypeVar("T")

LOGIN = "set `HF_TOKEN` or log in with `hf auth login`"


@dataclass(frozen=True)
class RemoteFile:
    """One file of a revision. The Hub tells the sha256 of large files, and of others what git calls their content."""

    size: int
    sha256: str | None
    blob: str


@dataclass(frozen=True)
class Snapshot:
    """One commit of a repository, and what was fetched of it."""

    repo: str
    revision: str | None
    """As it was asked for."""
    commit: str
    folder: Path
    names: tuple[str, ...]
    """All files of the repository, fetched or not; offline those that the cache knows."""
    remote: Mapping[str, RemoteFile] = field(default_factory=dict)
    """Weights that were left on the Hub."""
    files: Mapping[str, RemoteFile] = field(default_factory=dict)
    """What the Hub tells of all files; nothing where it was not asked."""


def fetch(repo: str, revision: str | None = None, *, code: bool = False, weights: bool = True) -> Snapshot:
    """Pin `revision` to its commit and fetch what loading needs of it; Python files only with consent (`code`), and
    large weights only with `weights`.

    With `HF_HUB_OFFLINE=1` the cached snapshot is used. Raises SourceError when the repository or the revision does
    not exist or may not be read, HubError when the Hub does not answer.
    """
    from huggingface_hub import HfApi, is_offline_mode, snapshot_download

    with explained(repo, revision, "model"):
        if is_offline_mode():
            return _cached(repo, revision, code)
        info = HfApi().model_info(repo, revision=revision, files_metadata=True)
        files = _files(info)
        names = tuple(sorted(files))
        left = {name: files[name] for name in weight_candidates(names) if files[name].sha256} if not weights else {}
        patterns = [glob.escape(name) for name in wanted(names, code=code) if name not in left]
        require_config(names, repo)
        # Asked for by its name, so that the cache learns what the name meant and knows it offline.
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
        if folder.name != info.sha:
            raise HubError(f"`{repo}` changed while it was fetched", hint="Run the command again")
    return Snapshot(repo, revision, folder.name, folder, names, left, files)


def head(repo: str, commit: str, path: str, count: int) -> bytes:
    """The first `count` bytes of a file of a commit, or all of it where it has no more."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    def ask() -> bytes:
        headers = {**build_hf_headers(), "Range": f"bytes=0-{count - 1}", "Accept-Encoding": "identity"}
        answer = get_session().get(hf_hub_url(repo, path, revision=commit), headers=headers, follow_redirects=True)
        hf_raise_for_status(answer)
        return bytes(answer.content)

    with explained(repo, commit, "model"):
        return patiently(ask)


def offline() -> bool:
    """Whether the user forbids to ask the Hub (`HF_HUB_OFFLINE`)."""
    from huggingface_hub import is_offline_mode

    return bool(is_offline_mode())


def dataset_commit(repo: str, revision: str | None = None) -> str:
    """The commit that `revision` of a dataset names now. Raises like `fetch`."""
    from huggingface_hub import HfApi

    with explained(repo, revision, "dataset"):
        return str(HfApi().dataset_info(repo, revision=revision).sha)


@dataclass(frozen=True)
class Revision:
    """One commit of a model repository, and all of its files."""

    repo: str
    commit: str
    restricted: bool
    """Private, or gated: not everybody can read it."""
    files: Mapping[str, RemoteFile]
    card: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of its README.md."""


def look(repo: str, revision: str | None = None) -> Revision | None:
    """What is in a model repository: one request. `None` where there is none, or none that may be read."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    with explained(repo, revision, "model"):
        try:
            info = patiently(lambda: HfApi().model_info(repo, revision=revision, files_metadata=True))
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            return None
    card = info.card_data.to_dict() if info.card_data else {}  # type: ignore[no-untyped-call]
    return Revision(repo, str(info.sha), bool(info.private or info.gated), _files(info), card)


def _files(info: ModelInfo) -> dict[str, RemoteFile]:
    return {
        file.rfilename: RemoteFile(file.size or 0, file.lfs.sha256 if file.lfs else None, file.blob_id or "")
        for file in info.siblings or ()
    }


@functools.lru_cache(maxsize=64)
def content(repo: str, commit: str, path: str) -> bytes:
    """A small file of a commit. It is asked for once."""
    from huggingface_hub import hf_hub_download

    with explained(repo, commit, "model"):
        return Path(patiently(lambda: hf_hub_download(repo, path, revision=commit))).read_bytes()


def small_file(repo: str, commit: str, path: str) -> bytes:
    """A file of a commit in one request, past the cache: for somebody who looks at many repositories once."""
    return head(repo, commit, path, LARGEST_IN_GIT)


def commits_of(author: str, repos: Iterable[str]) -> dict[str, str]:
    """The commits that the default branches of an author's model repositories name now: a request for many of them.

    Those that are not listed, private ones of others for instance, are missing. It is given up after a page for each
    of them, which is what asking one by one would cost.
    """
    from huggingface_hub import HfApi

    wanted, found = set(repos), {}

    def ask() -> None:
        for info in itertools.islice(HfApi().list_models(author=author, expand=["sha"]), LISTED * len(wanted)):
            if info.id in wanted:
                found[info.id] = str(info.sha)
            if len(found) == len(wanted):
                return

    with explained(author, None, "author"):
        patiently(ask)
    return found


@dataclass(frozen=True)
class Proposal:
    """An open pull request."""

    number: int
    title: str


def find_proposal(repo: str, beginning: str, author: str) -> Proposal | None:
    """The oldest open pull request of this author whose title begins like that."""
    from huggingface_hub import HfApi

    def ask() -> list[Proposal]:
        found = HfApi().get_repo_discussions(
            repo, author=author, discussion_type="pull_request", discussion_status="open"
        )
        return [Proposal(one.num, one.title) for one in found if one.title.startswith(beginning)]

    with explained(repo, None, "model"):
        return min(patiently(ask), key=lambda one: one.number, default=None)


@functools.cache
def me() -> str | None:
    """Whose token this process has, if it has one."""
    from huggingface_hub import HfApi, get_token

    with explained("whoami", None, "account"):
        return str(patiently(lambda: HfApi().whoami())["name"]) if get_token() else None


def fresh_copy(repo: str, commit: str, paths: Iterable[str], cache: Path) -> Path:
    """Files of a commit as somebody who never had them gets them: links into the new cache `cache`."""
    from huggingface_hub import snapshot_download

    patterns = [glob.escape(path) for path in paths]
    with explained(repo, commit, "model"):
        return Path(snapshot_download(repo, revision=commit, cache_dir=cache, allow_patterns=patterns))


def _cached(repo: str, revision: str | None, code: bool) -> Snapshot:
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    patterns, names, files = None, None, {}
    try:
        for file in get_cached_repo_tree(repo, revision=revision):
            files[file.path] = RemoteFile(file.size, file.lfs.sha256 if file.lfs else None, file.blob_id)
        names = tuple(sorted(files))
        patterns = [glob.escape(name) for name in wanted(names, code=code)]
    except CachedRepoTreeNotFoundError:
        pass  # cached by another program, file by file: what is there is all that is known
    folder = Path(snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=patterns))
    return Snapshot(repo, revision, folder.name, folder, names or listing(folder), {}, files)


LISTED = 100
"""Repositories on a page of a listing, at least."""
ATTEMPTS = 5
"""How often a request is made that the Hub is too busy to answer."""
LONGEST_WAIT = 300.0
"""Seconds. A Hub that asks for more is told to the user instead."""


def patiently(call: Callable[[], T]) -> T:
    """The result of a request that may be repeated: again after 429 and 5xx, when the Hub says so."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return call()
        except transient() as error:
            pause = wait(error, attempt)
            if pause is None:
                raise
        time.sleep(pause)
    return call()


def transient() -> tuple[type[Exception], ...]:
    """What the client raises when an answer does not come, or is no answer."""
    from huggingface_hub import errors

    # The client's own HTTP errors, of httpx or httpx2, whichever it was built on.
    return (errors.HTTPError, ConnectionError)  # type: ignore[attr-defined]


def wait(error: Exception, attempt: int) -> float | None:
    """Seconds after which a request may succeed that failed like this, `None` for never."""
    response: Any = getattr(error, "response", None)
    if response is None:
        return float(2 ** (attempt - 1))
    if response.status_code not in (408, 429, 500, 502, 503, 504):
        return None
    try:
        asked = float(response.headers.get("Retry-After", 2 ** (attempt - 1)))
    except ValueError:  # a date
        asked = 2 ** (attempt - 1)
    return asked if asked <= LONGEST_WAIT else None


@contextmanager
def explained(repo: str, revision: str | None, kind: str) -> Iterator[None]:
    """Turn what the client raises into our errors."""
    from huggingface_hub import errors

    where = f"`{repo}`" if revision is None else f"`{repo}` at `{revision}`"
    try:
        yield
    except errors.GatedRepoError as error:
        page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{repo}"
        raise SourceError(f"The {kind} `{repo}` is gated", hint=f"Accept its terms at {page}, then {LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        raise _not_found(repo, kind) from error
    except errors.RevisionNotFoundError as error:
        raise SourceError(
            f"The {kind} `{repo}` has no revision `{revision}`", hint="Name a branch, a tag or a whole commit sha"
        ) from error
    except errors.HFValidationError as error:
        raise SourceError(f"`{repo}` is not a Hub id", hint="It has the form `namespace/name`") from error
    except errors.LocalEntryNotFoundError as error:
        raise HubError(
            f"{where} is not in the cache, or not completely, and the Hub cannot be reached",
            hint="Unset `HF_HUB_OFFLINE`, check the network, or name a folder",
        ) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        hint = f"Check the token: {LOGIN}" if status in (401, 403) else "Try again later, or name a folder"
        raise HubError(f"The Hub answered {status} for {where}", hint=hint) from error
    except transient() as error:
        raise HubError(
            f"The Hub cannot be reached for {where} ({type(error).__name__})",
            hint="Check the network; `HF_HUB_OFFLINE=1` uses what is in the cache",
        ) from error


def _not_found(repo: str, kind: str) -> SourceError:
    """Told apart as far as the Hub lets us: another kind of repository, nobody asking, or somebody without rights."""
    from huggingface_hub import HfApi, get_token

    for other in ("model", "dataset", "space"):
        with suppress(*transient()):  # what is not answered is not known
            if other != kind and HfApi().repo_exists(repo, repo_type=other):
                hint = "Rows are read from it with `--dataset`" if other == "dataset" else f"Name a {kind}"
                return SourceError(f"`{repo}` is a {other}, not a {kind}", hint=hint)
    access = "the token in use may not read it: use another" if get_token() else "show who you are"
    return SourceError(
        f"There is no {kind} `{repo}` on the Hub, or it is private",
        hint=f"Check the name; if it is private, {access} ({LOGIN})",
    )
