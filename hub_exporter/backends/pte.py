"""One copy of a weight in a `.pte` file that holds it twice.

ExecuTorch keeps the constants of its own operators in one segment of the file, and what a delegate asked for under a
name in a segment each. A tied embedding is in both: as the table of the portable lookup and as the matrix of the
delegate's linear layer, byte for byte the same. A named segment is nothing but an offset and a size, so it may as well
lie inside the segment of the constants.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from flatbuffers.table import Table

SEGMENTS, CONSTANT_SEGMENT, NAMED_DATA = 12, 14, 18
"""Where the fields of the table `Program` stand in its vtable (`program.fbs`): the first at 4, two bytes each."""

_HEADER = struct.Struct("<4sIQQQ")
"""Magic `eh00`, own length, size of the program, where the segments begin, size of the segments. At byte 8."""

_ALIGNMENT = 128
"""Of the beginning of every segment; ExecuTorch's default."""

_WORTH = 1024
"""Bytes from which on a segment is looked for among the constants."""


@dataclass(frozen=True)
class _Segment:
    offset: int
    """From where the segments begin."""
    size: int
    field: int | None
    """Byte of the file in which `offset` is written; `None` where it is left out, being 0."""
    inside: bool = False
    """Whether it lies in the segment of the constants."""


def share_constants(path: Path) -> int:
    """Let the named segments of the program in `path` that repeat one of its constants lie there, and leave their own
    bytes out. Gives the number of bytes by which the file has become shorter."""
    before = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        base = _HEADER.unpack_from(data, 8)[3] if data[8:12] == b"eh00" else 0
        head = bytearray(data[:base])
        constants = _constants(head) if base else None
        if constants is None:
            return 0
        old = _segments(head)
        new = _placed(old, _named(head), constants, data, base)
        if not any(segment.inside for segment in new):
            return 0
        shorter = path.with_suffix(".shorter")
        with shorter.open("wb") as target:
            _write(target, head, data, old, new)
    shorter.replace(path)
    return before - path.stat().st_size


def _placed(
    segments: list[_Segment], named: set[int], constants: tuple[int, list[int]], data: mmap.mmap, base: int
) -> list[_Segment]:
    """The segments at their new places: inside the constants, or moved up behind those before them."""
    own, starts = constants
    placed: list[_Segment] = []
    end = 0
    for index, segment in enumerate(segments):
        shared = index in named and index > own  # ExecuTorch writes the constants first
        start = _repeated(data, base, segment, segments[own], starts) if shared else None
        if start is not None:
            placed.append(replace(segment, offset=placed[own].offset + start, inside=True))
            continue
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        placed.append(replace(segment, offset=offset))
        end = offset + segment.size
    return placed


def _repeated(data: mmap.mmap, base: int, segment: _Segment, constants: _Segment, starts: list[int]) -> int | None:
    """Where in the segment of the constants the bytes of another segment stand."""
    if segment.size < _WORTH or segment.field is None:
        return None
    with memoryview(data) as view:
        wanted = view[base + segment.offset :][: segment.size]
        for start in starts:
            found = view[base + constants.offset + start :][: segment.size]
            if start + segment.size <= constants.size and found == wanted:
                return start
    return None


def _write(target: BinaryIO, head: bytearray, data: mmap.mmap, old: list[_Segment], new: list[_Segment]) -> None:
    base, length = len(head), 0
    for segment in new:
        if segment.field is not None:
            struct.pack_into("<Q", head, segment.field, segment.offset)
        length = max(length, segment.offset + segment.size)
    struct.pack_into("<Q", head, 8 + 24, length)
    target.write(head)
    for before, after in zip(old, new, strict=True):
        if not after.inside:
            target.write(bytes(base + after.offset - target.tell()))
            target.write(memoryview(data)[base + before.offset :][: before.size])


# ── The program's tables ──


def _root(head: bytearray) -> Any:
    return Table(head, struct.unpack_from("<I", head)[0])


def _tables(parent: Any, slot: int) -> Iterator[Any]:
    """The tables of a vector of them."""
    field = parent.Offset(slot)
    for index in range(parent.VectorLen(field) if field else 0):
        yield Table(parent.Bytes, parent.Indirect(parent.Vector(field) + 4 * index))


def _number(table: Any, slot: int, form: str) -> int:
    field = table.Offset(slot)
    return int(struct.unpack_from(form, table.Bytes, table.Pos + field)[0]) if field else 0


def _segments(head: bytearray) -> list[_Segment]:
    return [
        _Segment(
            offset=_number(table, 4, "<Q"),
            size=_number(table, 6, "<Q"),
            field=table.Pos + table.Offset(4) if table.Offset(4) else None,
        )
        for table in _tables(_root(head), SEGMENTS)
    ]


def _named(head: bytearray) -> set[int]:
    """Segments that a delegate asks for by name."""
    return {_number(table, 6, "<I") for table in _tables(_root(head), NAMED_DATA)}


def _constants(head: bytearray) -> tuple[int, list[int]] | None:
    """(segment of the constants, where each of them starts in it); `None` in a program without constants."""
    program = _root(head)
    field = program.Offset(CONSTANT_SEGMENT)
    if not field:
        return None
    table = Table(head, program.Indirect(program.Pos + field))
    offsets = table.Offset(6)
    if not offsets:
        return None
    starts = struct.unpack_from(f"<{table.VectorLen(offsets)}Q", head, table.Vector(offsets))
    return _number(table, 4, "<I"), list(starts)
