"""Models of the zoo through every backend; what comes out is what `docs/coverage.md` says.

The table is made by `make coverage`. What is checked of it here is chosen in the zoo: every kind somewhere, and all
that a change of ours might break.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zoo
from coverage import PAGE, UNKNOWN, documented, outcome_of, plain, table
from pipeline import Subject

from hub_exporter.catalogue import DEFAULT_BACKENDS

pytestmark = pytest.mark.engine

CHECKED = [
    pytest.param(kind.name, backend, documented()[kind.name, backend], id=f"{kind.name}-{backend}")
    for kind in zoo.KINDS
    for backend in kind.checked
    if documented().get((kind.name, backend), UNKNOWN) != UNKNOWN  # nobody has looked yet, and the table says so
]


def test_the_table_has_every_kind_of_the_zoo_and_most_of_what_is_checked() -> None:
    assert {kind for kind, _ in documented()} == set(zoo.BY_NAME)
    assert len(CHECKED) > 0.9 * sum(len(kind.checked) for kind in zoo.KINDS)
    assert table(documented()) in PAGE.read_text("utf-8"), "`make coverage` writes it"


def test_every_kind_is_checked_somewhere() -> None:
    assert all(kind.checked for kind in zoo.KINDS)
    assert {backend for kind in zoo.KINDS for backend in kind.checked} == set(DEFAULT_BACKENDS)


@pytest.mark.parametrize(("kind", "backend", "cell"), CHECKED)
def test_what_comes_out_is_what_the_table_says(
    kind: str, backend: str, cell: str, subject_named: Callable[[str], Subject]
) -> None:
    result, text = outcome_of(subject_named(kind), backend)

    expected, _, detail = cell.partition(": ") if cell.startswith(("failed", "mismatch")) else (cell, "", "")
    assert result == expected, text
    assert plain(detail) in plain(text)
