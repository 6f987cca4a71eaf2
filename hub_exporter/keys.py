"""What the files of a job are made of, as digests: a job whose key is that of the published one need not run again.

A digest for each part, so that a change can be told. Pure. What is no input of the files is in no digest: the name of
the job, where it is published to, which machine makes it and how long it may take.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from hub_exporter.catalogue import BACKENDS
from hub_exporter.records import (
    LAYOUT_VERSION,
    CaptureSpec,
    DatasetSpec,
    EngineOptions,
    Job,
    JobKey,
    JobRecipe,
    JobResult,
    SourceFile,
)

_FILES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".parquet")

UNLOCKED = "unlocked:"
"""Begins the pins of a job that was made with other packages than those of its lock."""


# ── The parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def recipe_of(job: Job, capture: CaptureSpec | None = None) -> JobRecipe:
    """What a job was asked to be, its dataset at the commit that the rows were drawn at."""
    dataset = job.dataset
    if dataset is not None and capture is not None:
        dataset = msgspec.structs.replace(dataset, revision=capture.revision)
    return made_recipe(job.backend, job.model.task, job.engine, dataset, job.model.remote_code)


def made_recipe(
    backend: str, task: str, engine: EngineOptions, dataset: DatasetSpec | None, remote_code: bool
) -> JobRecipe:
    """The same from its parts. Options that are for other backends are left out, and of a dataset in a file all but its
    name."""
    if dataset is not None and is_file(dataset):
        dataset = msgspec.structs.replace(dataset, path=PurePath(dataset.path).name)
    own = {name: getattr(engine, name) for name in engine.__struct_fields__ if BACKENDS[backend].takes(name)}
    return JobRecipe(task=task, engine=EngineOptions(**own), dataset=dataset, remote_code=remote_code)


def is_file(dataset: DatasetSpec) -> bool:
    """Whether a dataset is a file, by its name."""
    return PurePath(dataset.path).suffix.lower() in _FILES


def key_of(job: Job, rows: str) -> JobKey:
    """The key of a job that would run now, with rows of this digest."""
    return JobKey(
        source=source_digest(job.model.files),
        recipe=recipe_digest(job.backend, job.variant, recipe_of(job)),
        rows=rows,
        pins=job.pins,
        layout=LAYOUT_VERSION,
    )


def source_digest(files: Iterable[SourceFile]) -> str:
    """Of the files that a model is made of, each by the digest that the Hub tells of it without a download."""
    return digest({file.path: told(file) for file in files})


def told(file: SourceFile) -> str:
    """The digest that the Hub tells of a file: git's for one that git keeps, else sha256."""
    return file.blob or file.sha256


def recipe_digest(backend: str, variant: str, recipe: JobRecipe) -> str:
    """An option that is left at its default is in no digest, so that a new option makes nothing stale."""
    return digest({"backend": backend, "variant": variant, **flat(recipe)})


def flat(recipe: JobRecipe) -> dict[str, Any]:
    """What a recipe sets, by dotted name: `engine.optimize` -> `False`. At which commit a dataset was read decides the
    rows, and they have a digest."""
    defaults = msgspec.to_builtins(JobRecipe(task="", dataset=DatasetSpec()))
    found = dict(_flat("", msgspec.to_builtins(recipe), defaults))
    return {name: value for name, value in found.items() if name != "dataset.revision"}


def _flat(prefix: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        default = defaults.get(name)
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value, default if isinstance(default, Mapping) else {})
        elif value != default and value is not None:
            yield f"{prefix}{name}", value


def pins_in_use(pins: str, lock: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """The digest of the lock, where the packages that were really used are its own; else one of those packages.

    A build such as `2.13.0+cpu` is the version that a lock names without it.
    """
    return pins if not unlocked(lock, versions) else UNLOCKED + digest(dict(versions))


def unlocked(lock: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Package -> version that was used and version of the lock, where they differ."""
    used = {name: version.partition("+")[0] for name, version in versions.items()}
    return {name: (used[name], lock[name]) for name in used if lock.get(name, used[name]) != used[name]}


def with_key(result: JobResult, job: Job, capture: CaptureSpec, lock: Mapping[str, str]) -> JobResult:
    """The result with all that tells later whether it would come out the same. `lock` is that of the backend."""
    ran = result.toolchain.ran if result.toolchain else result.export.versions if result.export else {}
    key = msgspec.structs.replace(key_of(job, capture.digest), pins=pins_in_use(job.pins, lock, ran))
    return msgspec.structs.replace(result, key=key, recipe=recipe_of(job, capture), lock=dict(lock))


def same_files(left: Iterable[SourceFile], right: Iterable[SourceFile]) -> bool:
    """Whether two models are made of the same files."""
    return {file.path: file.sha256 for file in left} == {file.path: file.sha256 for file in right}


def digest(value: Any) -> str:
    """Of a value that goes to JSON, whatever the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
