"""What is in a repository: its information, trees, paths, references, commits, tags and branches."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import yaml
from starlette.responses import Response

from hub_server import tokens
from hub_server.routing import Call, Refusal, ok, route
from hub_server.store import Entry, Repo


@route("GET", "{repo}(?:/revision/{rev})?")
async def info(call: Call) -> Response:
    repo = call.repo()
    known = _info(repo, call.sha(repo), blobs=call.flag("blobs"))
    asked = call.request.query_params.getlist("expand")
    return ok({key: value for key, value in known.items() if not asked or key in (*asked, "id")})


PAGE = 1000
"""Repositories on a page of a listing."""


@route("GET", "/api/(?P<kind>models|datasets|spaces)")
async def listed(call: Call) -> Response:
    query = call.request.query_params
    author, asked, limit = query.get("author"), query.getlist("expand"), int(query.get("limit", PAGE))
    repos = (repo for repo in call.store.all(call.parts["kind"]) if author in (None, repo.name.split("/")[0]))
    seen = [repo for repo in repos if not repo.meta["private"] or tokens.belongs(call.user, repo.name.split("/")[0])]
    start = int(query.get("cursor", 0))
    page = seen[start : start + min(limit, PAGE)]
    known = [_brief(repo) if asked == ["sha"] else _info(repo, call.sha(repo, "main"), blobs=False) for repo in page]
    found = [{key: value for key, value in item.items() if not asked or key in (*asked, "id")} for item in known]
    end = start + len(page)
    if end >= len(seen):
        return ok(found)
    following = str(call.request.url.include_query_params(cursor=end))
    return ok(found, Link=f'<{following}>; rel="next"')


def _brief(repo: Repo) -> dict[str, Any]:
    return {"id": repo.name, "sha": repo.sha_of("main")}


def _info(repo: Repo, sha: str, *, blobs: bool) -> dict[str, Any]:
    files, meta = repo.files(sha), repo.meta
    card = _card(repo, files)
    return {
        "id": repo.name,
        "sha": sha,
        "private": meta["private"],
        "gated": meta["gated"],
        "createdAt": meta["createdAt"],
        "lastModified": repo.at(sha)["date"],
        "tags": card.get("tags") or [],
        "cardData": card,
        "pipeline_tag": card.get("pipeline_tag"),
        "library_name": card.get("library_name"),
        "downloads": 0,
        "likes": 0,
        "siblings": [_sibling(path, entry, blobs) for path, entry in files.items()],
    }


def read_card(text: str) -> Any:
    """The metadata of a README.md, found as the client finds it. Raises yaml.YAMLError."""
    found = re.match(r"^(\s*---[\r\n]+)([\S\s]*?)([\r\n]+---(\r\n|\n|$))", text)
    return yaml.safe_load(found[2]) if found else {}


def _card(repo: Repo, files: dict[str, Entry]) -> dict[str, Any]:
    if "README.md" not in files:
        return {}
    try:
        values = read_card(repo.store.content(files["README.md"]).read_bytes().decode("utf-8", "replace"))
    except yaml.YAMLError:
        return {}
    return values if isinstance(values, dict) else {}


def _sibling(path: str, entry: Entry, blobs: bool) -> dict[str, Any]:
    if not blobs:
        return {"rfilename": path}
    lfs = {"sha256": entry["lfs"], "size": entry["size"], "pointerSize": entry["pointer"]} if "lfs" in entry else None
    found = {"rfilename": path, "size": entry["size"], "blobId": entry["oid"]}
    return found | ({"lfs": lfs} if lfs else {})


@route("GET", "{repo}/tree/{rev}(?:/{path})?")
async def tree(call: Call) -> Response:
    repo = call.repo()
    sha = call.sha(repo)
    files, prefix = repo.files(sha), call.parts.get("path", "").strip("/")
    below = f"{prefix}/" if prefix else ""
    inside = {path: entry for path, entry in files.items() if path.startswith(below)}
    if prefix and not inside:
        raise Refusal(404, f"{prefix} does not exist on {call.parts['rev']}", "EntryNotFound", X_Repo_Commit=sha)
    folders = {
        f"{below}{part}"
        for path in inside
        for part in _folders(path.removeprefix(below), recursive=call.flag("recursive"))
    }
    shown = [path for path in inside if call.flag("recursive") or "/" not in path.removeprefix(below)]
    entries = [_tree_entry(path, files[path]) for path in shown]
    entries += [_folder_entry(repo, path) for path in folders]
    return ok(sorted(entries, key=lambda entry: entry["path"]))


def _folders(path: str, *, recursive: bool) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts) if recursive else min(1, len(parts)))]


def _tree_entry(path: str, entry: Entry) -> dict[str, Any]:
    found = {"type": "file", "path": path, "oid": entry["oid"], "size": entry["size"]}
    if "lfs" in entry:
        found["lfs"] = {"oid": entry["lfs"], "size": entry["size"], "pointerSize": entry["pointer"]}
    return found


def _folder_entry(repo: Repo, path: str) -> dict[str, Any]:
    return {
        "type": "directory",
        "path": path,
        "oid": hashlib.sha1(f"{repo.name}{path}".encode()).hexdigest(),
        "size": 0,
    }


@route("POST", "{repo}/paths-info/{rev}")
async def paths_info(call: Call) -> Response:
    repo = call.repo()
    files = repo.files(call.sha(repo))
    asked = [path.strip("/") for path in (await call.form()).get("paths", [])]
    folders = [path for path in asked if any(name.startswith(f"{path}/") for name in files)]
    found = [_tree_entry(path, files[path]) for path in asked if path in files]
    return ok([*found, *(_folder_entry(repo, path) for path in folders)])


@route("GET", "{repo}/refs")
async def refs(call: Call) -> Response:
    found: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": [], "pullRequests": []}
    groups = {"heads": "branches", "tags": "tags", "pr": "pullRequests"}
    for ref, sha in call.repo().refs.items():
        _, group, name = ref.split("/", 2)
        shown = ref if group == "pr" else name
        found[groups[group]].append({"name": shown, "ref": ref, "targetCommit": sha})
    return ok(found)


@route("GET", "{repo}/commits/{rev}")
async def commits(call: Call) -> Response:
    repo = call.repo()
    fields = ("title", "message", "date")
    history = repo.history(call.sha(repo))
    return ok(
        [{"id": sha, **{key: at[key] for key in fields}, "authors": [{"user": at["author"]}]} for sha, at in history]
    )


@route("POST", "{repo}/tag/{rev}")
async def create_tag(call: Call) -> Response:
    repo = call.repo(write=True)
    return _new_ref(repo, f"refs/tags/{(await call.json())['tag']}", call.sha(repo))


@route("DELETE", "{repo}/tag/{rev}")
async def delete_tag(call: Call) -> Response:
    return _delete_ref(call.repo(write=True), f"refs/tags/{call.parts['rev']}")


@route("POST", "{repo}/branch/{rev}")
async def create_branch(call: Call) -> Response:
    repo = call.repo(write=True)
    start = (await call.json() or {}).get("startingPoint") or "main"
    return _new_ref(repo, f"refs/heads/{call.parts['rev']}", call.sha(repo, start))


@route("DELETE", "{repo}/branch/{rev}")
async def delete_branch(call: Call) -> Response:
    return _delete_ref(call.repo(write=True), f"refs/heads/{call.parts['rev']}")


def _new_ref(repo: Repo, ref: str, sha: str) -> Response:
    if ref in repo.refs:
        raise Refusal(409, f"Reference {ref} exists already")
    repo.set_ref(ref, sha)
    return ok()


def _delete_ref(repo: Repo, ref: str) -> Response:
    if ref not in repo.refs:
        raise Refusal(404, f"There is no {ref}", "RevisionNotFound")
    repo.set_ref(ref, None)
    return ok()
