"""The committed workflows, run on this machine by `act`, from the plan to a commit on the test Hub.

What is not the real thing: GitHub itself, of course; the two artifact actions (workflows/standins/actions), because
they need GitHub's storage; and, unless a test says otherwise, the environments that jobs run in
(workflows/standins/bin/uv).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running_hub import Hub

from hub_exporter import installer

ROOT = Path(__file__).parents[1]
TINY = ROOT / "examples" / "tiny-chat"
STANDINS = ROOT / "tests" / "workflows" / "standins"
NAME = "org/hub-exporter"
"""What the callers in workflows/ call this repository."""
LABELS = ("ubuntu-latest", "macos-15", "our-gpu")
"""Runners that exist here. A job on any other is never run, and act does not say so."""
USES = re.compile(r"(?P<head>^\s*(?:- )?uses:\s*)(?P<action>\S+)", re.MULTILINE)
BIN = Path(sys.executable).parent


def tracked() -> list[str]:
    """Files of this repository as git has them, new ones included."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy(names: list[str], folder: Path) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def stand_ins(folder: Path) -> Iterator[str]:
    """`owner/name@commit=folder` for each action of others that is in use. There has to be one for each."""
    for path in [*folder.glob(".github/workflows/*.yml"), *folder.glob("**/action.yml")]:
        for uses in USES.finditer(path.read_text()):
            name, _, commit = uses["action"].partition("@")
            if commit and name != "actions/checkout" and not name.startswith(NAME):
                assert (STANDINS / name).is_dir(), f"{path} uses {name}: tests/workflows/standins lacks it"
                yield f"{name}@{commit}={STANDINS / name}"


@dataclass(frozen=True)
class Run:
    """What became of one run of a workflow."""

    status: int
    lines: list[dict[str, Any]]
    artifacts: Path

    @property
    def jobs(self) -> dict[str, str]:
        """Job -> result, of those that finished: `Plan`, `Export tiny-chat.onnx.fp32`, ...

        act has one result for all cells of a matrix. So a job has failed where one of its steps has.
        """
        results = {_name(line): line["jobResult"] for line in self.lines if "jobResult" in line}
        failed = {_name(line) for line in self.lines if line.get("stepResult") == "failure"}
        return {name: "failure" if name in failed else "success" for name in results}

    def commands(self, name: str) -> list[str]:
        """What steps told the runner: `error`, `notice`, `group`, ..."""
        return [line["arg"] for line in self.lines if line.get("command") == name]

    def outputs(self, name: str) -> set[str]:
        """The values that steps gave this output."""
        return {line["arg"] for line in self.lines if line.get("command") == "set-output" and line["name"] == name}

    @property
    def summary(self) -> str:
        """Everything on the run's page; what a composite action writes is told twice."""
        return "\n".join(dict.fromkeys(line["content"] for line in self.lines if line.get("command") == "summary"))

    @property
    def log(self) -> str:
        """For a failing assertion, and to search in."""
        return "\n".join(f"{line.get('job', '')}: {line.get('msg', '').rstrip()}" for line in self.lines)


def _name(line: Mapping[str, Any]) -> str:
    """Of a job, without the workflow and without the number that act gives to each cell of a matrix."""
    name = line["job"].rpartition("/")[2].strip()
    return re.sub(r"-\d+$", "", name) if line["matrix"] else name


def _caches() -> dict[str, str]:
    """Where this machine keeps packages and gets them from, for jobs that install some in a home of their own."""
    listed = subprocess.run([BIN / "uv", "cache", "dir"], check=True, capture_output=True, text=True).stdout.strip()
    given = {name: value for name, value in os.environ.items() if re.match(r"(UV|PIP|SSL)_|.*_proxy$", name, re.I)}
    return {
        **given,
        "UV_CACHE_DIR": listed,
        "HUB_EXPORTER_CACHE": str(installer.cache()),
        "HUB_EXPORTER_PYTHON": sys.executable,
    }


@dataclass(frozen=True)
class Consumer:
    """Somebody's repository whose workflows use hub-exporter."""

    folder: Path
    published: Path
    hub: Hub

    def put(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, "utf-8")

    def act(self, event: str, *arguments: str, stand_in: bool = True, identity: bool = True, **env: str) -> Run:
        """Run the workflows for an event. `stand_in`: jobs run in made-up environments; `identity`: OIDC is there."""
        subprocess.run(["git", "add", "-A"], cwd=self.folder, check=True)
        place = self.folder.parent / "act"
        artifacts = place / "artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        job = self._of_every_job(artifacts, stand_in) | (self._identity() if identity else {}) | env
        command = [
            *(str(BIN / "act"), event, "--json", "--rm", "--action-offline-mode", "--no-cache-server"),
            *("--action-cache-path", str(place / "cache")),
            *(f"--platform={label}=-self-hosted" for label in LABELS),
            *(f"--local-repository={one}" for one in {*stand_ins(self.published), f"{NAME}@v1={self.published}"}),
            *(f"--env={name}={value}" for name, value in job.items()),
            *(f"--{kind}-file=/dev/null" for kind in ("env", "secret", "var", "input")),
            *arguments,
        ]
        done = subprocess.run(command, cwd=self.folder, env=self._environment(stand_in), capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, done.stderr
        assert not list((place / "cache").glob("*/hostexecutor")), "a job left its workspace behind"
        return Run(done.returncode, lines, artifacts)

    def _environment(self, stand_in: bool) -> dict[str, str]:
        """Of act itself, which hands it on to the jobs: nothing of this machine but what it needs."""
        place = self.folder.parent
        front = [str(STANDINS / "bin"), str(BIN)] if stand_in else [str(BIN)]
        return {
            "PATH": os.pathsep.join([*front, *os.defpath.split(os.pathsep), "/usr/local/bin"]),
            "HOME": str(place / "home"),
            "XDG_CACHE_HOME": str(place / "act"),
            "XDG_CONFIG_HOME": str(place / "act"),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        }

    def _of_every_job(self, artifacts: Path, stand_in: bool) -> dict[str, str]:
        own = {"STAND_INS": str(STANDINS), "STAND_IN_PYTHON": sys.executable} if stand_in else _caches()
        needed = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_PROGRESS_BARS", "NO_PROXY")
        told = self.hub.environment(token=None)
        return {name: told[name] for name in needed} | {"ARTIFACTS": str(artifacts)} | own

    def _identity(self) -> dict[str, str]:
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.hub.endpoint}/_github/id-token?api-version=2",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "request-token",
        }
