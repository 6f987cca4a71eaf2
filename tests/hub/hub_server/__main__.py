"""Serve until ended. The first line on stdout is the address."""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from pathlib import Path

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from hub_server import commits, discussions, downloads, identity, lfs, repos, xet  # noqa: F401 - they register routes
from hub_server.faults import Outside
from hub_server.routing import Application
from hub_server.store import Store


def main() -> None:
    parser = argparse.ArgumentParser(prog="hub_server", description="A Hub on this machine, for tests")
    parser.add_argument("--data", type=Path, help="where its files are kept; a new temporary folder if not given")
    parser.add_argument("--port", type=int, default=0, help="a free one if not given")
    chosen = parser.parse_args()
    data = chosen.data or Path(tempfile.mkdtemp(prefix="hub-"))
    listener = socket.create_server(("127.0.0.1", chosen.port))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201 - whoever started it reads this
    # Pages of any origin may read, as they may from the real one; what they may see of the headers is its list too.
    seen = ["ETag", "X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size", "X-Error-Code", "X-Error-Message"]
    hub = CORSMiddleware(Application(Store(data)), ["*"], allow_headers=["*"], expose_headers=seen)
    app = Outside(hub)
    server = uvicorn.Server(uvicorn.Config(app, log_level=os.environ.get("HUB_LOG", "error"), lifespan="off"))
    server.run(sockets=[listener])


main()
