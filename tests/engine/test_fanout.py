"""Plan, run and publish as the README shows them: real exports, each command a process."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hub_exporter.folder import holds
from hub_exporter.index import listed
from hub_exporter.records import CellResult, Index, from_json

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_readmes_commands_make_a_verified_target(tmp_path: Path) -> None:
    (block,) = [
        text for text in re.findall(r"^```bash\n(.*?)^```", README, re.DOTALL | re.MULTILINE) if "--save" in text
    ]
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    for command in block.splitlines():
        words = [sys.executable, "-m", "hub_exporter", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    index = from_json((tmp_path / "out/tiny/hub-exporter.json").read_bytes(), Index)
    assert {job.backend: job.verification and job.verification.level for job in index.jobs} == {
        "onnx": "parity",
        "dynamo": "parity",
    }
    assert {job.rows for job in index.jobs} == {None}, "both drew the same rows"
    assert all(holds(tmp_path / "out/tiny", artifact) for artifact in listed(index))
    cells = [from_json(file.read_bytes(), CellResult) for file in tmp_path.glob("results/*/result.json")]
    assert [cell.result.peak_memory > 0 and cell.job.needs is not None for cell in cells] == [True, True]
