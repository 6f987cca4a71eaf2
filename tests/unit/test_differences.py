"""The first difference between two files, in words."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from hub_exporter.differences import first_byte, first_difference


def pair(folder: Path, name: str, old: bytes, new: bytes) -> tuple[Path, Path]:
    left, right = folder / "old" / name, folder / "new" / name
    for path, data in ((left, old), (right, new)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return left, right


def archive(path: Path, members: dict[str, str]) -> bytes:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in members.items():
            made.writestr(zipfile.ZipInfo(name), text)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [(b"same", b"same", None), (b"same", b"sane", 2), (b"same", b"same and more", 4), (b"", b"x", 0)],
)
def test_the_first_byte(tmp_path: Path, old: bytes, new: bytes, at: int | None) -> None:
    assert first_byte(*pair(tmp_path, "x", old, new)) == at


def test_the_first_byte_of_large_files(tmp_path: Path) -> None:
    old = bytes(3_000_000)

    assert first_byte(*pair(tmp_path, "x", old, old[:2_500_000] + b"\1" + old[2_500_001:])) == 2_500_000


def test_of_json_the_value(tmp_path: Path) -> None:
    old, new = b'{"a": {"b": [1, 2]}, "c": 1}', b'{"a": {"b": [1, 3]}, "c": 1}'

    assert first_difference(*pair(tmp_path, "x.json", old, new)) == "byte 16 (28 bytes), `a.b[1]`: 2 -> 3"
    assert first_difference(*pair(tmp_path, "x.json", b"{}", b"{ }")) == (
        "byte 1 (2 and 3 bytes), only its spaces or its order"
    )


def test_of_an_archive_the_member(tmp_path: Path) -> None:
    old = archive(tmp_path / "a", {"weights": "1", "graph": "2"})
    new = archive(tmp_path / "b", {"weights": "1", "graph": "3"})
    less = archive(tmp_path / "c", {"weights": "1"})

    assert str(first_difference(*pair(tmp_path, "x.pt2", old, new))).endswith("member `graph`")
    assert str(first_difference(*pair(tmp_path, "x.pt2", old, less))).endswith("member `graph` is in one of them only")
    assert first_difference(*pair(tmp_path, "x.pt2", old, old)) is None
