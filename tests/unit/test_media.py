"""Pictures, sounds and series on their way from a dataset into rows."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

from hub_exporter import builtin, media
from hub_exporter.errors import DatasetError
from hub_exporter.records import CaptureSpec, DatasetSpec
from hub_exporter.sample import SERIES_LIMIT, draw
from hub_exporter.tasks import TASKS

PICTURES, SOUNDS = TASKS["image-classification"], TASKS["automatic-speech-recognition"]
SERIES, LABELLED = TASKS["time-series-forecasting"], TASKS["zero-shot-image-classification"]


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (30 + number, 20), (number, 100, 200)).save(file, "PNG")
    return file.getvalue()


def wav(number: int, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.full(1000 + number, number / 100), rate, format="WAV")
    return file.getvalue()


def rows_of(spec: CaptureSpec) -> list[dict[str, Any]]:
    return [row.values for row in (*spec.capture, *spec.held_out, *spec.calibration)]


@pytest.mark.parametrize(("task", "suffix", "make"), [(PICTURES, "png", png), (SOUNDS, "wav", wav)])
def test_a_folder_of_files_is_a_dataset(task: Any, suffix: str, make: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.{suffix}").write_bytes(make(number))
    (folder / "notes.md").write_text("not a row", "utf-8")

    spec = draw(DatasetSpec(path=str(folder)), task, tmp_path / "rows")

    (kind,) = task.reads[0]
    kept = [values[kind] for values in rows_of(spec)]
    assert {one["sha256"] for one in kept} == {hashlib.sha256(make(number)).hexdigest() for number in range(9)}
    assert all(
        hashlib.sha256((tmp_path / "rows" / one["file"]).read_bytes()).hexdigest() == one["sha256"] for one in kept
    )
    assert draw(DatasetSpec(path=str(folder)), task, tmp_path / "again") == spec


def test_rows_of_a_local_file_name_pictures_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    for number in range(8):
        (tmp_path / "pics" / f"{number}.png").write_bytes(png(number))
    lines = [json.dumps({"image": f"pics/{number}.png", "text": f"picture {number}"}) for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), "utf-8")
    columns = {"text": "text"}

    spec = draw(DatasetSpec(path=str(tmp_path / "rows.jsonl"), columns=columns), LABELLED, tmp_path / "kept")

    assert {(values["image"]["width"], values["text"]) for values in rows_of(spec)} == {
        (30 + number, f"picture {number}") for number in range(8)
    }


def test_a_parquet_file_carries_pictures_and_sounds_inside(tmp_path: Path) -> None:
    import datasets

    plain = datasets.Features({"bytes": datasets.Value("binary"), "path": datasets.Value("string")})
    cells = [{"bytes": wav(number), "path": f"{number}.wav"} for number in range(8)]
    made = datasets.Dataset.from_dict({"audio": cells}, features=datasets.Features({"audio": plain}))
    made.to_parquet(tmp_path / "sounds.parquet")

    spec = draw(DatasetSpec(path=str(tmp_path / "sounds.parquet")), SOUNDS, tmp_path / "rows")

    assert {values["audio"]["samples"] for values in rows_of(spec)} == {1000 + number for number in range(8)}


def test_a_dataset_of_the_hub_never_opens_a_file_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png(1))

    for cell in (str(tmp_path / "secret.png"), {"path": str(tmp_path / "secret.png"), "bytes": None}):
        with pytest.raises(DatasetError, match="names a file on this machine"):
            media.keep("picture", cell, "row 1", None, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize("cell", [b"no picture", png(1)[:60], 7])
def test_what_is_no_picture_is_refused_with_its_row(cell: Any, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="row 1, `image`"):
        media.keep("picture", cell, "row 1, `image`", None, tmp_path)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"`gone\.png` cannot be read"):
        media.keep("picture", "gone.png", "row 1", tmp_path, tmp_path / "rows")


@pytest.mark.parametrize("cell", [None, "", {"bytes": None, "path": None}, {"bytes": b"", "path": ""}])
def test_an_empty_cell_is_no_row(cell: Any, tmp_path: Path) -> None:
    assert media.keep("sound", cell, "row 1", None, tmp_path) is None


def test_a_picture_is_read_as_rgb(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("LA", (4, 6), (200, 10)).save(file, "PNG")
    reference = media.keep("picture", file.getvalue(), "row 1", None, tmp_path)
    assert reference is not None

    image = media.picture(tmp_path, reference)

    assert (image.mode, image.size) == ("RGB", (reference["width"], reference["height"])) == ("RGB", (4, 6))


def test_a_sound_is_read_as_one_channel_at_the_rate_of_the_model(tmp_path: Path) -> None:
    moments = np.arange(8000) / 8000
    tone = np.sin(2 * np.pi * 50 * moments)
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone, tone * 0], axis=1), 8000, format="WAV", subtype="FLOAT")
    reference = media.keep("sound", file.getvalue(), "row 1", None, tmp_path)
    assert reference is not None

    heard = media.sound(tmp_path, reference, 16_000)

    expected = np.sin(2 * np.pi * 50 * np.arange(16_000) / 16_000) / 2
    assert (heard.shape, heard.dtype) == ((16_000,), np.float32)
    assert np.abs(heard - expected)[:-2].max() < 1e-3


@pytest.mark.parametrize(("name", "column"), [("pictures", "image"), ("sounds", "audio"), ("series", "target")])
def test_what_is_drawn_is_the_same_each_time_and_varied(name: str, column: str) -> None:
    cells = [repr(row[column]) for row in builtin.rows(name)]

    assert cells == [repr(row[column]) for row in builtin.rows(name)]
    assert len(set(cells)) == len(cells) == builtin.COUNT


def test_series_are_cut_and_those_with_holes_left_out(tmp_path: Path) -> None:
    lines = [{"target": [float(n)] * (SERIES_LIMIT + 50)} for n in range(8)]
    lines += [{"target": [1.0, None]}, {"target": [float("nan")]}, {"target": None}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")

    spec = draw(DatasetSpec(path=str(path)), SERIES)

    assert [len(values["series"]) for values in rows_of(spec)] == [SERIES_LIMIT] * 8


def test_a_column_without_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"target": "up and down"}', "utf-8")

    with pytest.raises(DatasetError, match="expected a list of numbers"):
        draw(DatasetSpec(path=str(path)), SERIES)
