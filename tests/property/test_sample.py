from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_exporter.errors import DatasetError
from hub_exporter.records import CaptureSpec, DatasetSpec
from hub_exporter.sample import draw
from hub_exporter.tasks import TASKS

texts = st.lists(st.text(max_size=40), min_size=8, max_size=60)


def drawn(records: list[Any], rows: int = 16, task: str = "fill-mask") -> CaptureSpec | DatasetError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        try:
            return draw(DatasetSpec(path=str(path), rows=rows), TASKS[task])
        except DatasetError as error:
            return error


@given(texts, st.integers(8, 40))
def test_sets_are_disjoint_and_hold_what_they_promise(texts: list[str], rows: int) -> None:
    spec = drawn([{"text": text} for text in texts], rows)
    if isinstance(spec, DatasetError):
        usable = {text.strip() for text in texts} - {""}
        assert len(usable) < 8 or "all about as long" in str(spec)
        return
    every = [row.values["text"] for row in (*spec.capture, *spec.held_out, *spec.calibration)]

    assert (len(spec.capture), len(spec.held_out)) == (2, 6)
    assert len(every) == len(set(every)) <= rows
    assert set(every) <= {text.strip() for text in texts}
    assert "" not in every
    lengths = [len(row.values["text"]) for row in spec.capture]
    assert lengths[1] >= 1.5 * lengths[0]


@given(texts)
def test_drawing_twice_gives_the_same(texts: list[str]) -> None:
    longer = [{"text": f"{text} {'word ' * number} {number}"} for number, text in enumerate(texts)]
    first, second = drawn(longer), drawn(longer)

    assert isinstance(first, CaptureSpec)
    assert isinstance(second, CaptureSpec)
    assert (first.digest, first.capture, first.held_out) == (second.digest, second.capture, second.held_out)


values = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.text(max_size=4), max_size=3)
records = st.dictionaries(
    st.sampled_from(["text", "messages", "label"]),
    values | st.lists(st.dictionaries(st.sampled_from(["role", "content"]), values, max_size=2), max_size=2),
    max_size=3,
)


@pytest.mark.parametrize("task", ["fill-mask", "text-generation", "question-answering"])
@given(st.lists(records, max_size=20))
def test_any_rows_are_drawn_or_refused(task: str, records: list[Any]) -> None:
    spec = drawn(records, task=task)

    assert spec.capture if isinstance(spec, CaptureSpec) else spec.hint
