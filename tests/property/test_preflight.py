from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from made_up import encoder

from hub_exporter.catalogue import BACKENDS
from hub_exporter.plan import make_plan
from hub_exporter.preflight import Room, fit, needs
from hub_exporter.records import Job, ModelRequest, ModelSettings, Plan

CPU = [name for name, row in BACKENDS.items() if row.runner == "linux-cpu"]
sizes = st.integers(1, 10**12)
backends = st.sampled_from(CPU)


def plan_of(parameters: int, backend: str) -> Plan:
    model = encoder(name="m", parameters=parameters, weight_bytes=4 * parameters)
    settings = ModelSettings(source="m", target="./out", backends=(backend,), variants=("fp32",))
    plan = make_plan([ModelRequest(settings=settings)], [model])
    jobs = tuple(msgspec.structs.replace(job, time_limit=1e15) for job in plan.jobs)
    return msgspec.structs.replace(plan, jobs=jobs)


def job_of(parameters: int, backend: str) -> Job:
    return plan_of(parameters, backend).jobs[0]


@given(sizes, sizes, backends)
def test_a_larger_model_never_takes_less(one: int, other: int, backend: str) -> None:
    small, large = (needs(job_of(size, backend)) for size in sorted((one, other)))

    assert small.memory <= large.memory
    assert small.disk <= large.disk
    assert small.seconds <= large.seconds


@given(sizes, backends, st.floats(0.1, 10_000), st.floats(0.1, 10_000))
def test_a_larger_runner_never_skips_more(size: int, backend: str, memory: float, disk: float) -> None:
    plan = plan_of(size, backend)

    def skipped(factor: float) -> int:
        return len(fit(plan, {"linux-cpu": Room("it", memory * factor, disk * factor)}).skipped)

    assert skipped(1) >= skipped(2)


@given(sizes, backends)
def test_a_job_is_planned_or_skipped_and_never_both(size: int, backend: str) -> None:
    plan = plan_of(size, backend)
    made = fit(plan, {"linux-cpu": Room("it", 16, 14, 360)})
    names = [item.name for item in (*made.jobs, *made.skipped)]

    assert names == [job.name for job in plan.jobs]
    assert all(job.needs for job in made.jobs)
