"""The examples of a card, run as a reader would: in the written folder, by a process that knows nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hub_exporter.records import Index, JobResult
from hub_exporter.snippets import render_client, render_snippet


def output_of(index: Index, job: JobResult, folder: Path, python: str | Path = sys.executable) -> str:
    """What the example of `job` prints.

    `python` is the interpreter of an environment that may have no more than the packages that the card names.
    """
    code = render_snippet(index, job)
    assert code
    return _run(code, folder, [python, "-I", "-c", code])


def output_in(client: str, index: Index, job: JobResult, folder: Path, python: Path) -> str:
    """What the example for another program prints."""
    code = render_client(index, job, client)
    return _run(code, folder, [python, "-I", "-c", code])


def output_in_node(client: str, index: Index, job: JobResult, folder: Path, scripts: Path) -> str:
    """The same in Node, which finds packages beside the file: `scripts` is a folder that has them."""
    code = render_client(index, job, client)
    (scripts / "example.mjs").write_text(code, "utf-8")
    return _run(code, folder, ["node", scripts / "example.mjs"])


def _run(code: str, folder: Path, command: list[str | Path]) -> str:
    """It must be on the card word for word, and end well."""
    assert code.strip() in (folder / "README.md").read_text("utf-8")
    return run_as_a_reader(command, folder)


def run_as_a_reader(command: list[str | Path], folder: Path) -> str:
    """What `command` prints in `folder`, in a process that knows nothing else."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout
