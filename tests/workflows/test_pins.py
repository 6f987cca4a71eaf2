"""The weekly pull request that renews the pins. What makes them anew is made up here: it needs a package index."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from running_workflows import ROOT, Consumer, Run

Renew = Callable[..., Run]

MAKEFILE = """
.PHONY: pins canary
pins: .venv/bin/hub-exporter
\t{recipe}

canary: .venv/bin/hub-exporter
\tcp pins/onnx.in $(CANARY).json

.venv/bin/hub-exporter:
\tmkdir -p .venv/bin
\tprintf '#!/bin/sh\\necho "the table of $$*" >&2\\n' > .venv/bin/hub-exporter
\tprintf '#!/bin/sh\\necho "from $$(cat $$2) to $$(cat $$3)"\\n' > .venv/bin/python
\tchmod +x .venv/bin/*
"""


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Where the branch is pushed to, in place of GitHub."""
    folder = tmp_path / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/.gitconfig").write_text(f'[url "{folder}"]\n\tinsteadOf = https://github.com/org/models\n')
    return folder


@pytest.fixture
def renew(consumer: Callable[..., Consumer], origin: Path) -> Renew:
    """Runs the workflow in a repository in which `make pins` does what it is told."""

    def run(recipe: str, **env: str) -> Run:
        workflow = ".github/workflows/pins.yml"
        made = consumer(
            {
                workflow: (ROOT / workflow).read_text("utf-8"),
                "Makefile": MAKEFILE.format(recipe=recipe),
                "pins/onnx.in": "onnx==1.0\n",
                "pins/stage.in": "transformers==5.0\n",
                "code.py": "x = 1\n",
                ".gitignore": ".venv/\n",
            }
        )
        return made.act("workflow_dispatch", GITHUB_SERVER_URL="https://github.com", **env)

    return run


def pushed(origin: Path) -> list[str]:
    """Files that the branch changes."""
    command = ["git", "-C", origin, "show", "--name-only", "--format=", "pins"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_newer_pins_become_a_branch_and_a_pull_request(renew: Renew, origin: Path) -> None:
    done = renew("echo onnx==2.0 > pins/onnx.in; echo x = 2 > code.py")

    assert done.jobs == {"Renew": "success", "Canary": "success", "Propose": "success"}, done.log
    assert pushed(origin) == ["pins/onnx.in"], "and nothing else"
    assert "pr create --head pins" in (done.artifacts / "gh.txt").read_text()
    assert "the table of pins --transformers 5.0" in (done.artifacts / "renewed/body.md").read_text()
    assert (done.artifacts / "canary/table.md").read_text() == "from onnx==1.0 to onnx==2.0\n"


def test_an_open_pull_request_is_renewed(renew: Renew, origin: Path) -> None:
    done = renew("echo onnx==2.0 > pins/onnx.in", OPEN="7")

    assert done.status == 0, done.log
    told = (done.artifacts / "gh.txt").read_text()
    assert "pr edit pins" in told
    assert "pr create" not in told


def test_pins_that_are_new_enough_make_none(renew: Renew) -> None:
    done = renew("true")

    assert done.jobs == {"Renew": "success"}, done.log
    assert not (done.artifacts / "gh.txt").exists()
