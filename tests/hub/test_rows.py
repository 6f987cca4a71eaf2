"""Rows out of a dataset on the Hub, through the real `datasets`."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.engine  # `datasets` imports torch

LINES = "\n".join(
    json.dumps({"text": f"Sentence number {number}. " * (1 + number % 7), "label": number}) for number in range(200)
)

SCRIPT = """
from steps import *
from hub_exporter.records import DatasetSpec
from hub_exporter.sample import draw
from hub_exporter.tasks import TASKS

def rows(path, columns=None, **options):
    spec = draw(DatasetSpec(path=path, columns=columns or {}, **options), TASKS["fill-mask"])
    ids = [row.id for row in (*spec.capture, *spec.held_out)]
    return {"revision": spec.revision, "digest": spec.digest, "ids": ids}
"""


def test_rows_are_streamed_pinned_and_the_same_again(hub):
    commit, later, first, pinned, moved = hub.python(
        SCRIPT
        + """
api.create_repo("org/rows", repo_type="dataset")
commit = put("org/rows", {"data/train.jsonl": args[0]}, repo_type="dataset")
first = rows("org/rows")
later = put("org/rows", {"data/train.jsonl": args[0].replace("Sentence", "Phrase")}, repo_type="dataset")
tell([commit, later, first, rows("org/rows", revision=commit), rows("org/rows")])
""",
        LINES,
    )

    assert first == pinned
    assert (first["revision"], moved["revision"]) == (commit, later)
    assert first["digest"] != moved["digest"]
    assert len(set(first["ids"])) == 8


def test_a_dataset_that_cannot_be_used_is_an_error_that_names_the_fix(hub):
    column, missing, split, model = hub.python(
        SCRIPT
        + """
api.create_repo("org/columns", repo_type="dataset")
api.create_repo("org/a-model")
put("org/columns", {"data/train.jsonl": args[0].replace('"text"', '"sentence"')}, repo_type="dataset")
tell([told(rows, "org/columns"), told(rows, "org/nowhere"), told(rows, "org/columns", split="test"),
      told(rows, "org/a-model")])
""",
        LINES,
    )

    assert {error[0] for error in (column, missing, split, model)} == {"DatasetError"}
    assert column[1] == "`org/columns` has no column `text` for `fill-mask`, it has `sentence`, `label`"
    assert "--dataset-columns text=<column>" in column[2]
    assert "There is no dataset `org/nowhere`" in missing[1]
    assert "test" in split[1]
    assert "`org/a-model` is a model, not a dataset" in model[1]
    assert all("--dataset builtin" in error[2] for error in (missing, split))
