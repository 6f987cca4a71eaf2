"""The action alone, `uses: org/hub-exporter@v1`, from somebody's repository."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from running_hub import Hub
from running_workflows import ROOT, TINY, Consumer


def workflow(**jobs: Mapping[str, str]) -> dict[str, str]:
    """A workflow with one job for each set of inputs; what the action gives is printed by the step after it."""
    steps = {
        name: [
            {"uses": "actions/checkout@v7"},
            {"id": "export", "uses": "org/hub-exporter@v1", "with": dict(inputs)},
            {"run": 'echo "::notice::$URL"', "env": {"URL": "${{ steps.export.outputs.commit-url }}"}},
        ]
        for name, inputs in jobs.items()
    }
    made = {
        "name": "Mine",
        "on": "workflow_dispatch",
        "jobs": {
            name: {"name": name, "runs-on": "ubuntu-latest", "permissions": {"id-token": "write"}, "steps": listed}
            for name, listed in steps.items()
        },
    }
    return {".github/workflows/mine.yml": yaml.safe_dump(made)}


def test_one_step_exports_and_publishes(consumer: Callable[..., Consumer], hub: Hub) -> None:
    hub.python("from huggingface_hub import HfApi; HfApi().create_repo(args[0])", "org/alone")
    inputs = {"sources": "org/tiny-chat", "to": "org/alone", "backends": "onnx,dynamo", "only": "*.onnx.*"}

    run = consumer(workflow(it=inputs)).act("workflow_dispatch")

    assert run.status == 0, run.log
    assert run.jobs == {"it": "success"}
    (made,) = json.loads(next(iter(run.outputs("result"))))
    assert [job["status"] for job in made["jobs"]] == ["passed"]
    assert run.commands("notice") == [made["url"]]
    files = hub.python("from huggingface_hub import HfApi; tell(HfApi().list_repo_files(args[0]))", "org/alone")
    assert {"onnx/model.onnx", "hub-exporter.json", "README.md"} < set(files)
    assert {entry["credential"] for entry in hub.log() if "/commit/" in entry["path"]} == {"trusted-publisher"}
    assert run.commands("group")[0] == "Prepare hub-exporter"
    assert "tiny-chat.onnx.fp32" in run.commands("group")
    assert "### org/tiny-chat" in run.summary


def test_a_folder_of_the_workspace_and_a_pull_request_with_a_token(consumer: Callable[..., Consumer], hub: Hub) -> None:
    hub.python("from huggingface_hub import HfApi; HfApi().create_repo(args[0])", "org/proposed")
    inputs = {"sources": "./model", "to": "org/proposed", "backends": "onnx", "create-pr": "true"}
    repository = consumer(workflow(it={**inputs, "hf-token": "${{ secrets.HUB }}"}))
    (repository.folder / "model").symlink_to(TINY, target_is_directory=True)

    run = repository.act("workflow_dispatch", "--secret", "HUB=hf_alice")

    assert run.status == 0, run.log
    assert run.outputs("pull-request-url") == {f"{hub.endpoint}/org/proposed/discussions/1"}
    assert run.outputs("commit-url") == {""}
    assert "hf_alice" not in run.log


@pytest.mark.engine
def test_nothing_is_made_up(consumer: Callable[..., Consumer], hub: Hub) -> None:
    """The launcher and the environment of the job come from pins/, the model is traced, and its files are checked."""
    hub.python("from huggingface_hub import HfApi; HfApi().create_repo(args[0])", "org/real")
    rows = (ROOT / "examples/rows.jsonl").read_text("utf-8")
    model = {"source": "org/tiny-chat", "target": "org/real", "backends": ["dynamo"], "dataset": {"path": "rows.jsonl"}}
    recipe = {"hub-exporter.yaml": yaml.safe_dump({"models": [model]}), "rows.jsonl": rows}
    repository = consumer({**recipe, **workflow(it={"recipe": "hub-exporter.yaml"})})

    run = repository.act("workflow_dispatch", stand_in=False)

    assert run.status == 0, run.log
    read = "from huggingface_hub import HfApi; tell(open(HfApi().hf_hub_download(*args)).read())"
    index = json.loads(hub.python(read, "org/real", "hub-exporter.json"))
    (job,) = index["jobs"]
    assert (job["status"], job["verification"]["level"]) == ("passed", "parity")
    assert job["toolchain"]["isolated"]
    assert job["toolchain"]["ran"]["transformers"] == job["toolchain"]["locked"]["transformers"]


def test_wrong_inputs_are_errors_that_say_what_is_right(consumer: Callable[..., Consumer]) -> None:
    wrong = {
        "nothing": ({}, "recipe"),
        "both": ({"sources": "org/tiny-chat", "recipe": "none.yaml"}, "none.yaml"),
        "backend": ({"sources": "org/tiny-chat", "backends": "onyx"}, "onnx"),
        "boolean": ({"sources": "org/tiny-chat", "create-pr": "perhaps"}, "create-pr"),
        "require": ({"sources": "org/tiny-chat", "require": "most"}, "any"),
        "pattern": ({"sources": "org/tiny-chat", "only": "*.onyx.*"}, "matches no job"),
        "model": ({"sources": "org/gone"}, "org/gone"),
        "script": ({"sources": "org/a$(touch hacked) `touch hacked`"}, "touch"),
        "identity": ({"sources": "org/tiny-chat", "to": "org/x", "backends": "onnx"}, "token"),
    }
    repository = consumer(workflow(**{name: inputs for name, (inputs, _) in wrong.items()}))

    run = repository.act("workflow_dispatch", identity=False)

    assert run.jobs == dict.fromkeys(wrong, "failure")
    for name, (_, said) in wrong.items():
        errors = [line["arg"] for line in run.lines if line.get("command") == "error" and line["jobID"] == name]
        assert any(said in error for error in errors), f"{name}: {errors}"
    assert not list(repository.folder.parent.rglob("hacked"))


def test_our_own_ci_exports_with_the_action_itself(consumer: Callable[..., Consumer], published: Path) -> None:
    repository = consumer({"README.md": "Ours"})
    shutil.copytree(published, repository.folder, dirs_exist_ok=True)
    cell = ("--matrix", "backend:onnx", "--matrix", "runner:ubuntu-latest")

    run = repository.act("push", "-W", ".github/workflows/ci.yml", "-j", "backends", *cell)

    assert run.status == 0, run.log
    assert run.jobs == {"Export to onnx": "success"}
    assert "| `tiny-chat.onnx.fp32` | passed |" in run.summary
