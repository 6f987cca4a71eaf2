"""How the actions get hub-exporter onto a runner."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running_workflows import ROOT, STANDINS

PIP = """#!/usr/bin/env bash
[ "$1" = -m ] || exec "$STAND_IN_PYTHON" "$@" # the stand-in for uv is a script
echo "$@" >> "$RUNNER_TEMP/pip"
[ -z "$OFFLINE" ] || { echo "no network" >&2; exit 1; }
mkdir -p "$6/bin" && cp "$STAND_INS/bin/uv" "$6/bin/uv"
"""
"""A `python3` that installs the stand-in for uv, wherever pip is told to."""


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A machine with bash and little else: its PATH, beside its folder of temporary files."""
    path = tmp_path / "path"
    path.mkdir()
    (tmp_path / "temp").mkdir()
    for tool in ("bash", "cp", "dirname", "env", "mkdir"):
        (path / tool).symlink_to(str(shutil.which(tool)))
    return path


def on_runner(path: Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": str(path), "RUNNER_TEMP": str(path.parent / "temp"), "STAND_INS": str(STANDINS)}
    given |= {"STAND_IN_PYTHON": sys.executable, "HOME": str(path.parent)}
    command = [ROOT / "bin/on-runner", "--version"]
    return subprocess.run(command, cwd=cwd, env=given | env, capture_output=True, text=True, check=False)


def put(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    file.chmod(0o755)


def test_a_uv_of_the_runner_is_used(runner: Path) -> None:
    put(runner / "uv", f'#!/bin/sh\nexec {sys.executable} {STANDINS / "bin/uv"} "$@"\n')

    done = on_runner(runner)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("hub-exporter ")
    installed = {path.name for path in (runner.parent / "temp").rglob("*.dist-info")}
    assert any(name.startswith("huggingface-hub-") for name in installed)
    assert not any(name.startswith(("torch-", "transformers-", "onnx-")) for name in installed)


def test_without_one_pip_installs_it_by_its_digest(runner: Path) -> None:
    put(runner / "python3", PIP)
    uv = runner.parent / "temp/hub-exporter/uv/bin/uv"

    done = on_runner(runner, OFFLINE="")

    asked = (runner.parent / "temp/pip").read_text("utf-8").split()
    assert asked[:5] == ["-m", "pip", "install", "--quiet", "--target"]
    assert asked[6:] == ["--require-hashes", "--requirement", str(ROOT / "pins/uv.txt")]
    assert uv.exists()
    assert done.returncode == 0, done.stderr
    assert "::error" not in done.stdout


def test_a_runner_that_can_install_nothing_says_so_on_the_page_of_the_run(runner: Path) -> None:
    put(runner / "python3", PIP)

    done = on_runner(runner, OFFLINE="1")

    assert done.returncode != 0
    assert "no network" in done.stderr
    assert "::error title=hub-exporter::It could not be installed here" in done.stdout


def test_nothing_in_the_workspace_is_imported(runner: Path, tmp_path: Path) -> None:
    put(runner / "uv", f'#!/bin/sh\nexec {sys.executable} {STANDINS / "bin/uv"} "$@"\n')
    (tmp_path / "typer.py").write_text("raise SystemExit('the wrong typer')", "utf-8")

    done = on_runner(runner, tmp_path)

    assert done.returncode == 0, done.stderr
