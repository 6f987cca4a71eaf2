"""The only door to the Hub. Its client is imported inside the functions: it costs too much for `--help`.

Messages never repeat what the client says: a URL or a header in it could carry a token.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub_exporter.errors import HubError, SourceError
from hub_exporter.files import listing, require_config, wanted

_LOGIN = "set `HF_TOKEN` or log in with `hf auth login`"


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


def fetch(repo: str, revision: str | None = None, *, code: bool = False) -> Snapshot:
    """Pin `revision` to its commit and fetch what loading needs of it; Python files only with consent (`code`).

    With `HF_HUB_OFFLINE=1` the cached snapshot is used. Raises SourceError when the repository or the revision does
    not exist or may not be read, HubError when the Hub does not answer.
    """
    from huggingface_hub import HfApi, is_offline_mode, snapshot_download

    with _explained(repo, revision, "model"):
        if is_offline_mode():
            return _cached(repo, revision, code)
        info = HfApi().model_info(repo, revision=revision)
        names = tuple(sorted(file.rfilename for file in info.siblings or ()))
        patterns = [glob.escape(name) for name in wanted(names, code=code)]
        require_config(names, repo)
        # Asked for by its name, so that the cache learns what the name meant and knows it offline.
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
        if folder.name != info.sha:
            raise HubError(f"`{repo}` changed while it was fetched", hint="Run the command again")
    return Snapshot(repo, revision, folder.name, folder, names)


def dataset_commit(repo: str, revision: str | None = None) -> str:
    """The commit that `revision` of a dataset names now. Raises like `fetch`."""
    from huggingface_hub import HfApi

    with _explained(repo, revision, "dataset"):
        return str(HfApi().dataset_info(repo, revision=revision).sha)


def _cached(repo: str, revision: str | None, code: bool) -> Snapshot:
    from huggingface_hub import get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    patterns, names = None, None
    try:
        names = tuple(sorted(file.path for file in get_cached_repo_tree(repo, revision=revision)))
        patterns = [glob.escape(name) for name in wanted(names, code=code)]
    except CachedRepoTreeNotFoundError:
        pass  # cached by another program, file by file: what is there is all that is known
    folder = Path(snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=patterns))
    return Snapshot(repo, revision, folder.name, folder, names or listing(folder))


@contextmanager
def _explained(repo: str, revision: str | None, kind: str) -> Iterator[None]:
    """Turn what the client raises into our errors."""
    from huggingface_hub import errors

    # The client's own HTTP errors, of httpx or httpx2, whichever it was built on.
    network = (errors.HTTPError, ConnectionError)  # type: ignore[attr-defined]

    where = f"`{repo}`" if revision is None else f"`{repo}` at `{revision}`"
    try:
        yield
    except errors.GatedRepoError as error:
        page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{repo}"
        raise SourceError(f"The {kind} `{repo}` is gated", hint=f"Accept its terms at {page}, then {_LOGIN}") from error
    except errors.RepositoryNotFoundError as error:
        raise SourceError(
            f"There is no {kind} `{repo}` on the Hub, or it is private",
            hint=f"Check the name; if it is private, {_LOGIN}",
        ) from error
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
        hint = f"Check the token: {_LOGIN}" if status in (401, 403) else "Try again later, or name a folder"
        raise HubError(f"The Hub answered {status} for {where}", hint=hint) from error
    except network as error:
        raise HubError(
            f"The Hub cannot be reached for {where} ({type(error).__name__})",
            hint="Check the network; `HF_HUB_OFFLINE=1` uses what is in the cache",
        ) from error
