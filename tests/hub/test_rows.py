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


def test_pictures_of_a_dataset_on_the_hub_are_kept_beside_the_rows(hub, tmp_path):
    digests, kept, stolen = hub.python(
        SCRIPT
        + """
import hashlib, io, json
from pathlib import Path
from PIL import Image

def png(number):
    file = io.BytesIO()
    Image.new("RGB", (20 + number, 16), (number, 0, 99)).save(file, "PNG")
    return file.getvalue()

def pictures(path, folder):
    spec = draw(DatasetSpec(path=path, rows=8), TASKS["image-classification"], Path(args[0]) / folder)
    return sorted(row.values["image"]["sha256"] for row in (*spec.capture, *spec.held_out))

made = [png(number) for number in range(8)]
api.create_repo("org/pictures", repo_type="dataset")
put("org/pictures", {f"train/{number}.png": data for number, data in enumerate(made)}, repo_type="dataset")
(Path(args[0]) / "mine.png").write_bytes(made[0])
api.create_repo("org/thief", repo_type="dataset")
lines = "".join(json.dumps({"image": str(Path(args[0]) / "mine.png"), "n": number}) + "\\n" for number in range(9))
put("org/thief", {"data/train.jsonl": lines}, repo_type="dataset")
digests = sorted(hashlib.sha256(data).hexdigest() for data in made)
tell([digests, pictures("org/pictures", "kept"), told(pictures, "org/thief", "stolen")])
""",
        str(tmp_path),
    )

    assert kept == digests
    assert stolen[0] == "DatasetError"
    assert "names a file on this machine" in stolen[1]
    assert not (tmp_path / "stolen").exists()
