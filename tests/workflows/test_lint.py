"""All linters are content with every workflow and action, and each of them would not be with what is wrong."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from running_workflows import BIN, ROOT, copy, tracked

LINTED = ("action.yml", "bin/", "plan/", "export/", "publish/", "workflows/", ".github/", "tests/workflows/standins/")

FAULTS = {
    "zizmor": (
        *("plan/action.yml", '"$ON_RUNNER" plan', '"$ON_RUNNER" plan ${{ inputs.only }}'),
        "template-injection",
    ),
    "actionlint": (".github/workflows/export.yml", "needs: plan\n", "needs: plans\n", "plans"),
    "jactionlint": ("publish/action.yml", "steps.run.outputs.result", "steps.ran.outputs.result", '"ran"'),
    "check-jsonschema": ("action.yml", "using: composite", "using: compost", "compost"),
    "shellcheck": ("bin/on-runner", 'exec "$home/python/bin/python"', "exec $home/python/bin/python", "SC2086"),
}
"""Linter -> a file, what is right in it, what is wrong, and what the linter says of that."""


def lint(folder: Path, *linters: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [folder / "bin/lint-workflows", *linters], env=env, capture_output=True, text=True, check=False
    )


def test_all_linters_are_content() -> None:
    done = lint(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("linter", FAULTS)
def test_each_linter_finds_what_is_wrong(linter: str, tmp_path: Path) -> None:
    path, right, wrong, said = FAULTS[linter]
    folder = copy([name for name in tracked() if name.startswith(LINTED)], tmp_path)
    text = (folder / path).read_text("utf-8")
    assert right in text
    (folder / path).write_text(text.replace(right, wrong, 1), "utf-8")

    done = lint(folder, linter)

    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_make_lint_and_the_test_know_the_same_linters() -> None:
    script = (ROOT / "bin/lint-workflows").read_text("utf-8")

    assert set(re.findall(r"^    ([a-z-]+)\)$", script, re.MULTILINE)) == set(FAULTS)
    assert f"set -- {' '.join(FAULTS)}\n" in script
    assert "bin/lint-workflows" in (ROOT / "Makefile").read_text("utf-8")


def test_no_workflow_and_no_action_lies_where_nobody_looks() -> None:
    linted = re.findall(r"^(?:workflows|actions)=\((.*)\)$", (ROOT / "bin/lint-workflows").read_text(), re.MULTILINE)
    found = [path for globs in linted for glob in globs.split() for path in ROOT.glob(glob)]
    names = [name for name in tracked() if re.search(r"(^|/)action\.ya?ml$|(^|/)workflows/[^/]*\.ya?ml$", name)]

    assert sorted(names) == sorted(path.relative_to(ROOT).as_posix() for path in found)


def test_dependabot_looks_where_actions_are() -> None:
    dependabot = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))
    folders = {f"/{path.parent.relative_to(ROOT).as_posix()}".removesuffix(".") for path in ROOT.glob("*/action.yml")}

    assert folders | {"/"} == set(dependabot["updates"][0]["directories"])
