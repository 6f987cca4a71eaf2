"""Each input of a job's files changes its own part of the key and no other; what is no input changes nothing. And the
two ways to see staleness agree: what is current at a glance has no reasons, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import made_up
import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hub_exporter import keys, staleness
from hub_exporter.catalogue import BACKENDS
from hub_exporter.records import (
    INDEX_FILE,
    DatasetSpec,
    EngineOptions,
    Index,
    Job,
    ModelSettings,
    SourceFile,
)
from hub_exporter.staleness import SourceNow, Wanted

from .wishes import datasets, engines

PARTS = ("source", "recipe", "rows", "pins", "layout")
LOCK = {"torch": "2.13.0", "onnx": "1.21.0"}
FILES = (
    SourceFile(path="config.json", size=2, sha256="c0" * 32, blob="c1" * 20),
    SourceFile(path="model.safetensors", size=9, sha256="ab" * 32),
    SourceFile(path="tokenizer.json", size=2, sha256="d0" * 32, blob="d1" * 20),
)

engine_options = engines.map(lambda values: msgspec.convert(values, EngineOptions))
dataset_specs = datasets.map(lambda values: msgspec.convert(values, DatasetSpec))
backends = st.sampled_from([name for name, row in BACKENDS.items() if "fp32" in row.variants])


def job(backend: str, engine: EngineOptions, dataset: DatasetSpec) -> Job:
    model = made_up.encoder(files=FILES, side_files=("config.json", "tokenizer.json"))
    return made_up.job(backend, model, engine=engine, dataset=dataset, pins="b1" * 32)


jobs = st.builds(job, backends, engine_options, dataset_specs)


def replaced(one: Job, **changes: Any) -> Job:
    return msgspec.structs.replace(one, **changes)


def with_model(one: Job, **changes: Any) -> Job:
    return replaced(one, model=msgspec.structs.replace(one.model, **changes))


def with_dataset(one: Job, **changes: Any) -> Job:
    assert one.dataset
    return replaced(one, dataset=msgspec.structs.replace(one.dataset, **changes))


def with_engine(one: Job, **changes: Any) -> Job:
    return replaced(one, engine=msgspec.structs.replace(one.engine, **changes))


def with_file(one: Job, path: str, **changes: Any) -> Job:
    files = tuple(msgspec.structs.replace(f, **changes) if f.path == path else f for f in one.model.files)
    return with_model(one, files=files)


INPUTS: dict[str, tuple[str, Callable[[Job], Job]]] = {
    "weights": ("source", lambda one: with_file(one, "model.safetensors", sha256="ef" * 32)),
    "configuration": ("source", lambda one: with_file(one, "config.json", sha256="ef" * 32, blob="ef" * 20)),
    "a file more": ("source", lambda one: with_model(one, files=(*FILES, SourceFile(path="x", size=1, sha256="0")))),
    "a file less": ("source", lambda one: with_model(one, files=FILES[1:])),
    "variant": ("recipe", lambda one: replaced(one, variant="int8")),
    "task": ("recipe", lambda one: with_model(one, task="fill-mask")),
    "remote code": ("recipe", lambda one: with_model(one, remote_code=True)),
    "dynamic": ("recipe", lambda one: with_engine(one, dynamic=not one.engine.dynamic)),
    "bounds": ("recipe", lambda one: with_engine(one, components={"model": {"dynamic_shapes": None, "x": 1}})),
    "dataset": ("recipe", lambda one: with_dataset(one, path=f"{one.dataset.path}-2")),
    "split": ("recipe", lambda one: with_dataset(one, split=f"{one.dataset.split}-2")),
    "number of rows": ("recipe", lambda one: with_dataset(one, rows=one.dataset.rows + 1)),
    "columns": ("recipe", lambda one: with_dataset(one, columns={**one.dataset.columns, "text": "other"})),
    "pins": ("pins", lambda one: replaced(one, pins="b2" * 32)),
}

NON_INPUTS: dict[str, Callable[[Job], Job]] = {
    "name": lambda one: replaced(one, name="another.name.fp32"),
    "target": lambda one: replaced(one, target="./out"),
    "runner": lambda one: replaced(one, runner="our-own"),
    "time limit": lambda one: replaced(one, time_limit=7.0),
    "commit": lambda one: with_model(one, commit="f" * 40),
    "revision": lambda one: with_model(one, revision="v2"),
    "folder": lambda one: with_model(one, folder="/somewhere/else"),
    "card of the model": lambda one: with_model(one, license="mit", tags=("other",), languages=("de",)),
    "where its dataset lies": lambda one: with_dataset(one, revision="e" * 40),
    "order of its files": lambda one: with_model(one, files=FILES[::-1]),
    "order of its options": lambda one: with_engine(
        one, components=dict(reversed(list(one.engine.components.items())))
    ),
    "options of other backends": lambda one: with_engine(
        one, **({"stateful": True} if one.backend != "openvino" else {"opset_version": 17})
    ),
}


@pytest.mark.parametrize("name", INPUTS)
@settings(max_examples=20)
@given(jobs)
def test_an_input_changes_its_part_alone(name: str, one: Job) -> None:
    part, change = INPUTS[name]
    before, after = keys.key_of(one, "rows"), keys.key_of(change(one), "rows")

    assert [field for field in PARTS if getattr(before, field) != getattr(after, field)] == [part]


@given(jobs)
def test_so_do_the_rows(one: Job) -> None:
    before, after = keys.key_of(one, "rows"), keys.key_of(one, "other rows")

    assert [field for field in PARTS if getattr(before, field) != getattr(after, field)] == ["rows"]


@given(backends, backends, engine_options, dataset_specs)
def test_backends_have_keys_of_their_own(one: str, other: str, engine: EngineOptions, dataset: DatasetSpec) -> None:
    assume(one != other)

    assert keys.key_of(job(one, engine, dataset), "r").recipe != keys.key_of(job(other, engine, dataset), "r").recipe


@pytest.mark.parametrize("name", NON_INPUTS)
@settings(max_examples=20)
@given(jobs)
def test_what_is_no_input_changes_nothing(name: str, one: Job) -> None:
    assert keys.key_of(NON_INPUTS[name](one), "rows") == keys.key_of(one, "rows")


@pytest.mark.parametrize("lies", ["rows.csv", "./data/rows.csv", "/home/somebody/rows.csv"])
def test_a_file_of_rows_may_lie_anywhere(lies: str) -> None:
    here = job("onnx", EngineOptions(), DatasetSpec(path="rows.csv"))

    assert keys.key_of(with_dataset(here, path=lies), "rows") == keys.key_of(here, "rows")


def test_packages_that_are_not_those_of_the_lock_are_never_taken_for_them() -> None:
    assert keys.pins_in_use("lock", LOCK, {"torch": "2.13.0+cpu", "numpy": "2.4.6"}) == "lock"
    assert keys.pins_in_use("lock", LOCK, {"torch": "2.12.0"}).startswith(keys.UNLOCKED)


# ── Two ways to see it ──


def published(one: Job) -> Index:
    made = made_up.passed(one.backend)
    export = msgspec.structs.replace(made.export, versions={"torch": "2.13.0+cpu"})
    made = keys.with_key(msgspec.structs.replace(made, export=export), one, made_up.capture(), LOCK)
    return msgspec.structs.replace(
        made_up.index(one.model, (made,)),
        side_files=tuple(made_up.artifact(path, b"{}") for path in one.model.side_files),
    )


def on_the_hub(index: Index) -> dict[str, str]:
    """As the Hub tells it: text is kept in git, the rest is large."""
    text = (".json", ".xml", ".data")
    listed = [*(artifact for job in index.jobs for artifact in job.artifacts), *index.side_files]
    files = {a.path: a.blob if a.path.endswith(text) and a.blob else a.sha256 for a in listed}
    return {**files, INDEX_FILE: "1" * 40, "README.md": "2" * 40}


source_changes = st.sampled_from(["same", "moved", "weights", "config", "new file", "readme"])
target_changes = st.sampled_from(["same", "gone", "altered", "foreign", "side file gone", "readme"])
pins_changes = st.sampled_from(["same", "moved"])
recipe_changes = st.sampled_from(["recorded", "same", "option", "dataset", "irrelevant option"])
rows_changes = st.sampled_from([None, "same", "other"])


def source_now(index: Index, change: str) -> SourceNow:
    files = {file.path: file.blob or file.sha256 for file in index.source.files} | {"README.md": "3" * 40}
    if change == "same":
        return SourceNow(index.source.commit)
    files |= {"weights": {"model.safetensors": "x"}, "config": {"config.json": "x"}}.get(change, {})
    files |= {"new file": {"chat_template.jinja": "x"}, "readme": {"README.md": "x"}}.get(change, {})
    return SourceNow("f" * 40, files)


def target_now(index: Index, change: str) -> dict[str, str]:
    files, one = on_the_hub(index), index.jobs[0].artifacts[0].path
    if change in ("gone", "side file gone"):
        del files[one if change == "gone" else "tokenizer.json"]
    files |= {"altered": {one: "x"}, "readme": {"README.md": "x"}}.get(change, {})
    return files | ({f"{index.jobs[0].folder}/mine.txt": "x"} if change == "foreign" else {})


def settings_now(one: Job, change: str) -> ModelSettings | None:
    if change == "recorded":
        return None
    engine, dataset = one.engine, one.dataset
    if change == "option":
        engine = msgspec.structs.replace(engine, dynamic=not engine.dynamic)
    if change == "irrelevant option":
        other = {"stateful": True} if one.backend != "openvino" else {"opset_version": 17}
        engine = msgspec.structs.replace(engine, **other)
    if change == "dataset":
        dataset = msgspec.structs.replace(dataset, split="elsewhere-2")
    return ModelSettings(source=one.model.source, engine=engine, dataset=dataset)


@given(jobs, source_changes, target_changes, pins_changes, recipe_changes, rows_changes)
def test_a_glance_and_the_reasons_agree(
    one: Job, source: str, target: str, pins: str, recipe: str, rows: str | None
) -> None:
    index = published(one)
    state = staleness.read_state({staleness.STATE: staleness.state_of(index)})
    digest = {None: None, "same": made_up.capture().digest, "other": "other"}[rows]
    moved = {**LOCK, "torch": "2.14.0"}
    wanted = Wanted(
        settings_now(one, recipe), digest, None, *((one.pins, LOCK) if pins == "same" else ("b2" * 32, moved))
    )
    now, there = source_now(index, source), target_now(index, target)

    found = [reason.kind for reason in staleness.reasons(index, index.jobs[0], wanted, now, there)]
    expected = [
        *(["source"] if source in ("weights", "config", "new file") else []),
        *(["recipe"] if recipe in ("option", "dataset") else []),
        *(["rows"] if rows == "other" else []),
        *(["pins"] if pins == "moved" else []),
        *(["file"] if target in ("gone", "altered", "side file gone") else []),
    ]
    glance = staleness.is_current(state, one.backend, one.variant, index.jobs[0].folder, wanted, now, there, own=False)

    assert found == expected
    assert glance == (not expected and target != "foreign")  # then the index has to be asked
