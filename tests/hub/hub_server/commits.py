"""Changes: which files are large, and one commit out of many operations, on a branch or as a pull request."""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from typing import Any

from starlette.responses import Response

from hub_server import discussions, xet
from hub_server.routing import Call, Refusal, ok, route
from hub_server.store import Entry, Repo

LARGEST_REGULAR = 10_000_000
CONFLICT = "The branch was updated since you opened this page. Please refresh and try again."


@route("POST", "{repo}/preupload/{rev}")
async def preupload(call: Call) -> Response:
    repo = _writable(call)
    files = repo.files(call.sha(repo))
    asked = await call.json()
    patterns = _lfs_patterns(repo, files)
    return ok({"files": [_planned(file, files.get(file["path"]), patterns) for file in asked["files"]]})


def _planned(file: dict[str, Any], there: Entry | None, patterns: list[str]) -> dict[str, Any]:
    binary = b"\0" in base64.b64decode(file.get("sample") or "")
    matched = any(fnmatch.fnmatchcase(file["path"].split("/")[-1], pattern) for pattern in patterns)
    large = file["size"] > LARGEST_REGULAR or binary or matched
    planned = {"path": file["path"], "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
    return planned | ({"oid": there.get("lfs", there["oid"])} if there else {})


def _lfs_patterns(repo: Repo, files: dict[str, Entry]) -> list[str]:
    if ".gitattributes" not in files:
        return []
    lines = repo.store.content(files[".gitattributes"]).read_text().splitlines()
    return [line.split()[0] for line in lines if "filter=lfs" in line]


@route("POST", "{repo}/commit/{rev}")
async def commit(call: Call) -> Response:
    """All operations or none: the reference changes after the last of them."""
    repo = _writable(call)
    lines = [json.loads(line) for line in (await call.request.body()).splitlines() if line.strip()]
    header = next(line["value"] for line in lines if line["key"] == "header")
    base = call.sha(repo)
    ref = repo.ref_of(call.parts["rev"])
    if ref is None:
        raise Refusal(400, "A commit needs a branch")
    if header.get("parentCommit") and not base.startswith(header["parentCommit"]):
        raise Refusal(412, CONFLICT)
    files = _applied(call, repo, dict(repo.files(base)), lines)
    title, message, author = header["summary"], header.get("description") or "", call.user or ""
    if call.flag("create_pr"):
        number = discussions.open_pull_request(repo, title, message, author, status="open")
        ref = f"refs/pr/{number}"
    sha = repo.commit(ref, files, title, author, message)
    answer = {"commitUrl": f"{call.base}/{repo.url_path}/commit/{sha}", "commitOid": sha, "success": True}
    if ref.startswith("refs/pr/"):
        discussions.add_commit(repo, int(ref.rpartition("/")[2]), title, sha, author)
    if call.flag("create_pr"):
        answer["pullRequestUrl"] = f"{call.base}/{repo.url_path}/discussions/{ref.rpartition('/')[2]}"
    return ok(answer)


def _writable(call: Call) -> Repo:
    """A pull request needs a token that may write, but no rights on the repository; nor does its author's branch."""
    number = re.fullmatch(r"refs/pr/(\d+)", call.parts["rev"])
    repo = call.repo(write=not (call.flag("create_pr") or number))
    if call.token is None or call.token.role != "write":
        raise Refusal(403 if call.token else 401, "Forbidden: pass a token with write rights")
    if number:
        discussion = repo.discussion(int(number[1]))
        if discussion is None or discussion["author"]["name"] != call.user:
            call.require_writer(repo)
    return repo


def _applied(call: Call, repo: Repo, files: dict[str, Entry], lines: list[dict[str, Any]]) -> dict[str, Entry]:
    for line in lines:
        key, value = line["key"], line["value"]
        if key == "header":
            continue
        path = value["path"]
        if ".." in path.split("/") or path.startswith("/") or ".git" in path.split("/"):
            raise Refusal(422, f"Invalid path: {path}")
        if key == "file":
            files[path] = call.store.blob(base64.b64decode(value["content"]))
        elif key == "lfsFile":
            if not call.store.lfs_path(value["oid"]).is_file():
                xet.collect(call.store)
            if not call.store.lfs_path(value["oid"]).is_file():
                raise Refusal(400, f"The LFS object {value['oid']} was never uploaded")
            files[path] = call.store.lfs(value["oid"])
        else:
            _delete(files, path, folder=key == "deletedFolder")
    return files


def _delete(files: dict[str, Entry], path: str, *, folder: bool) -> None:
    gone = [name for name in files if (name.startswith(f"{path.rstrip('/')}/") if folder else name == path)]
    if not gone:
        raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
    for name in gone:
        del files[name]
