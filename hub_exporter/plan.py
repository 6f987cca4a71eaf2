"""What is asked of the models -> one job for each model, backend and variant, or the reason why there is none.

Pure: it reads nothing but its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from hub_exporter.catalogue import BACKENDS, PYTHON, RUNNERS, SET_UP, STAGES, Backend
from hub_exporter.errors import UsageError
from hub_exporter.files import expanded, job_name
from hub_exporter.records import (
    Finding,
    Job,
    ModelRequest,
    ModelSettings,
    Plan,
    ResolvedModel,
    Runner,
    RunnerGroup,
    Skip,
)
from hub_exporter.tasks import TASKS, dataset_for

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@.+)?")
_MINUTES = 60

UP_TO_DATE = "it is published as it would be made"

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
    labels = labels_of(runners or {})
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


def names_of(requests: Sequence[ModelRequest]) -> tuple[str, ...]:
    """The names that the models of these requests have in a plan, before they are resolved: no two share one."""
    return _unique([job_name(_last(request.settings.source)) for request in requests])


def _last(source: str) -> str:
    folder = expanded(source)
    return folder.resolve().name if folder.is_dir() else source.partition("@")[0]


def unique_names(models: Sequence[ResolvedModel]) -> tuple[ResolvedModel, ...]:
    """The models with names that no two share: the second `bert` becomes `bert-2`."""
    names = _unique([model.name for model in models])
    return tuple(msgspec.structs.replace(model, name=name) for model, name in zip(models, names, strict=True))


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    given: list[str] = []
    for wanted in names:
        name, count = wanted, 1
        while name in given or (count > 1 and name in names):
            count += 1
            name = f"{wanted}-{count}"
        given.append(name)
    return tuple(given)


def labels_of(runners: Mapping[str, str | tuple[str, ...] | Runner]) -> dict[str, Label]:
    """Kind of machine -> what `runs-on` takes, where the recipe says something of some of them."""
    return {kind: label_of(runner) for kind, runner in {**RUNNERS, **runners}.items()}


def label_of(runner: str | tuple[str, ...] | Runner) -> Label:
    """What `runs-on` takes for a runner of the recipe."""
    if not isinstance(runner, Runner):
        return runner
    if runner.group is not None:
        return RunnerGroup(
            group=runner.group, labels=(runner.label,) if isinstance(runner.label, str) else runner.label
        )
    return runner.label


def without_current(plan: Plan, current: Sequence[Finding]) -> Plan:
    """The plan without the jobs that are published as they would be made, by target, backend and variant."""
    done = {(finding.target, finding.backend, finding.variant) for finding in current}
    skips = [
        Skip(name=found.job, reason=found.note or UP_TO_DATE, source=found.source, target=found.target, current=True)
        for found in current
    ]
    left = tuple(job for job in plan.jobs if (job.target, job.backend, job.variant) not in done)
    return msgspec.structs.replace(plan, jobs=left, skipped=(*plan.skipped, *skips))


def pin_datasets(plan: Plan, commits: Mapping[tuple[str, str | None], str]) -> Plan:
    """The plan with every dataset at its commit, by (path, revision), so that all jobs draw the same rows."""

    def pinned(job: Job) -> Job:
        commit = commits.get((job.dataset.path, job.dataset.revision)) if job.dataset else None
        if job.dataset is None or commit is None:
            return job
        return msgspec.structs.replace(job, dataset=msgspec.structs.replace(job.dataset, revision=commit))

    return msgspec.structs.replace(plan, jobs=tuple(map(pinned, plan.jobs)))


def minutes_of(settings: ModelSettings) -> int:
    """After which the runner of a job is stopped."""
    return STAGES * (settings.time_limit or _MINUTES) + SET_UP


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


def target_of(request: ModelRequest, name: str) -> str:
    """Where the model of this name is published to. Raises UsageError for what several models cannot share."""
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
    within = f"{folder.rstrip('/')}/{name}"
    return f"./{within}" if hub_target(within) else within


def _jobs(
    request: ModelRequest,
    model: ResolvedModel,
    runners: Mapping[str, Label],
    machine: str | None,
    pins: Mapping[str, str],
) -> Iterator[Job | Skip]:
    settings, task, target = request.settings, TASKS[model.task], target_of(request, model.name)
    limit = settings.time_limit or _MINUTES
    for backend, variant in cells(settings):
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
            time_limit=60.0 * limit,
            minutes=minutes_of(settings),
            target=target,
        )


def cells(settings: ModelSettings) -> Iterator[tuple[str, str]]:
    """Each backend with each variant, or with the first that it makes where none is asked for."""
    for backend in settings.backends:
        for variant in settings.variants or BACKENDS[backend].variants[:1]:
            yield backend, variant


def _obstacles(backend: Backend, variant: str, layout: str, machine: str | None) -> Iterator[str]:
    if machine is not None and not backend.runs_on(machine):
        yield f"`{backend.name}` runs on `{backend.runner}`, this is `{machine}`"
    if layout not in backend.layouts:
        yield f"`{backend.name}` does not take {layout} models"
    if variant not in backend.variants:
        known = ", ".join(f"`{name}`" for name in backend.variants) or "nothing so far"
        yield f"`{backend.name}` cannot make `{variant}` yet, only {known}"


def matches(name: str, only: Sequence[str]) -> bool:
    """Whether a job is one of those that are asked for by patterns of names; all are where there are none."""
    return not only or any(fnmatchcase(name, pattern) for pattern in only)


def _matching(planned: list[Job | Skip], only: Sequence[str]) -> list[Job | Skip]:
    chosen = [item for item in planned if matches(item.name, only)]
    if not chosen:
        names = [f"`{item.name}`" for item in planned[:_SHOWN]]
        more = [f"{len(planned) - _SHOWN} more"] if len(planned) > _SHOWN else []
        flags = " ".join(f"--only {pattern}" for pattern in only)
        raise UsageError(f"`{flags}` matches no job", hint=f"The jobs are {', '.join([*names, *more])}")
    return chosen


_SHOWN = 24
"""Jobs that a message names."""
