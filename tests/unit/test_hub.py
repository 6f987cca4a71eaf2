"""The real client against a Hub of sixty lines on loopback. It reads its environment when it is imported, so that every
case runs in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SHA = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret_of_the_user"
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "1_Pooling/config.json": b"{}",
    "README.md": b"# Card\n",
    "modeling.py": b"raise SystemExit\n",
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"onnx",
    "onnx/config.json": b"{}",
}
REFUSALS = {
    "org/missing": (401, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
    "org/broken": (500, None),
    "org/forbidden": (403, None),
}


class Hub(BaseHTTPRequestHandler):
    """Serves one repository to whoever asks for any, and refuses the ones above."""

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str | None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        parts = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).strip("/").split("/")
        if parts[:1] != ["api"]:
            return self.file("/".join(parts[4:]))
        repo, rest = "/".join(parts[2:4]), parts[4:]
        if repo in REFUSALS:
            status, code = REFUSALS[repo]  # a message that a careless program would print
            return self.answer(status, X_Error_Code=code, X_Error_Message=f"sent {self.headers['Authorization']}")
        if rest[:1] == ["revision"] and rest[1] not in ("main", "v1", SHA):
            return self.answer(404, X_Error_Code="RevisionNotFound")
        if rest[:1] == ["tree"]:
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in FILES.items()
            ]
            return self.answer(200, json.dumps(entries).encode())
        names = [] if repo == "org/empty" else [{"rfilename": name} for name in FILES]
        return self.answer(200, json.dumps({"id": repo, "sha": SHA, "siblings": names}).encode())

    do_HEAD = do_GET

    def file(self, path: str) -> None:
        data = FILES[path]
        self.answer(200, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=SHA)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


SCRIPT = """
import json, sys
from hub_exporter import hub
from hub_exporter.errors import HubExporterError
for name, args, kwargs in json.loads(sys.argv[1]):
    try:
        found = getattr(hub, name)(*args, **kwargs)
        if name == "fetch":
            files = sorted(f.relative_to(found.folder).as_posix() for f in found.folder.rglob("*") if f.is_file())
            found = {"commit": found.commit, "revision": found.revision, "names": found.names, "files": files}
        print(json.dumps(found))
    except HubExporterError as error:
        print(json.dumps([type(error).__name__, str(error), error.hint]))
"""


def ask(home: Path, endpoint: str, *calls: tuple[str, list[Any], dict[str, Any]], **env: str) -> list[Any]:
    """What calls of `hub` give in a fresh process: a value, or the error as a list."""
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(calls)],
        env={**clean, **settings, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert TOKEN not in process.stdout + process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def fetch(*args: str, **kwargs: Any) -> tuple[str, list[Any], dict[str, Any]]:
    return "fetch", list(args), kwargs


WANTED = ["1_Pooling/config.json", "README.md", "config.json", "model.safetensors", "tokenizer.json"]


def test_snapshot_is_pinned_and_holds_what_loading_needs(endpoint: str, tmp_path: Path) -> None:
    plain, tagged, code = ask(
        tmp_path, endpoint, fetch("org/model"), fetch("org/tagged", "v1"), fetch("org/code", code=True)
    )

    assert (plain["commit"], plain["revision"], plain["files"]) == (SHA, None, WANTED)
    assert plain["names"] == sorted(FILES)
    assert (tagged["commit"], tagged["revision"]) == (SHA, "v1")
    assert code["files"] == sorted([*WANTED, "modeling.py"])


def test_refusals_of_the_hub_become_ours(endpoint: str, tmp_path: Path) -> None:
    missing, gated, revision, broken, forbidden, empty, odd = ask(
        tmp_path,
        endpoint,
        fetch("org/missing"),
        fetch("org/gated"),
        fetch("org/model", "nope"),
        fetch("org/broken"),
        fetch("org/forbidden"),
        fetch("org/empty"),
        fetch("org/--x"),
    )

    assert missing[:2] == ["SourceError", "There is no model `org/missing` on the Hub, or it is private"]
    assert "`HF_TOKEN`" in missing[2]
    assert gated[:2] == ["SourceError", "The model `org/gated` is gated"]
    assert "https://huggingface.co/org/gated" in gated[2]
    assert revision[:2] == ["SourceError", "The model `org/model` has no revision `nope`"]
    assert broken[:2] == ["HubError", "The Hub answered 500 for `org/broken`"]
    assert forbidden[:2] == ["HubError", "The Hub answered 403 for `org/forbidden`"]
    assert "token" in forbidden[2]
    assert empty[:2] == ["SourceError", "`org/empty` has no `config.json`"]
    assert odd[:2] == ["SourceError", "`org/--x` is not a Hub id"]


def test_dataset_is_pinned(endpoint: str, tmp_path: Path) -> None:
    found, missing = ask(
        tmp_path, endpoint, ("dataset_commit", ["org/rows"], {}), ("dataset_commit", ["org/missing"], {})
    )

    assert found == SHA
    assert missing[:2] == ["SourceError", "There is no dataset `org/missing` on the Hub, or it is private"]


def test_cached_snapshot_serves_offline(endpoint: str, tmp_path: Path) -> None:
    ask(tmp_path, endpoint, fetch("org/model"), fetch("org/tagged", "v1"))
    known, by_sha, unknown, with_code = ask(
        tmp_path,
        "http://127.0.0.1:9",
        fetch("org/model", SHA),
        fetch("org/tagged", SHA),
        fetch("org/other"),
        fetch("org/model", SHA, code=True),
        HF_HUB_OFFLINE="1",
    )

    assert (known["commit"], known["files"]) == (SHA, WANTED)
    assert known["names"] == sorted(FILES)
    assert by_sha["commit"] == SHA
    assert unknown[0] == "HubError"
    assert "not in the cache" in unknown[1]
    assert with_code[0] == "HubError"  # the code was never fetched


def test_branch_that_was_fetched_is_known_offline(endpoint: str, tmp_path: Path) -> None:
    ask(tmp_path, endpoint, fetch("org/model"), fetch("org/tagged", "v1"))
    default, tagged = ask(
        tmp_path, "http://127.0.0.1:9", fetch("org/model"), fetch("org/tagged", "v1"), HF_HUB_OFFLINE="1"
    )

    assert (default["commit"], tagged["commit"]) == (SHA, SHA)


def test_hub_that_does_not_answer_is_told(tmp_path: Path) -> None:
    (error,) = ask(tmp_path, "http://127.0.0.1:9", fetch("org/model"))

    assert error[0] == "HubError"
    assert "cannot be reached for `org/model`" in error[1]
    assert "HF_HUB_OFFLINE=1" in error[2]
