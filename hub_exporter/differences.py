"""The first difference between a published file and the rebuilt one, in words. Pure but for reading the two files."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20


def first_difference(published: Path, rebuilt: Path) -> str | None:
    """Where two files differ first, as finely as their kind allows; `None` where they are the same."""
    at = first_byte(published, rebuilt)
    if at is None:
        return None
    found = _in_json(published, rebuilt) or _in_archive(published, rebuilt)
    sizes = published.stat().st_size, rebuilt.stat().st_size
    size = f"{sizes[0]:,} bytes" if sizes[0] == sizes[1] else f"{sizes[0]:,} and {sizes[1]:,} bytes"
    return f"byte {at:,} ({size})" + (f", {found}" if found else "")


def first_byte(left: Path, right: Path) -> int | None:
    """Offset of the first byte that differs, or that only one of the files has."""
    offset = 0
    with left.open("rb") as one, right.open("rb") as other:
        while True:
            a, b = one.read(_CHUNK), other.read(_CHUNK)
            if a != b:
                both = min(len(a), len(b))
                return offset + next((index for index in range(both) if a[index] != b[index]), both)
            if not a:
                return None
            offset += len(a)


def _in_json(published: Path, rebuilt: Path) -> str | None:
    if published.suffix != ".json":
        return None
    try:
        values = [json.loads(path.read_bytes()) for path in (published, rebuilt)]
    except ValueError:
        return None
    return next(_values(values[0], values[1], ""), "only its spaces or its order")


def _values(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _values(old.get(key), new.get(key), f"{place}.{key}" if place else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _values(*pair, f"{place}[{index}]")
    elif old != new:
        yield f"`{place}`: {_brief(old)} -> {_brief(new)}"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _in_archive(published: Path, rebuilt: Path) -> str | None:
    """A `.pt2` is an archive: which of its members it is."""
    if not (zipfile.is_zipfile(published) and zipfile.is_zipfile(rebuilt)):
        return None
    with zipfile.ZipFile(published) as old, zipfile.ZipFile(rebuilt) as new:
        members = [{item.filename: (item.CRC, item.file_size) for item in file.infolist()} for file in (old, new)]
    for name in [*members[0], *(name for name in members[1] if name not in members[0])]:
        if members[0].get(name) != members[1].get(name):
            missing = " is in one of them only" if not (name in members[0] and name in members[1]) else ""
            return f"member `{name}`{missing}"
    return "only in how its members are stored"
