"""Plans for many runners: what a matrix of GitHub Actions takes, and what is too much for one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from made_up import encoder

from hub_exporter import matrix
from hub_exporter.errors import UsageError
from hub_exporter.plan import make_plan
from hub_exporter.records import ModelRequest, ModelSettings, Plan, Runner, RunnerGroup

BACKENDS = ("onnx", "openvino", "executorch-xnnpack", "dynamo")


def plan_of(count: int, runners: dict[str, Any] | None = None, time_limit: int | None = None) -> Plan:
    sources = [f"org/m{number}" for number in range(count)]
    asked = [
        ModelRequest(
            settings=ModelSettings(
                source=source, target=source, backends=BACKENDS, variants=("fp32",), time_limit=time_limit
            )
        )
        for source in sources
    ]
    models = [encoder(name=source.partition("/")[2], source=source, repo=source) for source in sources]
    return make_plan(asked, models, runners)


def included(plan: Plan) -> list[dict[str, Any]]:
    return json.loads(matrix.matrix(plan))["include"]


def test_an_entry_has_what_a_cell_of_the_workflow_needs() -> None:
    assert included(plan_of(1))[0] == {
        "job": "m0.onnx.fp32",
        "runner": "ubuntu-latest",
        "python": "3.12",
        "minutes": 255,
    }


def test_a_runner_is_killed_only_after_every_stage_had_its_time() -> None:
    (job, *_) = plan_of(1, time_limit=7).jobs

    assert job.minutes * 60 >= 4 * job.time_limit
    assert job.minutes == 4 * 7 + 15


@pytest.mark.parametrize(
    ("runner", "label"),
    [
        ("big", "big"),
        (("self-hosted", "gpu"), ["self-hosted", "gpu"]),
        (Runner(label="big", memory=64), "big"),
        (Runner(label=("a", "b")), ["a", "b"]),
        (Runner(group="large"), {"group": "large", "labels": []}),
        (Runner(group="large", label="linux"), {"group": "large", "labels": ["linux"]}),
    ],
)
def test_a_runner_of_the_recipe_is_what_runs_on_takes(runner: Any, label: Any) -> None:
    assert included(plan_of(1, {"linux-cpu": runner}))[0]["runner"] == label


def test_a_group_goes_through_the_plan_file() -> None:
    plan = plan_of(1, {"linux-cpu": Runner(group="large", label="linux")})
    again = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)

    assert again == plan
    assert again.jobs[0].runner == RunnerGroup(group="large", labels=("linux",))


def test_nothing_to_do_is_an_empty_matrix() -> None:
    assert matrix.matrix(Plan(jobs=())) == '{"include":[]}'


def test_as_many_jobs_as_a_matrix_takes_are_taken() -> None:
    assert len(included(plan_of(64))) == 256


def test_more_are_refused_with_the_parts_that_would_be_taken() -> None:
    plan = plan_of(300)
    with pytest.raises(UsageError, match="1,200 jobs are too much for one run") as caught:
        matrix.matrix(plan)

    assert caught.value.hint == "Plan and run it in 5 parts: `--shard 1/5` to `--shard 5/5`"
    for number in range(1, 6):
        part = matrix.requests_of(plan.requests, (number, 5))
        assert len(part) * len(BACKENDS) <= 256


def test_a_part_that_is_still_too_large_is_divided_again() -> None:
    with pytest.raises(UsageError) as caught:
        matrix.matrix(plan_of(65), (1, 3))

    assert "`--shard 1/6` to `--shard 6/6`" in str(caught.value.hint)


def test_a_long_text_is_refused_as_well() -> None:
    """255 jobs whose labels alone make more than a megabyte in UTF-16."""
    with pytest.raises(UsageError, match=r"A matrix of 1\.1 MB") as caught:
        matrix.matrix(plan_of(63, {"linux-cpu": ("x" * 2100,)}))

    assert "2 parts" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard: expected a part"):
        matrix.shard(text)


def test_a_part() -> None:
    assert matrix.shard("2/5") == (2, 5)
