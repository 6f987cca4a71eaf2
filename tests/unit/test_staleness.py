"""What the property over keys leaves out: words, jobs that did not pass, and states that strangers wrote."""

from __future__ import annotations

import made_up
import msgspec
import pytest

from hub_exporter import keys, staleness
from hub_exporter.records import INDEX_FILE, LAYOUT_VERSION, Index, JobResult, SourceFile, State
from hub_exporter.staleness import STATE, SourceNow, Wanted

LOCK = {"torch": "2.13.0", "onnx": "1.23.2"}
MODEL = made_up.encoder(files=(SourceFile(path="model.safetensors", size=3, sha256="ab" * 32),), side_files=())
THERE = {INDEX_FILE: "1"} | dict.fromkeys(("onnx/export.json",), "x")


def index_of(**changes: object) -> Index:
    made = made_up.passed("onnx", MODEL.name, export=made_up.outcome("onnx", versions={"torch": "2.13.0"}))
    made = keys.with_key(made, made_up.job("onnx", MODEL, pins="b1"), made_up.capture(), LOCK)
    return msgspec.structs.replace(made_up.index(MODEL, (msgspec.structs.replace(made, **changes),)), side_files=())


def there(job: JobResult) -> dict[str, str]:
    return {artifact.path: artifact.sha256 for artifact in job.artifacts}


def reasons(index: Index, wanted: Wanted | None = None, source: SourceNow | None = None) -> list[tuple[str, str]]:
    (job,) = index.jobs
    wanted = wanted or Wanted(pins="b1", lock=LOCK)
    found = staleness.reasons(index, job, wanted, source or SourceNow(MODEL.commit), there(job))
    return [(reason.kind, reason.text) for reason in found]


def test_a_failed_job_is_tried_again_and_one_that_disagreed_only_when_something_changed() -> None:
    failed = index_of(status="failed", reason="killed", artifacts=())
    disagreed = index_of(status="mismatch", reason="output differs", artifacts=())

    assert reasons(failed) == [("failed", "it failed last time: killed")]
    assert reasons(disagreed) == []
    assert [kind for kind, _ in reasons(disagreed, Wanted(pins="b2", lock=LOCK))] == ["pins", "failed"]


def test_what_was_not_verified_is_stale() -> None:
    unverified = index_of(verification=made_up.verification(level="exported", runtime=""))

    assert reasons(unverified) == [("unverified", "it was published with `--no-verify`")]
    state = staleness.read_state({STATE: staleness.state_of(unverified)})
    assert state is not None
    assert (state.jobs, state.others) == ({}, 1)


def test_pins_say_which_package_moved() -> None:
    newer = Wanted(pins="b2", lock={"torch": "2.14.0", "onnx": "1.23.2", "new": "1"})

    assert reasons(index_of(), newer) == [("pins", "new unset -> 1, torch 2.13.0 -> 2.14.0")]
    anew = Wanted(pins="b2", lock=LOCK)
    assert reasons(index_of(), anew) == [("pins", "the lock was written anew with the same packages")]


def test_files_that_were_made_outside_the_lock_are_never_current() -> None:
    made = made_up.passed("onnx", MODEL.name, export=made_up.outcome("onnx", versions={"torch": "2.12.0"}))
    made = keys.with_key(made, made_up.job("onnx", MODEL, pins="b1"), made_up.capture(), LOCK)
    index = msgspec.structs.replace(made_up.index(MODEL, (made,)), side_files=())

    ((kind, text),) = reasons(index)
    assert kind == "pins"
    assert text == "it was made with packages that are not those of the lock: torch 2.12.0 -> 2.13.0"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"source": 1}', '{"jobs": {}}', "null", 7, None, {"source": "a/b"}],
)
def test_a_state_that_cannot_be_read_is_none(text: object) -> None:
    assert staleness.read_state({STATE: text}) is None


@pytest.mark.parametrize("line", ["", "a b", "a b c d e f", "a  b c d e", "\n"])
def test_a_state_that_somebody_wrote_is_never_taken_for_ours(line: str) -> None:
    state = State(
        source="a/b",
        commit="c",
        files="f",
        task="no such task",
        side_files="s",
        folders={"onnx": "o"},
        jobs={"onnx.fp32": line},
    )

    wanted = Wanted(pins="b1", lock=LOCK)
    assert not staleness.is_current(state, "onnx", "fp32", "onnx", wanted, SourceNow("c"), THERE, own=False)
    assert not staleness.is_current(state, "dynamo", "fp32", "pt2", wanted, SourceNow("c"), THERE, own=False)


def test_a_state_names_the_layout() -> None:
    state = staleness.read_state({STATE: staleness.state_of(index_of())})

    assert state is not None
    assert state.jobs["onnx.fp32"].endswith(f" {LAYOUT_VERSION}")
