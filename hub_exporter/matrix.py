"""A plan -> what `strategy.matrix` of GitHub Actions takes, within its limits; a long list of models in parts. Pure.

A part holds whole models: what is published of one model is one commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hub_exporter.catalogue import BACKENDS, PYTHON
from hub_exporter.errors import UsageError
from hub_exporter.plan import Label, minutes_of
from hub_exporter.records import Finding, ModelRequest, ModelSettings, Plan

MOST_JOBS = 256
"""Of one matrix."""
MOST_BYTES = 1_000_000
"""Of an output, counted in UTF-16: GitHub takes 1 MB from all outputs of a job."""


def matrix(plan: Plan, part: tuple[int, int] = (1, 1)) -> str:
    """`{"include": [{"job": ..., "runner": ..., "python": ..., "minutes": ...}, ...]}`

    `part` is the one that the plan was made of. Raises UsageError where it does not fit into a matrix, and says in how
    many parts it would.
    """
    cells = [(job.name, job.runner, job.python, job.minutes) for job in plan.jobs]
    return _fitting(cells, plan.requests, part)


def matrix_of(findings: Sequence[Finding], requests: Mapping[str, ModelRequest], runners: Mapping[str, Label]) -> str:
    """The same of the jobs that are stale, on runners that are labelled by kind of machine; `requests` by target."""
    stale = [finding for finding in findings if finding.status == "stale"]
    cells = [
        (
            found.job,
            runners[BACKENDS[found.backend].runner],
            PYTHON,
            minutes_of(requests[found.target].settings if found.target in requests else ModelSettings()),
        )
        for found in stale
    ]
    return _fitting(cells, tuple(requests.values()), (1, 1))


def _fitting(
    cells: Sequence[tuple[str, Label, str, int]], requests: Sequence[ModelRequest], part: tuple[int, int]
) -> str:
    include = [dict(zip(("job", "runner", "python", "minutes"), cell, strict=True)) for cell in cells]
    text = msgspec.json.encode({"include": include}).decode()
    size = len(text.encode("utf-16-le"))
    if len(include) <= MOST_JOBS and size <= MOST_BYTES:
        return text
    parts = part[1] * _parts(requests, min(MOST_JOBS, MOST_BYTES * len(include) // size))
    what = f"{len(include):,} jobs" if len(include) > MOST_JOBS else f"A matrix of {size / 1e6:.1f} MB"
    raise UsageError(
        f"{what} are too much for one run of a workflow, which takes {MOST_JOBS} jobs and 1 MB",
        hint=f"Plan and run it in {parts} parts: `--shard 1/{parts}` to `--shard {parts}/{parts}`",
    )


def shard(text: str) -> tuple[int, int]:
    """`2/5` -> (2, 5). Raises UsageError."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise UsageError(f"--shard: expected a part such as `2/5`, got `{text}`")
    return number, of


def requests_of(requests: Sequence[ModelRequest], part: tuple[int, int]) -> tuple[ModelRequest, ...]:
    """The requests of one part: they follow each other, and every part has about as many jobs."""
    number, of = part
    return tuple(request for index, request in _numbered(requests, of) if index == number - 1)


def _numbered(requests: Sequence[ModelRequest], of: int) -> Iterator[tuple[int, ModelRequest]]:
    total, before = sum(map(_jobs, requests)), 0
    for request in requests:
        yield before * of // total, request
        before += _jobs(request)


def _jobs(request: ModelRequest) -> int:
    return len(request.settings.backends) * max(len(request.settings.variants), 1) or 1


def _parts(requests: Sequence[ModelRequest], most: int) -> int:
    """The fewest parts of which none has more than `most` jobs, or one for each request."""
    for of in range(2, len(requests)):
        counts = [0] * of
        for index, request in _numbered(requests, of):
            counts[index] += _jobs(request)
        if max(counts) <= most:
            return of
    return max(2, len(requests))
