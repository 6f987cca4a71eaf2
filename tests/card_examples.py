"""The examples of a card, run as a reader would: in the written folder, by a process that knows nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hub_exporter.records import Index, JobResult
from hub_exporter.snippets import render_snippet


def output_of(index: Index, job: JobResult, folder: Path) -> str:
    """What the example of `job` prints. It must be on the card word for word, and end well."""
    snippet = render_snippet(index, job)
    assert snippet
    assert snippet.strip() in (folder / "README.md").read_text("utf-8")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTHON"))}
    command = [sys.executable, "-I", "-c", snippet]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=clean)
    assert done.returncode == 0, done.stderr
    return done.stdout
