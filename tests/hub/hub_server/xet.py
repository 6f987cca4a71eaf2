"""Xet without a Xet server: the client is told to keep its chunks in a folder that both sides can see.

`local://` is what hf_xet simulates a store with, for its own tests; where it changes, only the tests of Xet fail.
"""

from __future__ import annotations

import time
import uuid

from starlette.responses import Response

from hub_server.routing import Call, Refusal, ok, route
from hub_server.store import Store


@route("GET", "{repo}/xet-(?:write|read)-token/{rev}")
async def token(call: Call) -> Response:
    call.repo()
    if call.token is None or call.token.role != "write":
        raise Refusal(403 if call.token else 401, "Forbidden: pass a token with write rights")
    folder = call.store.root / "xet" / f"w-{uuid.uuid4().hex}"
    url, expires = f"local://{folder.resolve()}", str(int(time.time()) + 3600)
    headers = {"X_Xet_Cas_Url": url, "X_Xet_Access_Token": "x", "X_Xet_Token_Expiration": expires}
    return ok({"casUrl": url, "accessToken": "x", "exp": int(expires)}, **headers)


def collect(store: Store) -> None:
    """Turn what clients left in their folders into large files of the store."""
