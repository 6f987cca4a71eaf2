"""The command, from its arguments to a repository; the export itself is made up."""

from __future__ import annotations

from typing import Any

import pytest

COMMAND = """
import os
from steps import *
from hub_exporter import session
from hub_exporter.cli import app

def resolve(request):
    return msgspec.structs.replace(run(repo="org/cli", source="org/cli").model, files=())

def run_model(source, jobs, work, events, verify=True, isolate=False):
    made = run([job.backend for job in jobs], repo="org/cli", source="org/cli", name=source.name)
    return made

def load_again(jobs, results, place, work, isolate=False):
    # its links lead to the same bytes; made-up files are nothing that a runtime could load
    assert all((place / artifact.path).is_file() for result in results for artifact in result.artifacts)
    return os.environ.get("BROKEN")

session.resolve, session.run_model, session.load_again = resolve, run_model, load_again
try:
    app(["export", "org/cli", "--backends", "onnx", *args])
except SystemExit as stopped:
    tell(stopped.code)
"""


def command(hub: Any, *arguments: str, token: str | None = "hf_alice", **env: str) -> tuple[int, str]:
    process = hub.process(COMMAND, *arguments, token=token, **env)
    out, err = process.communicate()
    assert token is None or token not in out + err
    assert "Traceback" not in err, err
    return int(out.splitlines()[-1]), err


@pytest.fixture
def source(hub):
    hub.python('from steps import *; api.create_repo("org/cli", exist_ok=True); put("org/cli", {"config.json": "{}"})')


@pytest.mark.usefixtures("source")
def test_a_dry_run_a_pull_request_a_commit_and_nothing_new(hub):
    dry, told_dry = command(hub, "--to", "org/cli", "--dry-run")
    proposed, told_proposed = command(hub, "--to", "org/cli", "--create-pr")
    committed, told_committed = command(hub, "--to", "org/cli")
    again, told_again = command(hub, "--to", "org/cli")

    assert (dry, proposed, committed, again) == (0, 0, 0, 0)
    lines = [" ".join(line.split()) for line in told_dry.splitlines()]
    assert "onnx/model.onnx added 210 B" in lines or any(line.startswith("onnx/model.onnx added") for line in lines)
    assert any("would be written to org/cli (5 added)" in line for line in lines)
    assert "proposed to org/cli as pull request 1 (5 added)" in told_proposed
    assert f"{hub.endpoint}/org/cli/discussions/1" in told_proposed
    assert "written to org/cli (5 added)" in told_committed
    assert "unchanged, org/cli has it already (5 unchanged)" in told_again


@pytest.mark.usefixtures("source")
def test_without_a_token_nothing_is_begun(hub):
    code, told = command(hub, "--to", "org/cli-other", token=None)

    assert code == 8
    assert "error: There is no token to publish to `org/cli-other` with" in told
    assert "HF_TOKEN" in told


@pytest.mark.usefixtures("source")
def test_a_folder_takes_no_pull_request(hub, tmp_path):
    code, told = command(hub, "--to", str(tmp_path / "out"), "--create-pr")

    assert code == 2
    assert "--create-pr" in told


@pytest.mark.usefixtures("source")
def test_files_that_do_not_load_from_a_new_cache_are_told(hub):
    code, told = command(hub, "--to", "org/cli-broken", BROKEN="`cli.onnx.fp32`: no data file")

    assert code == 8
    assert "does not load from the Hub's cache: `cli.onnx.fp32`: no data file" in told
