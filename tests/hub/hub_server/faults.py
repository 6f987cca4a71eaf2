"""Around the application: a log of every request, and failures on demand.

A rule is JSON: `path` (a regular expression), and what makes it narrower: `method`, `except` (requests with the token
of this name), `skip` (let that many pass first), `count` (how often it acts, default 1; null for always). What it does:
`status` with `headers` instead of an answer, `delay` in seconds, `cut` (the connection, after so many bytes of the
answer), or `lost` (the request is carried out, and the connection cut before any answer).
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hub_server.tokens import TOKENS


class Outside:
    """Everything that happens to a request before the Hub sees it, and to its answer afterwards."""

    def __init__(self, app: ASGIApp):
        self._app = app
        self._rules: list[dict[str, Any]] = []
        self._log: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path = scope["raw_path"].decode()
        if path in ("/_log", "/_faults"):
            return await self._manage(path, scope["method"], receive, send)
        entry = _entry(scope, path)
        self._log.append(entry)
        rule = self._matching(entry)
        if rule is None:
            return await self._app(scope, receive, _noted(send, entry))
        entry["fault"] = rule["path"]
        await asyncio.sleep(rule.get("delay", 0))
        if rule.get("lost"):
            await self._app(scope, receive, _nowhere(entry))
            return await _hang_up(send)
        if "status" in rule:
            await _drained(receive)
            entry["status"] = rule["status"]
            return await _answer(send, rule["status"], rule.get("headers", {}), {"error": "injected"})
        if "cut" in rule:
            return await self._app(scope, receive, _cut(_noted(send, entry), send, rule["cut"]))
        return await self._app(scope, receive, _noted(send, entry))

    def _matching(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        for rule in self._rules:
            if not re.search(rule["path"], entry["path"]) or rule.get("method", entry["method"]) != entry["method"]:
                continue
            if rule.get("except") and rule["except"] == entry["credential"]:
                continue
            if rule.get("skip", 0) > 0:
                rule["skip"] -= 1
                continue
            count = rule.setdefault("count", 1)
            if count == 0:
                continue
            rule["count"] = None if count is None else count - 1
            return rule
        return None

    async def _manage(self, path: str, method: str, receive: Receive, send: Send) -> None:
        held = self._log if path == "/_log" else self._rules
        if method == "DELETE":
            held.clear()
        if method == "POST":
            sent = json.loads(await _drained(receive))
            held.extend(sent if isinstance(sent, list) else [sent])
        await _answer(send, 200, {}, held)


def _entry(scope: Scope, path: str) -> dict[str, Any]:
    headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
    sent = headers.get("authorization", "").removeprefix("Bearer ")
    query = scope["query_string"].decode()
    return {
        "method": scope["method"],
        "path": f"{path}?{query}" if query else path,
        "credential": None if not sent else TOKENS[sent].name if sent in TOKENS else "unknown",
        "sent": int(headers.get("content-length", 0)),
        "status": None,
    }


def _noted(send: Send, entry: dict[str, Any]) -> Send:
    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            entry["status"] = message["status"]
        await send(message)

    return noted


def _nowhere(entry: dict[str, Any]) -> Send:
    async def swallow(message: Message) -> None:
        if message["type"] == "http.response.start":
            entry["status"] = message["status"]

    return swallow


def _cut(noted: Send, send: Send, after: int) -> Send:
    """Pass on that many bytes of the body, then hang up."""
    left = after

    async def passing(message: Message) -> None:
        nonlocal left
        if message["type"] != "http.response.body":
            return await noted(message)
        if left < 0:
            return None
        body = message.get("body", b"")[:left]
        await noted({"type": "http.response.body", "body": body, "more_body": True})
        left -= len(body)
        if left == 0:
            left = -1
            await _hang_up(send)
        return None

    return passing


async def _hang_up(send: Send) -> None:
    transport = send.__self__.transport  # type: ignore[attr-defined]  # the server's own request cycle
    await asyncio.sleep(0.01)  # what was written before goes out first
    transport.abort()
    await asyncio.sleep(0.01)


async def _drained(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _answer(send: Send, status: int, headers: dict[str, str], value: Any) -> None:
    data = json.dumps(value).encode()
    sent = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    pairs = [(name.lower().encode(), text.encode()) for name, text in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": data})
