"""Models of the zoo through every backend; what comes out is what `docs/coverage.md` says.

The tables are made by `make coverage`. What is checked of them here is chosen in the zoo: every kind somewhere, and all
that a change of ours might break.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zoo
from coverage import FORMS, ONE_GRAPH, PAGE, UNKNOWN, default, documented, forms, outcome_of, plain, table
from pipeline import Subject

from hub_exporter.catalogue import DEFAULT_BACKENDS

pytestmark = pytest.mark.engine

CHOSEN = [
    *((kind.name, default(kind), backend) for kind in zoo.KINDS for backend in kind.checked),
    *((name, ONE_GRAPH, backend) for name, backend in zoo.WHOLE_TOO),
]
CHECKED = [
    pytest.param(*cell, documented()[cell], id="-".join(cell))
    for cell in CHOSEN
    if documented().get(cell, UNKNOWN) != UNKNOWN  # nobody has looked yet, and the table says so
]


def test_the_tables_have_every_kind_of_the_zoo_and_most_of_what_is_checked() -> None:
    assert {(kind, form) for kind, form, _ in documented()} == {
        (kind.name, form) for kind in zoo.KINDS for form in forms(kind)
    }
    assert len(CHECKED) > 0.9 * len(CHOSEN)
    assert all(table(documented(), form) in PAGE.read_text("utf-8") for form in FORMS), "`make coverage` writes them"


def test_every_kind_is_checked_somewhere_or_one_that_is_like_it() -> None:
    assert {kind.name for kind in zoo.KINDS if not kind.checked} == set(zoo.UNCHECKED)
    assert {backend for kind in zoo.KINDS for backend in kind.checked} == set(DEFAULT_BACKENDS)


@pytest.mark.parametrize(("kind", "form", "backend", "cell"), CHECKED)
def test_what_comes_out_is_what_the_tables_say(
    kind: str, form: str, backend: str, cell: str, subject_named: Callable[[str], Subject]
) -> None:
    result, text = outcome_of(subject_named(kind), backend, forms(zoo.BY_NAME[kind])[form])

    expected, _, detail = cell.partition(": ") if cell.startswith(("failed", "mismatch")) else (cell, "", "")
    assert result == expected, text
    assert plain(detail) in plain(text)
