"""Pull requests and discussions."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import Response

from hub_server.routing import Call, Refusal, ok, route
from hub_server.store import MAIN, Repo, now


def open_pull_request(repo: Repo, title: str, description: str, author: str, status: str) -> int:
    """A pull request whose branch starts at the head of main. Returns its number."""
    return _opened(repo, title, description, author, status, pull_request=True)


def _opened(repo: Repo, title: str, description: str, author: str, status: str, *, pull_request: bool) -> int:
    number = max((discussion["num"] for discussion in repo.discussions()), default=0) + 1
    discussion = {
        "num": number,
        "title": title,
        "status": status,
        "isPullRequest": pull_request,
        "createdAt": now(),
        "author": {"name": author},
        "repo": {"name": repo.name, "type": repo.kind.removesuffix("s")},
        "events": [_comment(author, description)],
    }
    if pull_request:
        repo.set_ref(f"refs/pr/{number}", repo.refs[MAIN])
        discussion["changes"] = {"base": MAIN}
    repo.save_discussion(discussion)
    return number


def add_commit(repo: Repo, number: int, subject: str, sha: str, author: str) -> None:
    discussion = repo.discussion(number)
    if discussion:
        discussion["events"].append(_event("commit", author, {"subject": subject, "oid": sha}))
        repo.save_discussion(discussion)


def _event(kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"id": secrets.token_hex(12), "type": kind, "createdAt": now(), "author": {"name": author}, "data": data}


def _comment(author: str, text: str) -> dict[str, Any]:
    latest = {"raw": text, "html": text, "updatedAt": now(), "author": {"name": author}}
    return _event("comment", author, {"edited": False, "hidden": False, "latest": latest, "history": []})


@route("GET", "{repo}/discussions")
async def listed(call: Call) -> Response:
    asked = call.request.query_params
    found = [
        discussion
        for discussion in call.repo().discussions()
        if asked.get("author") in (None, discussion["author"]["name"])
        and asked.get("status") in (None, "all", discussion["status"])
        and (asked.get("type") != "pull_request" or discussion["isPullRequest"])
    ]
    brief = [{key: value for key, value in item.items() if key not in ("events", "changes")} for item in found]
    size, start = 50, 50 * int(asked.get("p", 0))
    return ok({"count": len(brief), "start": start, "discussions": brief[start : start + size]})


@route("POST", "{repo}/discussions")
async def create(call: Call) -> Response:
    asked, repo, author = await call.json(), call.repo(), _author(call)
    pull_request = bool(asked.get("pullRequest"))
    status = "draft" if pull_request else "open"
    text = asked.get("description", "")
    return ok({"num": _opened(repo, asked["title"], text, author, status, pull_request=pull_request)})


@route("GET", "{repo}/discussions/{number}")
async def details(call: Call) -> Response:
    discussion = _found(call)
    diff = {"diff": "", "filesWithConflicts": []} if discussion["isPullRequest"] else {}
    return ok(discussion | diff)


@route("POST", "{repo}/discussions/{number}/comment")
async def comment(call: Call) -> Response:
    discussion, event = _found(call), _comment(_author(call), (await call.json())["comment"])
    return _saved(call, discussion, event, "newMessage")


@route("POST", "{repo}/discussions/{number}/comment/(?P<comment>[0-9a-f]+)/edit")
async def edit(call: Call) -> Response:
    discussion, author = _found(call), _author(call)
    event = next((event for event in discussion["events"] if event["id"] == call.parts["comment"]), None)
    if event is None or event["type"] != "comment" or event["author"]["name"] != author:
        raise Refusal(403, "You cannot edit this comment")
    event["data"]["latest"]["raw"] = event["data"]["latest"]["html"] = (await call.json())["content"]
    event["data"]["edited"] = True
    call.repo().save_discussion(discussion)
    return ok({"updatedComment": event})


@route("POST", "{repo}/discussions/{number}/title")
async def rename(call: Call) -> Response:
    discussion, title = _found(call), (await call.json())["title"]
    event = _event("title-change", _author(call), {"from": discussion["title"], "to": title})
    return _saved(call, discussion | {"title": title}, event, "newTitle")


@route("POST", "{repo}/discussions/{number}/status")
async def status(call: Call) -> Response:
    discussion, asked = _found(call), await call.json()
    if discussion["author"]["name"] != _author(call):
        call.repo(write=True)
    event = _event("status-change", _author(call), {"status": asked["status"]})
    return _saved(call, discussion | {"status": asked["status"]}, event, "newStatus")


@route("POST", "{repo}/discussions/{number}/merge")
async def merge(call: Call) -> Response:
    repo, discussion = call.repo(write=True), _found(call)
    if discussion["status"] != "open":
        raise Refusal(400, "Only an open pull request can be merged")
    ours, head = repo.refs[f"refs/pr/{discussion['num']}"], repo.refs[MAIN]
    base = {sha for sha, _ in repo.history(head)}
    start = next((sha for sha, _ in repo.history(ours) if sha in base), head)
    files = _merged(repo.files(start), repo.files(head), repo.files(ours))
    sha = repo.commit_on([head, ours], MAIN, files, f"{discussion['title']} (#{discussion['num']})", _author(call))
    discussion["changes"]["mergeCommitId"] = sha
    event = _event("status-change", _author(call), {"status": "merged"})
    return _saved(call, discussion | {"status": "merged"}, event, "newStatus")


def _merged(start: dict[str, Any], head: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Three-way, by whole files."""
    files = dict(head)
    for path in {*start, *ours}:
        if start.get(path) == ours.get(path):
            continue
        if head.get(path) not in (start.get(path), ours.get(path)):
            raise Refusal(409, f"{path} was changed on both sides")
        if path in ours:
            files[path] = ours[path]
        else:
            files.pop(path, None)
    return files


def _saved(call: Call, discussion: dict[str, Any], event: dict[str, Any], key: str) -> Response:
    discussion["events"].append(event)
    call.repo().save_discussion(discussion)
    return ok({key: event})


def _found(call: Call) -> dict[str, Any]:
    discussion = call.repo().discussion(int(call.parts["number"]))
    if discussion is None:
        raise Refusal(404, "There is no such discussion")
    return discussion


def _author(call: Call) -> str:
    if call.token is None or call.token.role != "write":
        raise Refusal(403 if call.token else 401, "Forbidden: pass a token with write rights")
    return call.token.user
