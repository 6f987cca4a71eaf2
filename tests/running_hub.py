"""The test Hub as a process, and the real client in processes of its own: it reads its environment when imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
HERE = TESTS / "hub"


@contextmanager
def serving(data: Path) -> Iterator[str]:
    """A Hub whose files are in `data`, as long as it is needed: its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hub_server", "--data", str(data)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@dataclass(frozen=True)
class Hub:
    """A running Hub."""

    endpoint: str
    home: Path
    """Cache of the clients, fresh for each test."""

    def environment(self, token: str | None = "hf_alice", **changes: str) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "GITHUB_"))}
        settings = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "DISABLE_SAFETENSORS_CONVERSION": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONPATH": f"{TESTS}{os.pathsep}{HERE}",
        }
        return clean | settings | ({"HF_TOKEN": token} if token else {}) | changes

    def python(self, script: str, *arguments: Any, token: str | None = "hf_alice", **env: str) -> Any:
        """What a script of the client prints as JSON; its arguments are in `args`."""
        done = self.process(script, *arguments, token=token, **env)
        out, err = done.communicate()
        assert done.returncode == 0, err
        assert not token or token not in out + err, "the token was shown"
        return json.loads(out.splitlines()[-1]) if out.strip() else None

    def process(self, script: str, *arguments: Any, token: str | None = "hf_alice", **env: str) -> subprocess.Popen:
        head = "import json, sys\nargs = json.loads(sys.argv[1])\ndef tell(value): print(json.dumps(value))\n"
        return subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(script), json.dumps(arguments, default=str)],
            env=self.environment(token, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # ── Its back door ──

    def _manage(self, path: str, method: str, value: Any = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        with urllib.request.urlopen(urllib.request.Request(self.endpoint + path, data, method=method)) as answer:
            return json.load(answer)

    def log(self) -> list[dict[str, Any]]:
        return self._manage("/_log", "GET")

    def forget(self) -> None:
        self._manage("/_log", "DELETE")

    def fail(self, *rules: dict[str, Any]) -> None:
        self._manage("/_faults", "POST", list(rules))

    def heal(self) -> None:
        self._manage("/_faults", "DELETE")
