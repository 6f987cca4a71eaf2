"""Xet without a Xet server: the client is told to keep its chunks in a folder that both sides can see.

`local://` is what hf_xet simulates a store with, for its own tests; where it changes, only the tests of Xet fail.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

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
    for folder in sorted((store.root / "xet").glob("w-*")):
        known = {sha256: found for sha256, found in _files(folder) if not store.lfs_path(sha256).is_file()}
        if known:
            _fetch(store, folder, known)


def _files(folder: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Of every file in the shards of a folder: sha256, Xet's hash, size."""
    for shard in folder.rglob("*.mdb"):
        data, at = shard.read_bytes(), 48
        while data[at : at + 32] != b"\xff" * 32:
            name = _hash(data[at : at + 32])
            flags, count = struct.unpack_from("<II", data, at + 32)
            at += 48
            size = sum(struct.unpack_from("<I", data, at + 48 * number + 36)[0] for number in range(count))
            at += 48 * count * (2 if flags & 1 << 31 else 1)
            if flags & 1 << 30:
                yield _hash(data[at : at + 32]), (name, size)
                at += 48


def _hash(data: bytes) -> str:
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", data))


def _fetch(store: Store, folder: Path, known: dict[str, tuple[str, int]]) -> None:
    """Read files back with hf_xet itself, from a copy: the client holds a lock on its folder."""
    import hf_xet

    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "store"
        shutil.copytree(folder, copy)
        with hf_xet.XetSession().new_file_download_group(endpoint=f"local://{copy}") as group:
            for sha256, (name, size) in known.items():
                group.start_download_file(hf_xet.XetFileInfo(name, size), str(Path(temporary) / sha256))
        for sha256 in known:
            made = Path(temporary) / sha256
            if hashlib.sha256(made.read_bytes()).hexdigest() == sha256:
                shutil.move(made, store.lfs_path(sha256))
