"""Requests to handlers, by the path as it was sent: `refs%2Fpr%2F1` is one segment, and frameworks would decode it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hub_server import tokens
from hub_server.store import Repo, Store
from hub_server.tokens import Token


class Refusal(Exception):
    """An answer that is not 200. `code` is what the client reads to choose its exception."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str):
        super().__init__(message)
        self.status, self.code = status, code
        self.headers = headers


@dataclass
class Call:
    """One request, with the parts of its path and whoever asks."""

    request: Request
    parts: dict[str, str]
    store: Store
    base: str

    @property
    def token(self) -> Token | None:
        sent = self.request.headers.get("authorization", "").removeprefix("Bearer ")
        if sent and sent not in tokens.TOKENS:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return tokens.TOKENS.get(sent)

    @property
    def user(self) -> str | None:
        return self.token.user if self.token else None

    def flag(self, name: str) -> bool:
        return self.request.query_params.get(name) in ("1", "true", "True")

    async def json(self) -> Any:
        body = await self.request.body()
        return json.loads(body) if body else None

    async def form(self) -> dict[str, list[str]]:
        return parse_qs((await self.request.body()).decode())

    def repo(self, *, write: bool = False) -> Repo:
        """The repository that the path names, if whoever asks may know of it (and write to it)."""
        kind, name = self.parts.get("kind") or "models", f"{self.parts['ns']}/{self.parts['name']}"
        repo = self.store.repo(kind, name)
        token = self.token
        if repo is None or (repo.meta["private"] and not tokens.belongs(self.user, self.parts["ns"])):
            raise Refusal(404 if token else 401, "Repository not found", "RepoNotFound")
        if write:
            self.require_writer(repo)
        return repo

    def require_writer(self, repo: Repo) -> None:
        if self.token is None:
            raise Refusal(401, "Invalid username or password.")
        if not self.token.may_write(repo.name) or not tokens.belongs(self.user, repo.name.split("/")[0]):
            raise Refusal(403, "You do not have write access to this repository")

    def require_accepted(self, repo: Repo) -> None:
        member = tokens.belongs(self.user, repo.name.split("/")[0])
        if repo.meta["gated"] and not member and self.user not in tokens.ACCEPTED:
            raise Refusal(403 if self.user else 401, "Access to this repository is restricted", "GatedRepo")

    def sha(self, repo: Repo, revision: str | None = None) -> str:
        sha = repo.sha_of(revision or self.parts.get("rev") or "main")
        if sha is None:
            raise Refusal(404, f"Invalid rev id: {revision or self.parts.get('rev')}", "RevisionNotFound")
        return sha


Handler = Callable[[Call], Awaitable[Response]]
_ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []

_MACROS = {
    "{repo}": r"/api/(?P<kind>models|datasets|spaces)/(?P<ns>[^/]+)/(?P<name>[^/]+)",
    "{page}": r"/(?:(?P<kind>datasets|spaces)/)?(?P<ns>[^/]+)/(?P<name>[^/]+)",
    "{rev}": r"(?P<rev>[^/]+)",
    "{path}": r"(?P<path>.+)",
    "{number}": r"(?P<number>\d+)",
}


def route(methods: str, pattern: str) -> Callable[[Handler], Handler]:
    """Register a handler: `route("GET", "{repo}/refs")`."""
    for macro, expression in _MACROS.items():
        pattern = pattern.replace(macro, expression)

    def register(handler: Handler) -> Handler:
        _ROUTES.extend((method, re.compile(pattern), handler) for method in methods.split())
        return handler

    return register


class Application:
    """The Hub without its outside."""

    def __init__(self, store: Store):
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._handled(request, scope["raw_path"].decode())
        except Refusal as refusal:
            headers = {name.replace("_", "-"): value for name, value in refusal.headers.items()}
            headers["X-Error-Message"] = str(refusal)
            if refusal.code:
                headers["X-Error-Code"] = refusal.code
            response = JSONResponse({"error": str(refusal)}, refusal.status, headers)
        await response(scope, receive, send)

    async def _handled(self, request: Request, path: str) -> Response:
        base = f"http://{request.headers['host']}"
        for method, pattern, handler in _ROUTES:
            found = pattern.fullmatch(path)
            if found and method == request.method:
                parts = {name: unquote(text) for name, text in found.groupdict().items() if text is not None}
                return await handler(Call(request, parts, self._store, base))
        raise Refusal(404, f"No such route: {request.method} {path}")


def ok(value: Any = None, **headers: str) -> JSONResponse:
    return JSONResponse({} if value is None else value, headers={k.replace("_", "-"): v for k, v in headers.items()})
