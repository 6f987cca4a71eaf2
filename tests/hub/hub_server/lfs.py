"""Large files: the LFS batch endpoint, uploads in one piece or in parts. What arrives must have the hash it was
announced with."""

from __future__ import annotations

import hashlib
import math
import secrets

from starlette.responses import Response

from hub_server.routing import Call, Refusal, ok, route

PART = 5 * 1024 * 1024
"""Larger files come in parts of this many bytes."""


@route("POST", r"{page}\.git/info/lfs/objects/batch")
async def batch(call: Call) -> Response:
    asked = await call.json()
    if call.token is None or call.token.role != "write":
        raise Refusal(403 if call.token else 401, "Forbidden: pass a token with write rights")
    call.repo()
    return ok({"transfer": "basic", "objects": [_object(call, item["oid"], item["size"]) for item in asked["objects"]]})


def _object(call: Call, oid: str, size: int) -> dict[str, object]:
    if call.store.lfs_path(oid).is_file():
        return {"oid": oid, "size": size}
    verify = {"href": f"{call.base}{call.request.url.path.replace('/batch', '/verify')}"}
    if size <= PART:
        upload: dict[str, object] = {"href": f"{call.base}/_storage/{oid}"}
    else:
        upload_id = secrets.token_hex(8)
        parts = {
            f"{n + 1:05}": f"{call.base}/_storage/{oid}/{upload_id}/{n + 1}" for n in range(math.ceil(size / PART))
        }
        upload = {
            "href": f"{call.base}/_storage/{oid}/{upload_id}",
            "header": {"chunk_size": str(PART), **parts},
        }
    return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": verify}}


@route("PUT", "/_storage/(?P<oid>[0-9a-f]{64})")
async def put(call: Call) -> Response:
    _keep(call, await call.request.body())
    return ok()


@route("PUT", r"/_storage/(?P<oid>[0-9a-f]{64})/(?P<upload>\w+)/(?P<part>\d+)")
async def put_part(call: Call) -> Response:
    data = await call.request.body()
    (call.store.root / "parts" / f"{call.parts['upload']}-{int(call.parts['part']):05}").write_bytes(data)
    return ok(ETag=f'"{hashlib.md5(data).hexdigest()}"')


@route("POST", r"/_storage/(?P<oid>[0-9a-f]{64})/(?P<upload>\w+)")
async def complete(call: Call) -> Response:
    paths = sorted((call.store.root / "parts").glob(f"{call.parts['upload']}-*"))
    sent = [part["etag"].strip('"') for part in (await call.json())["parts"]]
    if sent != [hashlib.md5(path.read_bytes()).hexdigest() for path in paths]:
        raise Refusal(400, "The parts are not those that were uploaded")
    _keep(call, b"".join(path.read_bytes() for path in paths))
    for path in paths:
        path.unlink()
    return ok()


@route("POST", r"{page}\.git/info/lfs/objects/verify")
async def verify(call: Call) -> Response:
    asked = await call.json()
    path = call.store.lfs_path(asked["oid"])
    if not path.is_file() or path.stat().st_size != asked["size"]:
        raise Refusal(404, "There is no such object")
    return ok()


def _keep(call: Call, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != call.parts["oid"]:
        raise Refusal(400, "The content does not have the hash that it was announced with")
    temporary = call.store.root / "parts" / call.parts["oid"]
    temporary.write_bytes(data)
    temporary.replace(call.store.lfs_path(call.parts["oid"]))
