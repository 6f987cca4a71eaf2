"""From a plan over runners to the repository: the real client on the test Hub, a process for each command. The exports
are made up; the model and its rows are on the Hub."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hub_exporter.cells import SILENT
from hub_exporter.errors import ExitCode

SETUP = """
import os, signal
import steps
from steps import *
from hub_exporter import session
from hub_exporter.cli import app
"""

RUNNER = (
    SETUP
    + """
def run_model(source, jobs, work, events, *args, **options):
    (job,) = jobs
    assert (Path(source.folder) / "model.safetensors").is_file(), "the weights were not fetched"
    end = json.loads(os.environ.get("ENDS", "{}")).get(job.backend, "passed")
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end != "passed":
        results = (made_up.not_passed(job.backend, end, "it did not", source.name),)
    else:
        results = (steps._result(job.backend, os.environ.get("SALT", ""), 0, source),)
        for artifact in results[0].artifacts:
            made_up.write(work / job.name / artifact.path, content(artifact.path, os.environ.get("SALT", "")))
    return ModelRun(model=source, work=str(work), capture=made_up.capture(), results=results)

def code_of(arguments):
    try:
        app(arguments)
    except SystemExit as stopped:
        return stopped.code

session.run_model = run_model
tell([code_of(arguments) for arguments in args])
"""
)


class Fan:
    """The three commands, and a source and a target that a test has for itself."""

    def __init__(self, hub: Any, folder: Path, source: str):
        self.hub, self.folder, self.source, self.target = hub, folder, source, f"{source}-exports"
        self.onnx, self.dynamo = (f"{source.partition('/')[2]}.{backend}.fp32" for backend in ("onnx", "dynamo"))

    def commands(self, *commands: list[str], token: str | None = None, **env: str) -> tuple[list[int], str]:
        """Exit codes, or that of the process where it died, and what was said. One process: it starts slowly."""
        process = self.hub.process(RUNNER, *commands, token=token, **env)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        assert token is None or token not in out + err
        return (json.loads(out.splitlines()[-1]) if process.returncode == 0 else [process.returncode]), err

    def planning(self, *arguments: str) -> list[str]:
        what = [self.source, "--backends", "onnx,dynamo", "--to", self.target, "--dataset", "org/fan-rows"]
        return ["plan", *what, *arguments, "--save", str(self.folder / "plan.json")]

    def running(self, job: str) -> list[str]:
        return ["run", job, "--plan", str(self.folder / "plan.json"), "--to", str(self.folder / "cells")]

    def plan_and_run(self, *jobs: str, options: Sequence[str] = (), **ends: str) -> list[int]:
        """Plan, and run `jobs`, of which some backends end as said."""
        commands = [self.planning(*options), *map(self.running, jobs)]
        return self.commands(*commands, ENDS=json.dumps(ends))[0]

    def run(self, *jobs: str, **ends: str) -> list[int]:
        return self.commands(*map(self.running, jobs), ENDS=json.dumps(ends))[0]

    def publish(self, *arguments: str, token: str | None = "hf_alice", **env: str) -> tuple[int, str]:
        command = ["publish", str(self.folder / "cells"), "--plan", str(self.folder / "plan.json"), *arguments]
        codes, told = self.commands(command, token=token, **env)
        return codes[0], told

    def asked(self, script: str, *arguments: Any) -> Any:
        return self.hub.python(f"from steps import *; tell({script})", *arguments)

    def files(self) -> set[str]:
        return set(self.asked("state(*args)", self.target))

    def jobs(self) -> dict[str, str]:
        index = json.loads(self.asked('read(args[0], "hub-exporter.json")', self.target))
        return {job["job"]: job["status"] for job in index["jobs"]}

    def commits(self) -> int:
        return len(self.asked("[commit.title for commit in api.list_repo_commits(args[0])]", self.target))

    def exists(self) -> bool:
        return self.asked("api.repo_exists(args[0])", self.target)


@pytest.fixture
def fan(hub, model_folder, tmp_path):
    fan = Fan(hub, tmp_path, f"org/fan-{uuid.uuid4().hex[:8]}")
    hub.python(
        """
from steps import *
api.create_repo(args[0])
api.upload_folder(repo_id=args[0], folder_path=args[1])
api.create_repo("org/fan-rows", repo_type="dataset", exist_ok=True)
put("org/fan-rows", {"data/train.jsonl": "{}"}, repo_type="dataset")
""",
        fan.source,
        model_folder("fan"),
    )
    hub.forget()
    return fan


def writes(fan: Fan) -> list[str]:
    return [entry["path"] for entry in fan.hub.log() if entry["method"] not in ("GET", "HEAD")]


def test_jobs_of_three_machines_become_one_commit_and_only_one_of_them_could_write(fan):
    assert fan.plan_and_run(fan.onnx, fan.dynamo) == [0, 0, 0]
    assert {entry["credential"] for entry in fan.hub.log()} == {None}
    assert writes(fan) == []
    assert len([entry for entry in fan.hub.log() if "/datasets/" in entry["path"]]) == 1
    dry, told = fan.publish("--dry-run")
    assert (dry, fan.exists()) == (ExitCode.OK, False), told
    code, told = fan.publish(GITHUB_OUTPUT=str(fan.folder / "outputs"))

    assert code == ExitCode.OK, told
    assert {"onnx/model.onnx", "pt2/model.pt2", "tokenizer.json", "README.md"} <= fan.files()
    assert fan.jobs() == {fan.onnx: "passed", fan.dynamo: "passed"}
    assert fan.commits() == 2  # the first one made the repository
    outputs = (fan.folder / "outputs").read_text().splitlines()
    assert json.loads(outputs[1])[0]["target"] == fan.target
    assert any(f"{fan.target}/commit/" in line for line in outputs)


def test_every_runner_gets_the_same_rows_and_weights_though_both_moved_on(fan):
    assert fan.plan_and_run() == [0]
    planned = json.loads((fan.folder / "plan.json").read_bytes())["jobs"]
    fan.asked('put("org/fan-rows", {"data/train.jsonl": "{ }"}, repo_type="dataset")')
    fan.asked('put(args[0], {"tokenizer.json": "{}"})', fan.source)

    assert len({job["dataset"]["revision"] for job in planned}) == 1
    assert len(planned[0]["dataset"]["revision"]) == 40
    assert fan.run(fan.onnx, fan.dynamo) == [0, 0]
    assert fan.publish()[0] == ExitCode.OK
    published = fan.asked('json.loads(read(args[0], "tokenizer.json"))', fan.target)
    assert published == {"model": {}}


def test_a_dataset_that_is_not_there_is_told_by_the_plan(fan):
    codes, told = fan.commands(fan.planning("--dataset", "org/nowhere"))

    assert codes == [ExitCode.DATASET]
    assert "There is no dataset `org/nowhere`" in told


def test_a_failed_and_a_killed_job_are_run_again_alone(fan):
    openvino = fan.onnx.replace("onnx", "openvino")
    all_backends = ("--backends", "onnx,dynamo,openvino")
    assert fan.plan_and_run(fan.onnx, fan.dynamo, options=all_backends, dynamo="failed") == [0, 0, 6]
    assert fan.run(openvino, openvino="killed") == [-9]
    code, told = fan.publish()
    assert code == ExitCode.FAILED
    assert f"{fan.dynamo} failed: it did not" in told
    assert f"{openvino} failed: {SILENT}" in told
    assert fan.jobs() == {fan.onnx: "passed", fan.dynamo: "failed", openvino: "failed"}

    assert fan.run(fan.dynamo, openvino) == [0, 0]
    fan.hub.forget()
    assert fan.publish()[0] == ExitCode.OK
    assert fan.jobs() == {fan.onnx: "passed", fan.dynamo: "passed", openvino: "passed"}
    assert fan.commits() == 3
    assert not [path for path in writes(fan) if path.endswith("onnx/model.onnx")]


def test_a_new_plan_for_the_failed_job_keeps_what_is_published(fan):
    fan.plan_and_run(fan.onnx, fan.dynamo, dynamo="failed")
    fan.publish()
    shutil.rmtree(fan.folder / "cells")

    assert fan.plan_and_run(fan.dynamo, options=("--only", fan.dynamo)) == [0, 0]
    assert fan.publish()[0] == ExitCode.OK
    assert fan.jobs() == {fan.onnx: "passed", fan.dynamo: "passed"}
    assert {"onnx/model.onnx", "pt2/model.pt2"} <= fan.files()


def test_with_require_all_a_lost_job_keeps_everything_back(fan):
    fan.plan_and_run(fan.onnx)

    assert fan.publish("--require", "all")[0] == ExitCode.FAILED
    assert not fan.exists()


def test_what_was_tampered_with_reaches_no_repository(fan):
    fan.plan_and_run(fan.onnx, fan.dynamo)
    file = fan.folder / "cells" / fan.onnx / "files/onnx/model.onnx"
    file.write_bytes(file.read_bytes()[::-1])

    code, told = fan.publish()
    assert code == ExitCode.FAILED
    assert "is not the file that was verified" in told
    assert fan.jobs() == {fan.onnx: "failed", fan.dynamo: "passed"}
    assert "onnx/model.onnx" not in fan.files()


def test_a_pull_request_is_made_once_and_grows(fan):
    fan.asked("api.create_repo(args[0]).repo_id", fan.target)
    fan.plan_and_run(fan.onnx, fan.dynamo, dynamo="failed")
    assert fan.publish("--create-pr")[0] == ExitCode.FAILED
    fan.run(fan.dynamo)
    code, told = fan.publish("--create-pr")

    assert code == ExitCode.OK
    assert "as pull request 1" in told
    assert {"onnx/model.onnx", "pt2/model.pt2"} <= set(fan.asked("state(*args)", fan.target, "refs/pr/1"))
    assert "onnx/model.onnx" not in fan.files()


def test_a_trusted_publisher_of_the_target_need_not_read_the_source(fan):
    """The source is private by now: the identity of the workflow is worth a token for the target alone."""
    fan.plan_and_run(fan.onnx, fan.dynamo)
    fan.asked("api.update_repo_settings(args[0], private=True)", fan.source)
    fan.hub.forget()
    code, told = fan.publish(
        token=None,
        GITHUB_ACTIONS="true",
        ACTIONS_ID_TOKEN_REQUEST_URL=f"{fan.hub.endpoint}/_github/id-token?x=1",
        ACTIONS_ID_TOKEN_REQUEST_TOKEN="request-token",
    )

    assert code == ExitCode.OK, told
    assert {"tokenizer.json", "onnx/model.onnx"} <= fan.files()
    assert not [entry for entry in fan.hub.log() if f"{fan.source}/resolve" in entry["path"]]
