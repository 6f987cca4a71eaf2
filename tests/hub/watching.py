"""A reader that loops over a repository while somebody publishes to it, and notes every state that it sees."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import urllib.request
from typing import Any

ENDPOINT = os.environ["HF_ENDPOINT"]
NAME = "bob-write"
"""Of the reader's token, by which rules for faults can pass it over."""
TOKEN = {"Authorization": "Bearer hf_bob"}


def get(path: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(ENDPOINT + path, headers=TOKEN)) as answer:
        return answer.read()


def state(repo: str, revision: str = "main") -> str:
    """Digest of a whole revision, after everything that its index lists was found in it."""
    info = json.loads(get(f"/api/models/{repo}/revision/{revision}?blobs=true"))
    there = {file["rfilename"]: file for file in info["siblings"]}
    if "hub-exporter.json" in there:
        index = json.loads(get(f"/{repo}/resolve/{info['sha']}/hub-exporter.json"))
        for artifact in [*index["side_files"], *(a for job in index["jobs"] for a in job["artifacts"])]:
            found = there[artifact["path"]]
            assert found["size"] == artifact["size"], artifact
            assert found.get("lfs", {}).get("sha256", artifact["sha256"]) == artifact["sha256"], artifact
    names = sorted((path, file["blobId"]) for path, file in there.items() if path != ".gitattributes")
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


class Reader:
    """Reads in a thread of its own until the block ends."""

    def __init__(self, repo: str):
        self.repo, self.seen, self.problems = repo, list[str](), list[Any]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def _loop(self) -> None:
        while not self._stop.wait(0.01):
            try:
                seen = state(self.repo)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test has to see it
                self.problems.append(repr(error))
                continue
            if not self.seen or self.seen[-1] != seen:
                self.seen.append(seen)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
