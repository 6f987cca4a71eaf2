"""Every kind of model in the zoo through every backend; what comes out is what `docs/coverage.md` says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zoo
from pipeline import Subject

from hub_exporter.export import ExportError

pytestmark = pytest.mark.engine

TABLE = Path(__file__).parents[2] / "docs" / "coverage.md"


def documented() -> dict[tuple[str, str], str]:
    """(kind, backend) -> cell, from the table whose first column is `model`."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    backends = rows[0][2:]
    return {(row[0], backend): cell for row in rows[2:] for backend, cell in zip(backends, row[2:], strict=True)}


CELLS = [pytest.param(kind, backend, cell, id=f"{kind}-{backend}") for (kind, backend), cell in documented().items()]


def test_the_table_has_every_kind_of_the_zoo() -> None:
    assert {kind for kind, _ in documented()} == set(zoo.BY_NAME)


@pytest.mark.parametrize(("kind", "backend", "cell"), CELLS)
def test_what_comes_out_is_what_the_table_says(
    kind: str, backend: str, cell: str, subject_named: Callable[[str], Subject]
) -> None:
    subject = subject_named(kind)

    result, text = outcome_of(subject, backend)

    expected, _, detail = cell.partition(": ")
    assert result == expected, text
    assert plain(detail) in plain(text)


def outcome_of(subject: Subject, backend: str) -> tuple[str, str]:
    """(cell of the table, what it rests on)"""
    try:
        outcome, files = subject.export(backend)
    except ExportError as error:
        return "failed" if error.hint else "failed without a hint", str(error)
    found = subject.verify(backend, outcome, files)
    return found.level if found.passed else "mismatch", found.reason


def plain(text: str) -> str:
    return re.sub(r"[`\\]", "", text)
