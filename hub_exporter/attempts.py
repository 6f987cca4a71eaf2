"""What a job tries when a graph cannot be traced, or refuses other shapes than the captured one: a short ladder. Pure.

1. As asked.
2. The trace failed: assertions about shapes are left to the runtime instead of deciding them while tracing.
3. The trace failed again or took too long, or the files disagree at other shapes only, or can be run at no shape: the
   axes that do not move are fixed, and said to be. What the recipe decided is left as it is.

Only for models of one forward: a decoder with a fixed axis cannot be run in a loop.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hub_exporter.records import Job, StageError, Verification
from hub_exporter.tasks import TASKS

_UNFIT = {
    "text": ("sequence_length",),
    "sound": ("sequence_length",),
    "picture": ("height", "width"),
    "picture and text": ("height", "width", "sequence_length"),
    "series": (),
}
"""What a model is fed with -> the axes that a trace may fail on: the batch is the last that one wants to fix."""

_TOO_LONG = "The export stage took longer than"
"""Sizes that are formulas of height and width can keep a trace busy that is done in a minute without them."""

_SHAPE_SIGNS = ("onstraint", "GuardOnDataDependent", "specializ", "ymbolic", "ynamic", "shape", "SymInt", "size")
"""In an engine's message: that a shape is what it failed on."""


def next_job(job: Job, error: StageError | None, verification: Verification | None) -> tuple[Job, str] | None:
    """The job with what may help it, and what that is in words; `None` where nothing is left to try."""
    task, options = TASKS[job.model.task], job.engine
    if task.layout != "encoder" or options.dynamic is False:
        return None
    if error is not None and _TOO_LONG in error.message:
        return _fixed(job, _UNFIT[task.inputs])
    if error is not None and any(sign in error.message for sign in _SHAPE_SIGNS):
        if options.prefer_deferred_runtime_asserts_over_guards is None:
            deferred = _changed(job, prefer_deferred_runtime_asserts_over_guards=True)
            return deferred, "again, with assertions left to the runtime"
        return _fixed(job, _UNFIT[task.inputs])
    if verification is not None and not verification.passed:
        run_at_none = bool(verification.cases) and all(case.error for case in verification.cases)
        return _fixed(job, _UNFIT[task.inputs] if run_at_none else verification.immovable)
    return None


def _fixed(job: Job, axes: tuple[str, ...]) -> tuple[Job, str] | None:
    new = [axis for axis in axes if axis not in job.engine.static_axes]
    if not new:
        return None
    return _changed(job, static_axes=(*job.engine.static_axes, *new)), f"again, with fixed {' and '.join(new)}"


def _changed(job: Job, **changes: Any) -> Job:
    return msgspec.structs.replace(job, engine=msgspec.structs.replace(job.engine, **changes))
