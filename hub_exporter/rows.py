"""Where rows come from: a file, the set that ships with hub-exporter, or the `datasets` library.

Every source gives `(id, {column: value})` lazily: only what is drawn is read.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from hub_exporter import builtin, hub
from hub_exporter.errors import DatasetError, HubExporterError
from hub_exporter.files import expanded
from hub_exporter.records import DatasetSpec
from hub_exporter.tasks import Task

Rows = Iterator[tuple[str, dict[str, Any]]]

BUILTIN = "builtin"
OFFLINE_HINT = "Without the network, name a file or the built-in rows: `--dataset builtin`"

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_LARGEST_CELL = 2**31 - 1


def open_rows(spec: DatasetSpec, task: Task) -> tuple[Rows, str | None]:
    """The rows of a dataset, and its commit where it is on the Hub. Raises DatasetError when it cannot be read."""
    if spec.path == BUILTIN:
        return _numbered(builtin.rows(task.builtin)), None
    path = expanded(spec.path)
    suffix = path.suffix.lower()
    if path.is_dir() and (named := _named_files(path)):
        return _numbered(iter(named)), None
    if suffix not in _FILES and not path.is_file():
        return _from_datasets(spec)
    if suffix not in _FILES:
        raise DatasetError(f"`{spec.path}`: hub-exporter cannot read such a file", hint=f"It reads {', '.join(_FILES)}")
    if not path.is_file():
        raise DatasetError(f"There is no file `{spec.path}`", hint="Name an existing file with `--dataset`")
    if suffix == ".parquet":
        return _numbered(_streamed(spec, "parquet", data_files=str(path), split="train")), None
    return _numbered(_explained(_READERS[suffix](path), spec.path)), None


def hub_dataset(spec: DatasetSpec) -> bool:
    """Whether the rows come from a repository of the Hub."""
    path = expanded(spec.path)
    return path.suffix.lower() not in _FILES and not path.exists() and _HUB_ID.fullmatch(spec.path) is not None


def base_of(spec: DatasetSpec) -> Path | None:
    """The folder in which the cells of a dataset may name files: of a local one; `None` for one of the Hub."""
    path = expanded(spec.path)
    if spec.path == BUILTIN or not path.exists():
        return None
    return (path if path.is_dir() else path.parent).absolute()


def _numbered(records: Iterator[dict[str, Any]]) -> Rows:
    for number, record in enumerate(records):
        yield str(number), record


def _named_files(folder: Path) -> list[dict[str, Any]]:
    """Rows that name the pictures and sounds of a folder, in the order of their names."""
    files = [(_MEDIA.get(path.suffix.lower()), path) for path in sorted(folder.iterdir())]
    return [{column: path.name} for column, path in files if column]


def _explained(records: Iterator[dict[str, Any]], path: str) -> Iterator[dict[str, Any]]:
    """Turn what the readers raise into DatasetError."""
    try:
        yield from records
    except UnicodeDecodeError as error:
        raise DatasetError(f"`{path}` is not text in UTF-8", hint="Convert it to UTF-8") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise DatasetError(f"`{path}` is damaged: {error}", hint="Repair the file") from error
    except OSError as error:
        raise DatasetError(f"`{path}` cannot be read: {error.strerror or error}") from error


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8-sig", newline="")


def _jsonl(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _record(_json(line, f"line {number}"), f"line {number}")


def _json_list(path: Path) -> Iterator[dict[str, Any]]:
    records = _json(path.read_text("utf-8-sig"), "the file")
    if not isinstance(records, list):
        raise ValueError("expected a list of rows")
    for number, record in enumerate(records):
        yield _record(record, f"row {number}")


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place} is not JSON ({error})") from error


def _record(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place} is not an object with columns")
    return value


def _table(delimiter: str) -> Callable[[Path], Iterator[dict[str, Any]]]:
    def read(path: Path) -> Iterator[dict[str, Any]]:
        csv.field_size_limit(_LARGEST_CELL)
        with _open(path) as file:
            for row in csv.DictReader(file, delimiter=delimiter):
                yield {key: value for key, value in row.items() if key is not None}

    return read


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with _open(path) as file:
        for line in file:
            yield {"text": line.rstrip("\r\n")}


_READERS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    ".jsonl": _jsonl,
    ".json": _json_list,
    ".csv": _table(","),
    ".tsv": _table("\t"),
    ".txt": _lines,
}
_FILES = (*_READERS, ".parquet")

_MEDIA = {
    **dict.fromkeys((".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"), "image"),
    **dict.fromkeys((".flac", ".mp3", ".ogg", ".wav"), "audio"),
}
"""Suffix of a file in a folder -> the column that it is read as."""


def _from_datasets(spec: DatasetSpec) -> tuple[Rows, str | None]:
    commit = commit_of(spec) if hub_dataset(spec) else None
    return _numbered(_streamed(spec, spec.path, name=spec.name, split=spec.split, revision=commit)), commit


def commit_of(spec: DatasetSpec) -> str:
    """The commit that a dataset of the Hub is at now. Raises DatasetError."""
    try:
        return hub.dataset_commit(spec.path, spec.revision)
    except HubExporterError as error:
        raise DatasetError(str(error), hint=f"{error.hint}. {OFFLINE_HINT}" if error.hint else OFFLINE_HINT) from error


def _streamed(spec: DatasetSpec, *args: Any, **kwargs: Any) -> Iterator[dict[str, Any]]:
    try:
        import datasets

        rows = datasets.load_dataset(*args, streaming=True, **kwargs)
        yield from rows.decode(False) if rows.features else rows  # pictures and sounds as the files that they are
    except Exception as error:  # a builder may raise anything; what it says is the reason
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise DatasetError(f"The dataset `{spec.path}` cannot be read: {lines[0]}", hint=OFFLINE_HINT) from error
