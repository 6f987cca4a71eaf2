"""A repository of exports as its users find it, on a Hub of this machine, and the clients that are asked about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import client_environments
from client_environments import CLIENTS
from huggingface_hub import snapshot_download
from running_hub import Hub

TIME_LIMIT = 300
"""Seconds for one run of a client."""


@dataclass(frozen=True)
class Published:
    """The exports of one model."""

    source: Path
    """The model itself."""
    repo: str
    """On the Hub, for clients that go through it."""
    folder: Path
    """All files of the repository, for clients that want a folder."""
    hub: Hub

    def eager(self, **request: Any) -> dict[str, Any]:
        """What the model itself answers in eager transformers."""
        return self.ask("hub-exporter", "eager", model=self.source, **request)

    def ask(self, environment: str, script: str, **request: Any) -> dict[str, Any]:
        """What a client answers: `scripts/<script>.py`, run by the interpreter of its environment (`hub-exporter`: of
        the one that exports)."""
        return self._answer(_python(environment, script), request)

    def refusal(self, environment: str, script: str, **request: Any) -> str:
        """What a client says that cannot do it. That it can is a failure."""
        done = self._run(_python(environment, script), request)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def ask_node(self, scripts: Path, script: str, **request: Any) -> dict[str, Any]:
        """The same for `node/<script>.mjs`."""
        request = {"model": self.repo, "endpoint": self.hub.endpoint, "cache": str(scripts / "cache"), **request}
        return self._answer(["node", str(scripts / f"{script}.mjs")], request)

    def _answer(self, command: Sequence[str], request: Mapping[str, Any]) -> dict[str, Any]:
        done = self._run(command, request)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _run(self, command: Sequence[str], request: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        env = self.hub.environment(token=None)
        env = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [*command, json.dumps({"model": self.repo, **request}, default=str)],
            env=env,
            cwd=self.hub.home,  # nothing of the checkout is on the way
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )


def _python(environment: str, script: str) -> list[str]:
    python = sys.executable if environment == "hub-exporter" else client_environments.python(environment)
    return [str(python), str(CLIENTS / "scripts" / f"{script}.py")]


def publish(hub: Hub, source: Path, name: str, *arguments: str | Path) -> Published:
    """Export with the command to `org/<name>`, and download what arrived there."""
    repo = f"org/{name}"
    command = [sys.executable, "-m", "hub_exporter", "export", source, "--to", repo, *arguments]
    env = hub.environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = hub.home.parent / name
    snapshot_download(repo, endpoint=hub.endpoint, token=False, local_dir=folder)
    return Published(source, repo, folder, hub)
