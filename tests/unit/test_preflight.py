"""What a job takes against what its runner has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from made_up import encoder

from hub_exporter.catalogue import BACKENDS, RUNNERS
from hub_exporter.machine import memory
from hub_exporter.plan import make_plan
from hub_exporter.preflight import COSTS, GB, GITHUB, LIMITS, Room, fit, needs, rooms, written
from hub_exporter.records import Job, ModelRequest, ModelSettings, Plan, Runner

COVERAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
CPU = ("onnx", "openvino", "executorch-xnnpack", "dynamo")


def plan_of(parameters: int, backends: tuple[str, ...] = CPU, time_limit: int = 600, **model: Any) -> Plan:
    made = encoder(name="m", parameters=parameters, weight_bytes=parameters * 2, **model)
    settings = ModelSettings(
        source="org/m", target="org/m", backends=backends, variants=("fp32",), time_limit=time_limit
    )
    return make_plan([ModelRequest(settings=settings)], [made])


def job_of(parameters: int, backend: str = "onnx") -> Job:
    return plan_of(parameters, (backend,)).jobs[0]


def skips(plan: Plan, runner: Any = "ubuntu-latest", **options: Any) -> dict[str, str]:
    made = fit(plan, rooms({"linux-cpu": runner}), **options)
    assert len(made.jobs) + len(made.skipped) == len(plan.jobs)
    return {skip.name: skip.reason for skip in made.skipped}


def test_every_backend_has_its_cost() -> None:
    assert set(COSTS) == set(BACKENDS)


@pytest.mark.parametrize("backend", CPU)
def test_a_small_model_fits_everywhere(backend: str) -> None:
    need = needs(job_of(22_713_216, backend))

    assert 0.3 * GB < need.memory < 2 * GB
    assert need.disk < 4 * GB
    assert need.seconds < 300
    assert skips(plan_of(22_713_216, (backend,)), "macos-15") == {}


def test_a_model_that_is_too_large_is_skipped_and_what_would_do_is_said() -> None:
    reasons = skips(plan_of(7_000_000_000, ("dynamo",), 10_000))

    assert re.fullmatch(
        r"needs about \d\d GB of memory, `ubuntu-latest` has 16: name a larger runner under `runners:`; "
        r"`--only m\.dynamo\.fp32` tries it all the same",
        reasons["m.dynamo.fp32"],
    )


def test_the_same_fits_on_a_runner_that_the_recipe_describes() -> None:
    plan = plan_of(7_000_000_000, ("dynamo",), 10_000)

    assert skips(plan, Runner(label="big", memory=128, disk=300)) == {}
    assert "`big` has 8" in skips(plan, Runner(label="big", memory=8))["m.dynamo.fp32"]
    assert "GB of disk, `big` has 20" in skips(plan, Runner(label="big", memory=512, disk=20))["m.dynamo.fp32"]


def test_of_a_label_that_nobody_knows_nothing_is_expected() -> None:
    plan = plan_of(70_000_000_000, ("dynamo",), 100_000)

    assert skips(plan, "our-runner") == {}
    assert skips(plan, ("self-hosted", "ubuntu-latest")) == {}
    assert skips(plan, Runner(group="large")) == {}


def test_what_the_recipe_says_goes_before_what_is_known() -> None:
    """A private repository's `ubuntu-latest` has less memory."""
    plan = plan_of(1_000_000_000, ("dynamo",))

    assert skips(plan, "ubuntu-latest") == {}
    assert "`ubuntu-latest` has 5" in skips(plan, Runner(label="ubuntu-latest", memory=5))["m.dynamo.fp32"]


def test_a_time_limit_that_cannot_be_kept_is_told_with_one_that_can() -> None:
    plan = plan_of(1_000_000_000, ("executorch-xnnpack",), time_limit=30)
    (reason,) = skips(plan, "our-runner").values()

    found = re.match(r"needs about (\d+) minutes for its export and gets 30: set `time-limit: (\d+)`", reason)
    assert found
    assert int(found[2]) == 2 * int(found[1])
    assert skips(plan_of(1_000_000_000, ("executorch-xnnpack",), time_limit=int(found[2])), "our-runner") == {}


def test_a_runner_of_github_is_taken_away_after_six_hours() -> None:
    plan = plan_of(9_000_000_000, ("executorch-xnnpack",), time_limit=10_000)
    reason = skips(plan, Runner(label="ubuntu-latest", memory=999, disk=999))["m.executorch-xnnpack.fp32"]

    assert "`ubuntu-latest` is taken away after 360" in reason
    assert skips(plan, Runner(label="ours", memory=999, disk=999)) == {}


def test_a_job_that_is_named_is_tried_all_the_same() -> None:
    plan = plan_of(7_000_000_000, ("dynamo", "onnx"), 10_000)

    assert list(skips(plan, wanted=["m.dynamo.fp32"])) == ["m.onnx.fp32"]
    assert len(skips(plan, wanted=["*.dynamo.*"])) == 2


def test_known_limits_are_the_cells_of_the_coverage_tables_that_reach_nothing() -> None:
    """What a kind is made into by default is in the last table that has it. (Two encoders are asked for, and work.)"""
    lines = [line for line in COVERAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    backends = rows[0][2:]
    cells = {
        (row[0].replace("-", "_"), backend): cell
        for row in rows
        for backend, cell in zip(backends, row[2:], strict=True)
    }

    assert set(LIMITS) == {key for key, cell in cells.items() if cell.startswith(("failed", "mismatch"))}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_known_limit_is_a_skip_with_its_reason_that_a_name_overrides(limit: tuple[str, str]) -> None:
    kind, backend = limit
    plan = plan_of(1_000_000, (backend, "dynamo"), model_type=kind)
    name = f"m.{backend}.fp32"

    assert skips(plan)[name].startswith(f"known not to work for `{kind}`: {LIMITS[limit]}")
    assert list(skips(plan)) == [name]
    assert skips(plan, wanted=[name]) == {}


def test_disk_of_one_machine_is_for_the_files_of_all_jobs_and_one_copy() -> None:
    plan = plan_of(1_000_000_000)

    assert written(plan.jobs) == pytest.approx((1 + 1 + 1.21 + 1 + 1.21) * 4 * GB, rel=0.05)
    assert written(plan.jobs[:1]) == pytest.approx(2 * 4 * GB, rel=0.05)


def test_every_runner_of_github_that_is_used_by_default_is_known() -> None:
    hosted = {kind: label for kind, label in RUNNERS.items() if kind != "linux-cuda"}

    assert set(hosted.values()) <= set(GITHUB)
    assert rooms({})["linux-cuda"] == Room("`linux-cuda`")


def test_this_machine_has_some_memory() -> None:
    assert 100_000_000 < memory() < 10**14
