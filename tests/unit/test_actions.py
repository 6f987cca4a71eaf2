"""The actions, the callable workflow, the command line and the README name the same inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from hub_exporter.catalogue import PYTHON
from hub_exporter.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = {
    "action.yml": "export",
    "plan/action.yml": "plan",
    "export/action.yml": "run",
    "publish/action.yml": "publish",
}
"""Action -> the command that it calls."""


def load(path: str) -> dict[str, Any]:
    """A YAML file; YAML 1.1 reads the key `on` as true."""
    loaded = yaml.safe_load((ROOT / path).read_text("utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


CALLABLE = load(".github/workflows/export.yml")["on"]["workflow_call"]


def step(path: str) -> dict[str, Any]:
    (only,) = load(path)["runs"]["steps"]
    return only


@pytest.mark.parametrize("path", COMMANDS)
def test_every_input_reaches_the_command(path: str) -> None:
    """By a variable that the command reads, or by name on its line."""
    action, command = load(path), typer.main.get_command(app).commands[COMMANDS[path]]
    known = {parameter.name for parameter in command.params}
    variables = {
        name: re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value) for name, value in step(path)["env"].items()
    }
    handed_on = {name: found[1] for name, found in variables.items() if found}
    prefix = f"HUB_EXPORTER_{COMMANDS[path].upper()}_"

    assert {*handed_on.values(), "hf-token"} == set(action["inputs"])
    for name, value in handed_on.items():
        if name.startswith(prefix):
            assert name.removeprefix(prefix).lower() in known
        elif name == "HUB_EXPORTER_SOURCES":
            assert "sources" in known
        else:
            assert f'"${name}"' in step(path)["run"]
        assert value.replace("-", "_") in {*known, "plan", "folder"}


@pytest.mark.parametrize("path", COMMANDS)
def test_an_action_is_one_call_of_the_command_line(path: str) -> None:
    calls = [line for line in step(path)["run"].splitlines() if "ON_RUNNER" in line]

    assert len(calls) == 1
    assert calls[0].startswith(f'"$ON_RUNNER" {COMMANDS[path]} ')
    assert "${{" not in step(path)["run"]
    assert step(path)["env"]["HF_TOKEN"] == "${{ inputs.hf-token || env.HF_TOKEN }}"


def test_the_workflow_hands_its_inputs_on() -> None:
    """Under the same name, to the action of the job that they are for."""
    given: dict[str, str] = {}
    for job in load(".github/workflows/export.yml")["jobs"].values():
        for uses in job["steps"]:
            if uses["uses"].startswith("$/"):
                given |= {name: str(value) for name, value in uses["with"].items()}

    for name in set(CALLABLE["inputs"]) - {"runner"}:
        assert given[name] == f"${{{{ inputs.{name} }}}}"


def test_only_publish_can_write_and_only_export_runs_model_code() -> None:
    jobs = load(".github/workflows/export.yml")["jobs"]
    secrets = {name: set(re.findall(r"secrets\.(\w+)", str(job))) for name, job in jobs.items()}

    assert {name: set(job["permissions"]) for name, job in jobs.items()} == {
        "plan": {"contents"},
        "export": {"contents"},
        "publish": {"id-token"},
    }
    assert secrets == {"plan": {"HF_READ_TOKEN"}, "export": {"HF_READ_TOKEN"}, "publish": {"HF_TOKEN"}}


# ── The README ──


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def table(head: str) -> list[list[str]]:
    """Rows of the table with this head."""
    return list(rows(README.split(head, 1)[1].split("\n\n", 1)[0]))


def test_the_inputs_of_the_readme() -> None:
    action, workflow = load("action.yml")["inputs"], CALLABLE["inputs"]
    names = [*action, *(name for name in workflow if name not in action)]
    expected = [
        [
            f"`{name}`",
            "x" if name in action else "",
            "x" if name in workflow else "",
            (action.get(name) or workflow[name])["description"],
        ]
        for name in names
    ]

    assert table("| input | action | workflow | |\n") == expected


def test_the_secrets_and_outputs_of_the_readme() -> None:
    def described(values: dict[str, Any]) -> list[list[str]]:
        return [[f"`{name}`", value["description"]] for name, value in values.items()]

    assert table("| secret | |\n") == described(CALLABLE["secrets"])
    assert table("| output | |\n") == described(load("action.yml")["outputs"]) == described(CALLABLE["outputs"])


def test_the_examples_of_the_readme_give_inputs_that_there_are() -> None:
    jobs = [yaml.safe_load(text)["jobs"]["export"] for text in re.findall(r"```yaml\n(jobs:.*?)```", README, re.DOTALL)]
    (step,) = jobs[0]["steps"]

    assert step["uses"] == "org/hub-exporter@v1"
    assert set(step["with"]) <= set(load("action.yml")["inputs"])
    assert jobs[1]["uses"] == "org/hub-exporter/.github/workflows/export.yml@v1"
    assert set(jobs[1]["with"]) <= set(CALLABLE["inputs"])
    for job in jobs:
        assert job["permissions"]["id-token"] == "write"


def test_the_python_of_the_actions_is_that_of_the_plan() -> None:
    assert f'--python "${{HUB_EXPORTER_PYTHON:-{PYTHON}}}"' in (ROOT / "bin/on-runner").read_text("utf-8")


def test_the_launcher_has_what_the_torch_free_half_imports_in_the_versions_of_the_tests() -> None:
    """`bin/on-runner` installs pins/hub-exporter.txt and nothing else."""

    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / name).read_text("utf-8"), re.MULTILINE))

    launcher, tested = pins("pins/hub-exporter.in"), {**pins("constraints.txt"), **pins("pins/stage.in")}
    assert {name: tested[name] for name in launcher if name in tested} == {
        name: version for name, version in launcher.items() if name in tested
    }
    assert pins("pins/uv.in")["uv"] == launcher["uv"]
