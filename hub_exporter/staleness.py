"""What was published beside what would be made now -> why a job is stale. Pure.

Two ways that agree: at a glance, from the one line of state in a card's metadata, which can only say that all is
current; and from the index, which says why it is not. Files are told by their digests as the Hub tells them: git's for
a file that git keeps, else sha256.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec

from hub_exporter import keys
from hub_exporter.files import WEIGHTS, side_files, weight_candidates
from hub_exporter.records import (
    INDEX_FILE,
    LAYOUT_VERSION,
    Artifact,
    Index,
    JobKey,
    JobRecipe,
    JobResult,
    ModelSettings,
    Reason,
    ResolvedModel,
    State,
)
from hub_exporter.tasks import TASKS, dataset_for

STATE = "hub_exporter"
"""Key of the state in a card's metadata."""

_TEXT = (".json", ".xml", ".txt", ".jinja")

Files = Mapping[str, str]
"""Path -> digest."""


@dataclass(frozen=True)
class SourceNow:
    """The model today; `files` only where it is not at the published commit any more."""

    commit: str
    files: Files | None = None


@dataclass(frozen=True)
class Wanted:
    """What a job would be made of today, besides the model. `None` is: what was published."""

    settings: ModelSettings | None = None
    rows: str | None = None
    revision: str | None = None
    """Commit of a dataset on the Hub, where the recipe names one."""
    pins: str = ""
    lock: Mapping[str, str] = field(default_factory=dict)


# ── At a glance ───────────────────────────────────────────────────────────────────────────────────────────────────


def state_of(index: Index) -> str:
    """The state of an index, as it is written into the card's metadata."""
    model, passed = index.source, [job for job in index.jobs if job.status == "passed" and _checked(job)]
    folders: dict[str, dict[str, str]] = {}
    for job in passed:
        folders.setdefault(job.folder, {}).update((artifact.path, _likely(artifact)) for artifact in job.artifacts)
    state = State(
        source=model.repo or model.name,
        revision=model.revision,
        commit=model.commit,
        files=_short(keys.source_digest(model.files)),
        task=model.task,
        asked=task_was_asked(model),
        remote_code=model.remote_code,
        side_files=_short(keys.digest(sorted(side_files(artifact.path for artifact in index.side_files)))),
        folders={folder: _short(keys.digest(files)) for folder, files in folders.items()},
        jobs={f"{job.backend}.{job.variant}": _line(job.key, job.recipe) for job in passed if job.key and job.recipe},
        others=len(index.jobs) - len(passed),
    )
    return msgspec.json.encode(state).decode()


def read_state(metadata: Mapping[str, object]) -> State | None:
    """The state in a card's metadata; `None` where there is none that can be read, and the index has to be asked."""
    text = metadata.get(STATE)
    try:
        return msgspec.json.decode(text, type=State) if isinstance(text, str) else None
    except (msgspec.DecodeError, ValueError):
        return None


def is_current(
    state: State, backend: str, variant: str, folder: str, wanted: Wanted, source: SourceNow, there: Files, own: bool
) -> bool:
    """Whether a job is surely current. `there` are the files of the target, `own` says that it is the model's own."""
    line = state.jobs.get(f"{backend}.{variant}", "")
    if line.count(" ") != 4 or INDEX_FILE not in there:
        return False
    recipe, rows, revision, _, _ = line.split(" ")
    if wanted.settings is not None:
        asked = wanted_recipe(backend, wanted.settings, state.task, state.asked, state.remote_code)
        recipe = _short(keys.recipe_digest(backend, variant, asked))
    rows = rows if wanted.rows is None else _short(wanted.rows)
    revision = revision if wanted.revision is None else _short(wanted.revision)
    now = " ".join([recipe, rows, revision, _short(wanted.pins), str(LAYOUT_VERSION)])
    inside = {path: digest for path, digest in there.items() if path.startswith(f"{folder}/")}
    beside = [] if own else sorted(side_files(there))
    return (
        now == line
        and _short(keys.digest(inside)) == state.folders.get(folder)
        and _short(keys.digest(beside)) == state.side_files
        and (source.files is None or _short(_of_listing(source.files, code=state.remote_code)) == state.files)
    )


def _of_listing(files: Files, *, code: bool) -> str:
    """`keys.source_digest` of a model of which only the names and digests of all files are known."""
    return keys.digest({path: files[path] for path in {*_expected(files, code), *weight_candidates(files)}})


def _likely(artifact: Artifact) -> str:
    """The digest that the Hub will tell of a file: where it is another one, only a glance is not enough."""
    text = artifact.size == 0 or PurePosixPath(artifact.path).suffix in _TEXT
    return artifact.blob if text and artifact.blob else artifact.sha256


def _line(key: JobKey, recipe: JobRecipe) -> str:
    revision = recipe.dataset.revision if recipe.dataset else None
    parts = (key.recipe, key.rows, revision or "", key.pins)
    return " ".join([*map(_short, parts), str(key.layout)])


def _short(digest: str) -> str:
    return keys.digest(digest)[:12]


# ── What would be asked of it today ───────────────────────────────────────────────────────────────────────────────


def task_was_asked(model: ResolvedModel) -> bool:
    """Whether the user named the task, rather than the model's files."""
    return model.task_origin not in (model.architecture, "modules.json")


def wanted_recipe(backend: str, settings: ModelSettings, task: str, asked: bool, remote_code: bool) -> JobRecipe:
    """What the settings ask for, given what was published: its task, whether somebody had named that task, and whether
    code of the model was run. A task that nobody names is implied by the files of the model."""
    task = settings.task or ("" if asked else task)
    dataset = dataset_for(TASKS[task], settings.dataset) if task in TASKS else settings.dataset
    return keys.made_recipe(backend, task, settings.engine, dataset, remote_code and settings.trust_remote_code)


# ── In detail ─────────────────────────────────────────────────────────────────────────────────────────────────────


def reasons(index: Index, job: JobResult, wanted: Wanted, source: SourceNow, there: Files) -> tuple[Reason, ...]:
    """Everything that makes a published job stale; nothing where it is current."""
    found = list(_reasons(index, job, wanted, source))
    if job.status == "mismatch" and not found:
        return ()  # it would disagree again
    if job.status != "passed":
        return (*found, Reason(kind="failed", text=f"it {_ENDED[job.status]}: {job.reason}"))
    unverified = Reason(kind="unverified", text="it was published with `--no-verify`")
    return (*found, *(() if _checked(job) else (unverified,)), *_files(index, job, there))


def _checked(job: JobResult) -> bool:
    return job.verification is not None and bool(job.verification.runtime)


_ENDED = {"failed": "failed last time", "mismatch": "disagreed last time", "skipped": "was skipped last time"}


def _reasons(index: Index, job: JobResult, wanted: Wanted, source: SourceNow) -> Iterator[Reason]:
    changed = changed_source(index.source, source)
    if changed:
        moved = f"{index.source.repo or index.source.name} moved from {_brief(index.source.commit)} to "
        yield Reason(kind="source", text=f"{moved}{_brief(source.commit)}: {_some(changed)}")
    if job.key is None or job.recipe is None:
        yield Reason(kind="recipe", text="it was published without what it was made of")
        return
    if wanted.settings is not None:
        model = index.source
        asked = wanted_recipe(job.backend, wanted.settings, model.task, task_was_asked(model), model.remote_code)
        differing = [_change(name, old, new) for name, old, new in _differing(keys.flat(job.recipe), keys.flat(asked))]
        if keys.recipe_digest(job.backend, job.variant, asked) != job.key.recipe:
            yield Reason(kind="recipe", text=_some(differing))
    if wanted.rows is not None and wanted.rows != job.key.rows:
        yield Reason(kind="rows", text=f"the rows are others: {_brief(job.key.rows)} -> {_brief(wanted.rows)}")
    dataset = job.recipe.dataset
    if wanted.revision is not None and dataset is not None and wanted.revision != dataset.revision:
        moved = f"{dataset.path} {_brief(dataset.revision or 'unset')} -> {_brief(wanted.revision)}"
        yield Reason(kind="rows", text=moved)
    if wanted.pins != job.key.pins:
        yield Reason(kind="pins", text=_pins(job, wanted))
    if job.key.layout != LAYOUT_VERSION:
        yield Reason(kind="layout", text=f"layout {job.key.layout} -> {LAYOUT_VERSION}")


def changed_source(model: ResolvedModel, source: SourceNow) -> list[str]:
    """What changed in the files that a model is made of, in words; nothing where only other files did."""
    if source.files is None:
        return []
    known = {file.path: file for file in model.files}
    gone = [f"{path} is gone" for path in known if path not in source.files]
    other = [
        f"{path} changed"
        for path, file in known.items()
        if path in source.files and source.files[path] not in (file.sha256, file.blob)
    ]
    new = [f"{path} is new" for path in sorted(_expected(source.files, model.remote_code)) if path not in known]
    return [*other, *gone, *new]


def _expected(files: Iterable[str], code: bool) -> set[str]:
    """What of a repository a model is made of, as far as names tell; of weights only a file that replaces shards."""
    names = set(files)
    extra = {name for name in names if code and name.endswith(".py") and name.count("/") < 2}
    return {*side_files(names), *extra, *({WEIGHTS} & names)}


def _pins(job: JobResult, wanted: Wanted) -> str:
    assert job.key is not None
    if job.key.pins.startswith(keys.UNLOCKED):
        ran = job.toolchain.ran if job.toolchain else job.export.versions if job.export else {}
        found = keys.unlocked(wanted.lock, ran)
        pairs = [_change(name, used, locked) for name, (used, locked) in found.items()]
        return "it was made with packages that are not those of the lock: " + _some(pairs)
    moved = _differing(job.lock, wanted.lock)
    return _some(_change(*pair) for pair in moved) or "the lock was written anew with the same packages"


def _files(index: Index, job: JobResult, there: Files) -> Iterator[Reason]:
    gone = [artifact.path for artifact in job.artifacts if artifact.path not in there]
    other = [
        artifact.path
        for artifact in job.artifacts
        if artifact.path in there and there[artifact.path] not in (artifact.sha256, artifact.blob)
    ]
    beside = [path for path in side_files(artifact.path for artifact in index.side_files) if path not in there]
    words = [*(f"{path} is missing" for path in [*gone, *beside]), *(f"{path} was altered" for path in other)]
    if words:
        yield Reason(kind="file", text=_some(words))


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> list[tuple[str, object, object]]:
    names = sorted({*old, *new})
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _change(name: str, old: object, new: object) -> str:
    return f"{name} {'unset' if old is None else old} -> {'unset' if new is None else new}"


def _some(words: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    told = list(words)
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + more


_SHOWN = 6


def _brief(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
