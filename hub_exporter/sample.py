"""A dataset -> the rows that are used to capture, to check and to calibrate: three sets that share nothing.

The same dataset gives the same rows: they are the first usable ones, and length decides which serves what. A dataset
on the Hub is pinned to its commit. When it cannot be read, that is an error: other rows are never put in its place.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter import media
from hub_exporter.checks import MINIMUM_ROWS
from hub_exporter.errors import DatasetError
from hub_exporter.records import CaptureSpec, DatasetSpec, Row
from hub_exporter.rows import base_of, open_rows
from hub_exporter.tasks import Task, dataset_for

HELD_OUT = 6
SERIES_LIMIT = 1024
"""Numbers of a series that are kept."""

_SCANNED = 10_000
"""Rows that are looked at before giving up on finding enough usable ones."""


def draw(spec: DatasetSpec | None, task: Task, folder: Path | None = None) -> CaptureSpec:
    """Draw rows for a task: two of clearly different length to capture, six held out, the rest to calibrate.

    Pictures and sounds are put into `folder`, and rows name them there. Without a spec the task's default dataset is
    used. Raises DatasetError when the dataset cannot be read, lacks a column, or does not have eight usable rows that
    differ.
    """
    chosen = dataset_for(task, spec)
    source, revision = open_rows(chosen, task)
    rows = _usable(chosen, task, source, folder)
    captured = _pair(rows, chosen) if task.inputs == "text" else (rows[0], rows[1])
    rest = sorted((row for row in rows if row not in captured), key=_length)
    held_out = [rest[round(index * (len(rest) - 1) / (HELD_OUT - 1))] for index in range(HELD_OUT)]
    return CaptureSpec(
        path=chosen.path,
        name=chosen.name,
        split=chosen.split,
        revision=revision,
        digest=_digest(rows),
        capture=captured,
        held_out=tuple(held_out),
        calibration=tuple(row for row in rows if row not in captured and row not in held_out),
    )


@dataclass
class _Tally:
    """What was met while looking for usable rows, for the message when there are too few."""

    seen: int = 0
    empty: int = 0
    duplicates: int = 0
    rows: list[Row] = field(default_factory=list)


def _usable(
    spec: DatasetSpec, task: Task, source: Iterator[tuple[str, Mapping[str, Any]]], folder: Path | None
) -> list[Row]:
    first = next(source, None)
    if first is None:
        raise DatasetError(f"`{spec.path}` has no rows", hint="Name another dataset with `--dataset`")
    columns = _column_map(spec, task, list(first[1]))
    tally, known, read = _Tally(), set(), _reader(base_of(spec), folder)
    for number, record in itertools.islice(itertools.chain([first], source), _SCANNED):
        tally.seen += 1
        place = f"`{spec.path}`, row {number}"
        values = {name: read(name, record.get(column), f"{place}, `{column}`") for name, column in columns.items()}
        key = _canonical(values)
        if not all(values.values()):
            tally.empty += 1
        elif key in known:
            tally.duplicates += 1
        else:
            known.add(key)
            tally.rows.append(Row(id=number, values=values))
        if len(tally.rows) == spec.rows:
            break
    _check_enough(spec, tally)
    return tally.rows


def _column_map(spec: DatasetSpec, task: Task, present: list[str]) -> dict[str, str]:
    """What the task reads -> column of the dataset. Raises DatasetError that names the columns there are."""
    readable = {name for columns in task.reads for name in columns} | set(task.optional)
    unknown = sorted(spec.columns.keys() - readable)
    if unknown:
        raise DatasetError(f"`{task.name}` does not read `{unknown[0]}`", hint=f"It reads {_listed(sorted(readable))}")
    absent = sorted(set(spec.columns.values()) - set(present))
    if absent:
        raise DatasetError(f"`{spec.path}` has no column `{absent[0]}`, it has {_listed(present)}", hint=_fix(task))
    for columns in task.reads:
        tried = {name: (spec.columns[name],) if name in spec.columns else names for name, names in columns.items()}
        found = {name: next((one for one in names if one in present), None) for name, names in tried.items()}
        extra = {name: column for name, column in spec.columns.items() if name in task.optional}
        complete = {name: column for name, column in found.items() if column is not None}
        if len(complete) == len(found) and spec.columns.keys() <= complete.keys() | extra.keys():
            return complete | extra
    wanted = " or ".join(_listed(columns) for columns in task.reads)
    raise DatasetError(
        f"`{spec.path}` has no column {wanted} for `{task.name}`, it has {_listed(present)}", hint=_fix(task)
    )


def _fix(task: Task) -> str:
    name = next(iter(task.reads[-1]))
    return f"Say which one to read with `--dataset-columns {name}=<column>`"


def _text(value: Any, place: str) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)  # a dataset of tokens
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    raise DatasetError(f"{place}: expected text, got {type(value).__name__}", hint="Name a column of texts")


def _messages(value: Any, place: str) -> list[dict[str, str]]:
    """The conversation up to the last turn of the user: what follows it is for the model to say."""
    if value is None:
        return []
    turns = [turn for turn in value if isinstance(turn, Mapping)] if isinstance(value, list) else []
    messages = [{key: turn[key] for key in ("role", "content")} for turn in turns if _is_message(turn)]
    if not isinstance(value, list) or len(messages) < len(value):
        raise DatasetError(
            f"{place}: expected a list of messages with `role` and `content` as text",
            hint="Convert the conversations, or read a column of texts with `--dataset-columns text=<column>`",
        )
    users = [index for index, turn in enumerate(messages) if turn["role"] == "user" and turn["content"].strip()]
    return messages[: users[-1] + 1] if users else []


def _numbers(value: Any, place: str) -> list[float]:
    """The first numbers of a series; none where one of them is missing or not finite."""
    if value is None:
        return []
    items = value[:SERIES_LIMIT] if isinstance(value, list) else None
    if items is None or not all(isinstance(item, int | float) or item is None for item in items):
        raise DatasetError(f"{place}: expected a list of numbers", hint="Name a column of series")
    return [float(item) for item in items] if all(item is not None and math.isfinite(item) for item in items) else []


def _reader(base: Path | None, folder: Path | None) -> Callable[[str, Any, str], Any]:
    """Reads a cell by what the task takes it for. Pictures and sounds go into `folder`."""

    def read(name: str, value: Any, place: str) -> Any:
        if name == "messages":
            return _messages(value, place)
        if name == "series":
            return _numbers(value, place)
        if name in ("image", "audio"):
            assert folder is not None
            return media.keep("picture" if name == "image" else "sound", value, place, base, folder)
        return _text(value, place)

    return read


def _is_message(turn: Mapping[str, Any]) -> bool:
    return isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


def _check_enough(spec: DatasetSpec, tally: _Tally) -> None:
    if len(tally.rows) >= MINIMUM_ROWS:
        return
    if len(tally.rows) == 1 and tally.duplicates:
        raise DatasetError(
            f"All {tally.duplicates + 1} rows of `{spec.path}` are the same",
            hint="Name a dataset with different rows with `--dataset`",
        )
    counted = (("empty", tally.empty), ("repeated", tally.duplicates))
    why = ", ".join(f"{count} {what}" for what, count in counted if count)
    raise DatasetError(
        f"`{spec.path}` has {len(tally.rows)} usable rows of {tally.seen}{f' ({why})' if why else ''}: "
        f"at least {MINIMUM_ROWS} are needed",
        hint="Add rows, or name another dataset with `--dataset`",
    )


def _pair(rows: list[Row], spec: DatasetSpec) -> tuple[Row, Row]:
    """A rather short row, and the next that is clearly longer: short inputs trace fast and show all there is."""
    by_length = sorted(rows, key=_length)
    for short in (by_length[len(rows) // 4], by_length[0]):
        for long in by_length:
            if _length(long) >= max(1.5 * _length(short), _length(short) + 8):
                return short, long
    shortest, longest = _length(by_length[0]), _length(by_length[-1])
    raise DatasetError(
        f"The {len(rows)} rows drawn of `{spec.path}` are all about as long ({shortest} to {longest} characters): "
        "padding could not be captured",
        hint="Draw more with `--dataset-rows`, or name a dataset with short and long rows",
    )


def _length(row: Row) -> int:
    """Characters: close enough to tell short from long without the model's tokenizer."""
    return sum(
        len(value) if isinstance(value, str) else sum(len(turn["content"]) for turn in value)
        for name, value in row.values.items()
        if name not in ("image", "audio", "series")
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _digest(rows: Iterable[Row]) -> str:
    return hashlib.sha256(_canonical(msgspec.to_builtins(list(rows))).encode("utf-8", "surrogatepass")).hexdigest()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
