"""The callers of workflows/ call the callable workflow, which plans, exports on runners of their own, and publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from running_hub import Hub
from running_workflows import ROOT, Consumer, Run

RECIPE = """
models:
  - source: org/tiny-chat
    target: {target}
    backends: [onnx, openvino, dynamo]
    dataset: {{path: builtin}}
"""

ONNX, OPENVINO, DYNAMO, MLX = (
    f"tiny-chat.{backend}.fp32" for backend in ("onnx", "openvino", "dynamo", "executorch-mlx")
)
CUDA = "tiny-chat.executorch-cuda.bf16"
CREATE = "from huggingface_hub import HfApi; HfApi().create_repo(args[0])"
JOBS = {"Plan", f"Export {ONNX}", f"Export {OPENVINO}", f"Export {DYNAMO}", "Publish"}
CALLER = (ROOT / "workflows/organisation.yml").read_text("utf-8")


@pytest.fixture
def organisation(consumer: Callable[..., Consumer]) -> Callable[..., Consumer]:
    """A repository with the caller for an organisation, and a recipe with this target."""

    def make(target: str, recipe: str = RECIPE) -> Consumer:
        return consumer({".github/workflows/ours.yml": CALLER, "hub-exporter.yaml": recipe.format(target=target)})

    return make


def state(hub: Hub, repo: str) -> tuple[list[str], dict[str, str], list[str]]:
    """Titles of the commits, the outcome of each job as the index has it, and the files."""
    titles, index, files = hub.python(
        """
from huggingface_hub import HfApi
api = HfApi()
titles = [commit.title for commit in api.list_repo_commits(args[0])]
index = open(api.hf_hub_download(args[0], "hub-exporter.json")).read()
tell([titles, json.loads(index), api.list_repo_files(args[0])])
""",
        repo,
    )
    return titles, {job["job"]: job["status"] for job in index["jobs"]}, files


def credentials(hub: Hub) -> set[Any]:
    return {entry["credential"] for entry in hub.log() if "/commit/" in entry["path"]}


def result(run: Run) -> dict[str, Any]:
    (text,) = run.outputs("result")
    (model,) = json.loads(text)
    return model


def test_all_cells_pass(organisation, hub):
    hub.python(CREATE, "org/all")

    run = organisation("org/all").act("workflow_dispatch")

    assert run.status == 0, run.log
    assert run.jobs == dict.fromkeys(JOBS, "success"), run.log
    titles, jobs, files = state(hub, "org/all")
    assert titles[0].startswith("Verified exports of tiny-chat at ")
    assert len(titles) == 2
    assert jobs == dict.fromkeys([ONNX, OPENVINO, DYNAMO], "passed")
    assert {"onnx/model.onnx", "openvino/openvino_model.xml", "pt2/model.pt2", "tokenizer.json"} < set(files)
    assert credentials(hub) == {"trusted-publisher"}
    assert run.outputs("commit-url") == {result(run)["url"]}
    assert f"[commit]({result(run)['url']})" in run.summary
    assert "| `onnx/model.onnx` |" in run.summary
    assert run.commands("error") == []


def test_a_cell_that_fails_does_not_stop_the_others_and_can_be_run_again(organisation, hub):
    repository = organisation("org/one-fails")
    hub.python(CREATE, "org/one-fails")

    run = repository.act("workflow_dispatch", STAND_IN=json.dumps({OPENVINO: "fail", DYNAMO: "mismatch"}))

    assert run.status == 1
    assert run.jobs == {
        **dict.fromkeys(JOBS, "success"),
        **dict.fromkeys([f"Export {OPENVINO}", f"Export {DYNAMO}", "Publish"], "failure"),
    }
    assert state(hub, "org/one-fails")[1] == {ONNX: "passed", OPENVINO: "failed", DYNAMO: "mismatch"}
    assert {job["job"]: job["status"] for job in result(run)["jobs"]} == state(hub, "org/one-fails")[1]
    assert "The toolchain gave up\nWait" in run.commands("error")
    assert f"Log of {DYNAMO}" in run.commands("group")
    assert f"- `{OPENVINO}` failed: The toolchain gave up" in run.summary

    again = repository.act("workflow_dispatch", "--matrix", f"job:{OPENVINO}", "--matrix", f"job:{DYNAMO}")

    assert again.status == 0, again.log
    assert set(again.jobs) == JOBS - {f"Export {ONNX}"}
    titles, jobs, _ = state(hub, "org/one-fails")
    assert jobs == dict.fromkeys([ONNX, OPENVINO, DYNAMO], "passed")
    assert len(titles) == 3


def test_nothing_is_published_when_all_are_required(organisation, hub):
    repository = organisation("org/required", RECIPE + "publish: {{require: all}}\n")
    hub.python(CREATE, "org/required")

    run = repository.act("workflow_dispatch", STAND_IN=json.dumps({OPENVINO: "fail"}))

    assert run.jobs == {**dict.fromkeys(JOBS, "success"), **dict.fromkeys([f"Export {OPENVINO}", "Publish"], "failure")}
    assert credentials(hub) == set()
    assert "Nothing was written to `org/required`." in run.summary


def test_a_cell_that_is_killed_counts_as_failed(organisation, hub):
    hub.python(CREATE, "org/killed")

    run = organisation("org/killed").act("workflow_dispatch", STAND_IN=json.dumps({DYNAMO: "kill"}))

    assert run.jobs == {**dict.fromkeys(JOBS, "success"), **dict.fromkeys([f"Export {DYNAMO}", "Publish"], "failure")}
    assert {path.name.partition("@")[0] for path in run.artifacts.iterdir()} == {"hub-exporter-plan", ONNX, OPENVINO}
    assert f"- `{DYNAMO}` failed: its runner never reported" in run.summary
    assert state(hub, "org/killed")[1] == {ONNX: "passed", OPENVINO: "passed", DYNAMO: "failed"}


def test_what_is_skipped_is_said_and_what_is_left_is_published(organisation, hub):
    hub.python(CREATE, "org/skipped")
    recipe = RECIPE.replace("[onnx, openvino, dynamo]", "[onnx, executorch-xnnpack]\n    variants: [fp32, int8-static]")

    run = organisation("org/skipped", recipe).act("workflow_dispatch", "--input", "only=*.onnx.*")

    assert run.status == 0, run.log
    assert set(run.jobs) == {"Plan", f"Export {ONNX}", "Publish"}
    assert f"- `{ONNX.replace('fp32', 'int8-static')}` skipped: " in run.summary


def test_a_dry_run_publishes_nothing(organisation, hub):
    hub.python(CREATE, "org/dry")

    run = organisation("org/dry").act("workflow_dispatch", "--input", "dry-run=true", "--input", f"only={ONNX}")

    assert run.status == 0, run.log
    assert set(run.jobs) == {"Plan", f"Export {ONNX}", "Publish"}
    assert credentials(hub) == set()
    assert "would be written to `org/dry`" in run.summary


def test_one_model_on_a_release_with_tokens_where_there_is_no_identity(consumer, hub):
    """The one that reads is for plan and export, the one that writes for publish alone."""
    caller = (ROOT / "workflows/one-model.yml").read_text("utf-8")
    changed = caller.replace("org/model-exports", "lab/new").replace("org/model", "org/tiny-chat").rstrip()
    changed += "\n      only: '*.onnx.* *.dynamo.*'\n    secrets:\n"
    changed += "".join(f"      {name}: ${{{{ secrets.{name} }}}}\n" for name in ("HF_TOKEN", "HF_READ_TOKEN"))
    repository = consumer({".github/workflows/release.yml": changed})

    run = repository.act("release", "--secret", "HF_TOKEN=hf_alice", "--secret", "HF_READ_TOKEN=hf_alice_read")

    assert run.status == 0, run.log
    assert set(run.jobs) == {"Plan", f"Export {ONNX}", f"Export {DYNAMO}", "Publish"}
    assert credentials(hub) == {"alice-write"}
    assert {entry["credential"] for entry in hub.log()} - {None} == {"alice-write", "alice-read"}
    assert state(hub, "lab/new")[1] == {ONNX: "passed", DYNAMO: "passed"}
    assert not re.search(r"hf_alice|request-token", run.log)


def test_a_model_that_cannot_be_planned_does_not_stop_the_others(organisation, hub):
    hub.python(CREATE, "org/partly")

    run = organisation("org/partly", RECIPE + "  - {{source: org/gone, target: org/x}}\n").act("workflow_dispatch")

    assert run.jobs == {**dict.fromkeys(JOBS, "success"), "Publish": "failure"}
    assert state(hub, "org/partly")[1] == dict.fromkeys([ONNX, OPENVINO, DYNAMO], "passed")
    assert "### org/gone" in run.summary
    assert any("There is no model `org/gone`" in error for error in run.commands("error"))


def test_nothing_to_do_is_no_failure(organisation, hub):
    run = organisation("org/nothing", RECIPE + "    variants: [int8-static]\n").act("workflow_dispatch")

    assert run.status == 0, run.log
    assert run.jobs == {"Plan": "success"}
    assert "### Nothing to export" in run.summary
    assert list(run.artifacts.iterdir()) == []


def test_every_job_runs_on_the_runner_that_the_recipe_names_for_its_kind(organisation, hub):
    hub.python(CREATE, "org/kinds")
    recipe = (
        RECIPE.replace("[onnx, openvino, dynamo]", "[onnx, executorch-mlx, executorch-cuda]")
        + "runners: {{linux-cpu: ubuntu-latest, macos-arm64: macos-15, linux-cuda: [self-hosted, our-gpu]}}\n"
    )

    run = organisation("org/kinds", recipe).act("workflow_dispatch")

    assert run.status == 0, run.log
    made = {ONNX: "ubuntu-latest", MLX: "macos-15", CUDA: ["self-hosted", "our-gpu"]}
    (matrix,) = run.outputs("matrix")
    assert {cell["job"]: cell["runner"] for cell in json.loads(matrix)["include"]} == made
    assert run.jobs == dict.fromkeys({"Plan", "Publish", *(f"Export {job}" for job in made)}, "success")
    assert state(hub, "org/kinds")[1] == dict.fromkeys(made, "passed")


def test_a_schedule_exports_what_is_stale(consumer, hub):
    hub.python(CREATE, "org/stale")
    caller = (ROOT / "workflows/schedule.yml").read_text("utf-8")
    recipe = RECIPE.format(target="org/stale").replace("openvino, ", "")
    repository = consumer({".github/workflows/weekly.yml": caller, "hub-exporter.yaml": recipe})

    first = repository.act("schedule")
    second = repository.act("schedule")
    repository.put({"hub-exporter.yaml": recipe.replace("dynamo]", "dynamo, openvino]")})
    third = repository.act("schedule")

    assert first.jobs == dict.fromkeys(JOBS - {f"Export {OPENVINO}"}, "success")
    assert second.jobs == {"Plan": "success"}
    assert third.jobs == dict.fromkeys({"Plan", f"Export {OPENVINO}", "Publish"}, "success")
    assert state(hub, "org/stale")[1] == dict.fromkeys([ONNX, OPENVINO, DYNAMO], "passed")
