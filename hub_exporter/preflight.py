"""What each job takes, from the headers of its weights, against what its runner has: before the first gigabyte. Pure.

The figures are measured on two models (`bench/README.md` says how) and drawn out in a straight line: estimates. A job
that is skipped for them can be tried by its name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from hub_exporter.catalogue import BACKENDS, RUNNERS, SET_UP
from hub_exporter.records import Job, Needs, Plan, ResolvedModel, Runner, Skip
from hub_exporter.wording import runner as shown

GB = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a backend takes: what every model takes, and what each GB of weights in fp32 adds."""

    memory: tuple[float, float]
    """GB. Peak of the largest process."""
    seconds: tuple[float, float]
    """Of the export stage, on one core."""
    files: float
    """GB written."""


_EXECUTORCH = Cost(memory=(0.4, 6.5), seconds=(10, 762), files=1.21)

COSTS = {
    "dynamo": Cost(memory=(0.55, 1.5), seconds=(10, 26), files=1.01),
    "onnx": Cost(memory=(0.55, 4.5), seconds=(10, 156), files=1.01),
    "openvino": Cost(memory=(0.55, 1.45), seconds=(10, 74), files=1.01),
    "executorch-xnnpack": _EXECUTORCH,
    "executorch-mlx": _EXECUTORCH,  # not measured
    "executorch-cuda": _EXECUTORCH,  # not measured
}
"""A line through all-MiniLM-L6-v2 (0.09 GB) and SmolLM2-135M-Instruct (0.54 GB), as in `bench/README.md`; of time one
from the ten seconds that torch and the engine take to start."""

ENVIRONMENT = 3 * GB
"""Disk of an environment with a CPU build of torch: 2.3 GB with all four CPU backends, and what is unpacked beside."""

LIMITS = {
    ("opt", "executorch-xnnpack"): "its positions depend on how much the cache holds, at which the strict trace stops",
    ("mixtral", "executorch-xnnpack"): "the lowering fixes the length to that of the captured rows, in the experts",
    ("vits", "executorch-xnnpack"): "the length of the sound depends on values, at which the trace stops",
}
"""(`model_type`, backend) -> what the engine cannot do yet: the cells of `docs/coverage.md` that reach nothing."""


@dataclass(frozen=True)
class Room:
    """What a machine has for a job; `None` where nobody knows."""

    name: str
    """For messages: `` `ubuntu-latest` ``, `this machine`."""
    memory: float | None = None
    """GB."""
    disk: float | None = None
    """GB that are free when a job begins."""
    minutes: int | None = None
    """After which the runner is taken away, whatever a workflow says."""
    advice: str = "name a larger runner under `runners:`"


_LINUX, _MAC, _HOURS = (16.0, 14.0), (7.0, 14.0), 360

GITHUB = {
    **dict.fromkeys(("ubuntu-latest", "ubuntu-24.04", "ubuntu-22.04", "ubuntu-24.04-arm", "ubuntu-22.04-arm"), _LINUX),
    **dict.fromkeys(("macos-latest", "macos-26", "macos-15", "macos-14"), _MAC),
}
"""Label of a runner that GitHub gives to public repositories -> GB of memory and of disk. In private ones those of
Linux have half the memory: say so in the recipe."""


# ── What a job takes ──────────────────────────────────────────────────────────────────────────────────────────────


def needs(job: Job) -> Needs:
    """What a job takes on a machine of its own."""
    cost, size = COSTS[job.backend], _fp32(job.model) / GB
    (memory, memory_rate), (seconds, rate) = cost.memory, cost.seconds
    return Needs(
        memory=round(GB * (memory + memory_rate * size)),
        disk=job.model.weight_bytes + written([job]) + ENVIRONMENT,
        seconds=round(seconds + rate * size, 1),
    )


def written(jobs: Iterable[Job]) -> int:
    """Bytes of disk that exporting jobs of one model takes beside its weights: their files, and one copy in transit."""
    sizes = [_fp32(job.model) * COSTS[job.backend].files for job in jobs]
    return round(sum(sizes) + max(sizes, default=0)) + 64_000_000


def _fp32(model: ResolvedModel) -> int:
    """Bytes of the weights while they are exported."""
    return model.parameters * 4


# ── What there is ─────────────────────────────────────────────────────────────────────────────────────────────────


def rooms(runners: Mapping[str, str | tuple[str, ...] | Runner]) -> dict[str, Room]:
    """Kind of machine -> what its runner has: as the recipe says, else what is known of GitHub's own."""
    return {kind: _room(runner) for kind, runner in {**RUNNERS, **runners}.items()}


def _room(runner: str | tuple[str, ...] | Runner) -> Room:
    told = runner if isinstance(runner, Runner) else Runner(label=runner)
    labels = (told.label,) if isinstance(told.label, str) else told.label
    memory, disk = GITHUB.get(labels[0], (None, None)) if len(labels) == 1 and not told.group else (None, None)
    name = f"`{shown(labels) or told.group}`"
    hosted = memory is not None
    return Room(name, told.memory or memory, told.disk or disk, _HOURS if hosted else None)


def fit(plan: Plan, rooms: Mapping[str, Room], wanted: Collection[str] = ()) -> Plan:
    """The plan with what each job needs, and without the jobs that cannot come to an end on their runner.

    `rooms` by kind of machine; jobs that are `wanted` by name are left in: the user knows better.
    """
    jobs, skipped = [], []
    for job in plan.jobs:
        job = msgspec.structs.replace(job, needs=needs(job))
        reason = None if job.name in wanted else next(_obstacles(job, rooms[BACKENDS[job.backend].runner]), None)
        if reason is None:
            jobs.append(job)
        else:
            reason = f"{reason}; `--only {job.name}` tries it all the same"
            skipped.append(Skip(name=job.name, reason=reason, source=job.model.source, target=job.target))
    return msgspec.structs.replace(plan, jobs=tuple(jobs), skipped=(*plan.skipped, *skipped))


def _obstacles(job: Job, room: Room) -> Iterator[str]:
    limit, need = LIMITS.get((job.model.model_type, job.backend)), job.needs
    assert need is not None
    if limit:
        yield f"known not to work for `{job.model.model_type}`: {limit}"
    if room.memory is not None and need.memory > room.memory * GB:
        yield f"needs about {_gb(need.memory)} GB of memory, {room.name} has {room.memory:g}: {room.advice}"
    if room.disk is not None and need.disk > room.disk * GB:
        yield f"needs about {_gb(need.disk)} GB of disk, {room.name} has {room.disk:g}: {room.advice}"
    minutes = math.ceil(need.seconds / 60)
    if need.seconds > job.time_limit:
        given = f"{job.time_limit / 60:g}"
        yield f"needs about {minutes} minutes for its export and gets {given}: set `time-limit: {2 * minutes}`"
    if room.minutes is not None and minutes + SET_UP > room.minutes:
        yield f"needs about {minutes} minutes, {room.name} is taken away after {room.minutes}: {room.advice}"


def _gb(count: int) -> int:
    return math.ceil(count / GB)
