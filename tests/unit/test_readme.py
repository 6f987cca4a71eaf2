"""What README.md says is true: its commands run, its recipe loads, its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import ExitCode
from hub_exporter.recipe import load_recipe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


OF_A_PLAN = ("hub-exporter run", "hub-exporter publish", "hub-exporter generate")
"""They need what the command before them left: `tests/engine/test_fanout.py` and `test_command.py` run them."""

COMMANDS = [
    line
    for block in blocks("bash")
    for line in block.splitlines()
    if line.startswith("hub-exporter") and not line.startswith(OF_A_PLAN)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str, tmp_path: Path) -> None:
    """`export` is planned rather than run: the demo and the engine tests run it."""
    (tmp_path / "hub-exporter.yaml").write_text(blocks("yaml")[0], "utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    words = shlex.split(command)[1:]
    words[0] = "plan" if words[0] == "export" else words[0]

    done = subprocess.run(
        [sys.executable, "-m", "hub_exporter", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    for target in ("demo", "test"):
        assert f"make {target}" in "".join(blocks("bash"))
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_recipe_loads(tmp_path: Path) -> None:
    path = tmp_path / "hub-exporter.yaml"
    path.write_text(blocks("yaml")[0], "utf-8")

    assert len(load_recipe(path).models) == 2


def test_the_exit_codes_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", README, re.MULTILINE))

    assert {int(code) for code in table} == {int(code) for code in ExitCode}
    source = (ROOT / "hub_exporter" / "errors.py").read_text("utf-8")
    for meaning in table.values():
        assert f'"""{meaning}."""' in source


def test_the_backends_are_those_of_the_catalogue() -> None:
    table = dict(re.findall(r"^\| `([a-z-]+)` \| `([a-z0-9/]+/)` \|", README, re.MULTILINE))

    assert table == {name: f"{backend.folder}/" for name, backend in BACKENDS.items()}
