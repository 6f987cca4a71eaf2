"""What is asked of the models -> one job for each model, backend and variant, or the reason why there is none.

Pure: it reads nothing but its arguments.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from hub_exporter.catalogue import BACKENDS, PYTHON, RUNNERS, SET_UP, STAGES, Backend
from hub_exporter.errors import UsageError
from hub_exporter.files import expanded
from hub_exporter.records import Job, ModelRequest, Plan, ResolvedModel, Runner, RunnerGroup, Skip
from hub_exporter.tasks import TASKS, dataset_for

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@.+)?")
_MINUTES = 60

Label = str | tuple[str, ...] | RunnerGroup
"""What `runs-on` takes."""


def make_plan(
    requests: Sequence[ModelRequest],
    models: Sequence[ResolvedModel],
    runners: Mapping[str, str | tuple[str, ...] | Runner] | None = None,
    only: Sequence[str] | None = None,
    machine: str | None = None,
    pins: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for `models`, each resolved from the request at the same place.

    `runners` are the recipe's by kind of machine, `only` patterns of job names (`*.onnx.*`), `machine` the kind of the
    one machine that all jobs would run on, by default each on its own, `pins` the digests of pins by backend. Raises
    UsageError for patterns that match nothing and for a target that cannot be one.
    """
    named = unique_names(models)
    labels = {kind: label_of(runner) for kind, runner in {**RUNNERS, **(runners or {})}.items()}
    planned = [
        item
        for request, model in zip(requests, named, strict=True)
        for item in _jobs(request, model, labels, machine, pins or {})
    ]
    chosen = _matching(planned, only) if only else planned
    return Plan(
        jobs=tuple(item for item in chosen if isinstance(item, Job)),
        skipped=tuple(item for item in chosen if isinstance(item, Skip)),
        requests=tuple(requests),
    )


def unique_names(models: Sequence[ResolvedModel]) -> tuple[ResolvedModel, ...]:
    """The models with names that no two share: the second `bert` becomes `bert-2`."""
    taken: set[str] = set()
    named = []
    for model in models:
        name, count = model.name, 1
        while name in taken or (count > 1 and any(name == other.name for other in models)):
            count += 1
            name = f"{model.name}-{count}"
        taken.add(name)
        named.append(msgspec.structs.replace(model, name=name))
    return tuple(named)


def label_of(runner: str | tuple[str, ...] | Runner) -> Label:
    """What `runs-on` takes for a runner of the recipe."""
    if not isinstance(runner, Runner):
        return runner
    if runner.group is not None:
        return RunnerGroup(
            group=runner.group, labels=(runner.label,) if isinstance(runner.label, str) else runner.label
        )
    return runner.label


def pin_datasets(plan: Plan, commits: Mapping[tuple[str, str | None], str]) -> Plan:
    """The plan with every dataset at its commit, by (path, revision), so that all jobs draw the same rows."""

    def pinned(job: Job) -> Job:
        commit = commits.get((job.dataset.path, job.dataset.revision)) if job.dataset else None
        if job.dataset is None or commit is None:
            return job
        return msgspec.structs.replace(job, dataset=msgspec.structs.replace(job.dataset, revision=commit))

    return msgspec.structs.replace(plan, jobs=tuple(map(pinned, plan.jobs)))


def hub_target(target: str) -> str | None:
    """The repository that a target names, `None` where it is a folder: one that exists, or a path such as `./out`.

    Raises UsageError for a revision: commits go to the default branch.
    """
    if not _HUB_ID.fullmatch(target) or expanded(target).is_dir():
        return None
    repo, at, _ = target.partition("@")
    if at:
        raise UsageError(
            f"The target `{target}` names a revision: what is published goes to the default branch",
            hint=f"Write `{repo}`; `--create-pr` proposes the files instead of committing them",
        )
    return repo


def _target(request: ModelRequest, model: ResolvedModel) -> str:
    target = request.settings.target
    repo = hub_target(target)
    if repo is not None and request.shared_target:
        raise UsageError(
            f"Several models cannot share the repository `{repo}`",
            hint="Give each a target of its own in a recipe, or export to a folder",
        )
    if repo is not None:
        return repo
    folder = str(expanded(target)) if target.startswith("~") else target
    if not request.shared_target:
        return folder
    within = f"{folder.rstrip('/')}/{model.name}"
    return f"./{within}" if hub_target(within) else within


def _jobs(
    request: ModelRequest,
    model: ResolvedModel,
    runners: Mapping[str, Label],
    machine: str | None,
    pins: Mapping[str, str],
) -> Iterator[Job | Skip]:
    settings, task, target = request.settings, TASKS[model.task], _target(request, model)
    minutes = settings.time_limit or _MINUTES
    for backend, variant in itertools.product(settings.backends, settings.variants):
        row, name = BACKENDS[backend], f"{model.name}.{backend}.{variant}"
        reason = next(_obstacles(row, variant, task.layout, machine), None)
        if reason:
            yield Skip(name=name, reason=reason, source=model.source, target=target)
            continue
        yield Job(
            name=name,
            model=model,
            backend=backend,
            variant=variant,
            engine=settings.engine,
            dataset=dataset_for(task, settings.dataset),
            runner=runners[row.runner],
            python=PYTHON,
            pins=pins.get(backend, ""),
            time_limit=60.0 * minutes,
            minutes=STAGES * minutes + SET_UP,
            target=target,
        )


def _obstacles(backend: Backend, variant: str, layout: str, machine: str | None) -> Iterator[str]:
    if machine is not None and not backend.runs_on(machine):
        yield f"`{backend.name}` runs on `{backend.runner}`, this is `{machine}`"
    if layout not in backend.layouts:
        yield f"`{backend.name}` does not take {layout} models"
    if variant not in backend.variants:
        known = ", ".join(f"`{name}`" for name in backend.variants) or "nothing so far"
        yield f"`{backend.name}` cannot make `{variant}` yet, only {known}"


def _matching(planned: list[Job | Skip], only: Sequence[str]) -> list[Job | Skip]:
    chosen = [item for item in planned if any(fnmatchcase(item.name, pattern) for pattern in only)]
    if not chosen:
        names = [f"`{item.name}`" for item in planned[:_SHOWN]]
        more = [f"{len(planned) - _SHOWN} more"] if len(planned) > _SHOWN else []
        flags = " ".join(f"--only {pattern}" for pattern in only)
        raise UsageError(f"`{flags}` matches no job", hint=f"The jobs are {', '.join([*names, *more])}")
    return chosen


_SHOWN = 24
"""Jobs that a message names."""
