"""What is asked of the models -> one job for each model, backend and variant, or the reason why there is none.

Pure: it reads nothing but its arguments, and the machine where none is named.
"""

from __future__ import annotations

import itertools
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from hub_exporter.catalogue import BACKENDS, RUNNERS, Backend, Machine
from hub_exporter.errors import UsageError
from hub_exporter.files import expanded
from hub_exporter.records import Job, ModelRequest, Plan, ResolvedModel, Skip
from hub_exporter.tasks import TASKS, dataset_for

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@.+)?")
_MINUTES = 60


def make_plan(
    requests: Sequence[ModelRequest],
    models: Sequence[ResolvedModel],
    runners: Mapping[str, str] | None = None,
    only: str | None = None,
    machine: str | None = None,
) -> Plan:
    """The plan for `models`, each resolved from the request at the same place.

    `runners` are the recipe's labels by kind of machine, `only` a pattern of job names (`*.onnx.*`), `machine` the
    kind of machine that the jobs would run on, by default this one. Raises UsageError for a pattern that matches
    nothing and for a target that cannot be one.
    """
    named = unique_names(models)
    here = machine or this_machine()
    planned = [
        item
        for request, model in zip(requests, named, strict=True)
        for item in _jobs(request, model, {**RUNNERS, **(runners or {})}, here)
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


def this_machine() -> Machine:
    """What kind of machine this is, for the backends that need one of a kind."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "macos-arm64"
    return "linux-cuda" if Path("/proc/driver/nvidia/version").exists() else "linux-cpu"


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
    request: ModelRequest, model: ResolvedModel, runners: Mapping[str, str], machine: str
) -> Iterator[Job | Skip]:
    settings, task, target = request.settings, TASKS[model.task], _target(request, model)
    for backend, variant in itertools.product(settings.backends, settings.variants):
        row, name = BACKENDS[backend], f"{model.name}.{backend}.{variant}"
        reason = next(_obstacles(row, variant, task.layout, machine), None)
        if reason:
            yield Skip(name=name, reason=reason)
            continue
        yield Job(
            name=name,
            model=model,
            backend=backend,
            variant=variant,
            engine=settings.engine,
            dataset=dataset_for(task, settings.dataset),
            runner=runners[row.runner],
            time_limit=60.0 * (settings.time_limit or _MINUTES),
            target=target,
        )


def _obstacles(backend: Backend, variant: str, layout: str, machine: str) -> Iterator[str]:
    if not backend.runs_on(machine):
        yield f"`{backend.name}` runs on `{backend.runner}`, this is `{machine}`"
    if layout not in backend.layouts:
        yield f"`{backend.name}` does not take {layout} models"
    if variant not in backend.variants:
        known = ", ".join(f"`{name}`" for name in backend.variants) or "nothing so far"
        yield f"`{backend.name}` cannot make `{variant}` yet, only {known}"


def _matching(planned: list[Job | Skip], only: str) -> list[Job | Skip]:
    chosen = [item for item in planned if fnmatchcase(item.name, only)]
    if not chosen:
        names = ", ".join(f"`{item.name}`" for item in planned)
        raise UsageError(f"`--only {only}` matches no job", hint=f"The jobs are {names}")
    return chosen
