"""Who is asking, and what their repositories are: whoami, trusted publishing, creating, deleting, settings."""

from __future__ import annotations

import shutil
from typing import Any

import yaml
from starlette.responses import JSONResponse, Response

from hub_server import tokens
from hub_server.repos import read_card
from hub_server.routing import Call, Refusal, ok, route


@route("GET", "/api/whoami-v2")
async def whoami(call: Call) -> Response:
    token = call.token
    if token is None:
        raise Refusal(401, "Invalid credentials in Authorization header")
    orgs = [{"name": org} for org, members in tokens.MEMBERS.items() if token.user in members]
    auth = {"accessToken": {"displayName": token.name, "role": token.role}}
    return ok({"type": "user", "name": token.user, "orgs": orgs, "auth": auth})


@route("POST", "/oauth/token")
async def exchange(call: Call) -> Response:
    asked = await call.json()
    token = tokens.exchange(asked["subject_token"], asked["resource"])
    if token is None:
        raise Refusal(401, "No trusted publisher matches this identity")
    return ok({"access_token": token, "token_type": "bearer", "expires_in": 3600})


@route("GET", "/_github/id-token")
async def id_token(call: Call) -> Response:
    """GitHub's side of trusted publishing: the identity of the job that asks."""
    if call.request.headers.get("authorization") != "Bearer request-token":
        raise Refusal(401, "This job may not ask for an identity")
    return ok({"value": "id-of-workflow"})


@route("GET", "{repo}/auth-check(?P<write>/write)?")
async def auth_check(call: Call) -> Response:
    repo = call.repo(write="write" in call.parts)
    call.require_accepted(repo)
    return ok()


@route("POST", "/api/repos/create")
async def create(call: Call) -> Response:
    asked = await call.json()
    kind, name = _named(call, asked)
    url = f"{call.base}/{name}" if kind == "models" else f"{call.base}/{kind}/{name}"
    _require_owner(call, name)
    if call.store.repo(kind, name):
        error = {"error": "You already created this model repo", "url": url}
        return JSONResponse(error, 409)
    call.store.create(kind, name, call.user or "", private=asked.get("visibility") == "private")
    return ok({"url": url})


@route("DELETE", "/api/repos/delete")
async def delete(call: Call) -> Response:
    kind, name = _named(call, await call.json())
    _require_owner(call, name)
    repo = call.store.repo(kind, name)
    if repo is None:
        raise Refusal(404, "Repository not found", "RepoNotFound")
    shutil.rmtree(repo.folder)
    return ok()


@route("POST", "/api/repos/move")
async def move(call: Call) -> Response:
    asked = await call.json()
    repo = call.store.repo(f"{asked.get('type', 'model')}s", asked["fromRepo"])
    if repo is None:
        raise Refusal(404, "Repository not found", "RepoNotFound")
    call.require_writer(repo)
    call.store.move(repo, asked["toRepo"])
    return ok()


@route("PUT", "{repo}/settings")
async def settings(call: Call) -> Response:
    asked = await call.json()
    changes: dict[str, Any] = {key: asked[key] for key in ("gated",) if key in asked}
    if "visibility" in asked:
        changes["private"] = asked["visibility"] == "private"
    call.repo(write=True).save(**changes)
    return ok(asked)


@route("POST", "/api/validate-yaml")
async def validate_yaml(call: Call) -> Response:
    """What the Hub checks of a card's metadata, as far as it is known."""
    try:
        values = read_card((await call.json())["content"])
    except yaml.YAMLError as error:
        return JSONResponse({"errors": [{"message": f"invalid YAML: {error}"}], "warnings": []}, 400)
    errors = [] if isinstance(values, dict) else [{"message": "metadata is not a mapping"}]
    known = ("adapter", "merge", "quantized", "finetune", "source")
    if not errors and values.get("base_model_relation", known[0]) not in known:
        errors.append({"message": f'"base_model_relation" must be one of {known}'})
    for key in ("tags", "language", "base_model") if not errors else ():
        if not isinstance(values.get(key, ""), str | list):
            errors.append({"message": f'"{key}" must be a string or a list'})
    return JSONResponse({"errors": errors, "warnings": []}, 400 if errors else 200)


def _named(call: Call, asked: dict[str, Any]) -> tuple[str, str]:
    owner = asked.get("organization") or call.user
    name = asked["name"] if "/" in asked["name"] else f"{owner}/{asked['name']}"
    return f"{asked.get('type') or 'model'}s", name


def _require_owner(call: Call, name: str) -> None:
    token = call.token
    if token is None:
        raise Refusal(401, "Invalid username or password.")
    if not token.may_write(name) or not tokens.belongs(token.user, name.split("/")[0]):
        raise Refusal(403, f"You don't have the rights to create or delete {name}")
