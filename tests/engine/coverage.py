"""The tables of docs/coverage.md, made from runs: `make coverage`, or a part with `--kinds a,b --forms components
--backends x`.

Each cell is what a user gets: the job with all that it tries. Cells that are not run keep what they say.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import zoo
from pipeline import Subject, subject

from hub_exporter.attempts import next_job
from hub_exporter.catalogue import DEFAULT_BACKENDS
from hub_exporter.errors import HubExporterError
from hub_exporter.records import StageError
from hub_exporter.tasks import TASKS

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
UNKNOWN = "not run"

ONE_GRAPH, COMPONENTS = FORMS = ("one graph", "components")
"""What a model is made into: its whole forward, or the parts that a client drives. Each has a table, whose head begins
with its name."""

Cells = dict[tuple[str, str, str], str]
"""(kind, form, backend) -> `parity`, `loaded`, `exported`, `mismatch: ...` or `failed: ...`."""

GENERATING = {task.auto_class for task in TASKS.values() if task.layout != "encoder"} - {""}
GENERATING |= {kind.auto_class for kind in zoo.IN_TEXT}
"""Classes of models that answer token after token."""

TWO_ENCODERS = {kind.name for kind in zoo.TWO_ENCODERS}
"""Kinds that have an encoder of pictures and one of texts."""


def forms(kind: zoo.Kind) -> dict[str, dict[str, Any]]:
    """Those that a kind has -> the engine options that ask for them; none for the one that is made by default."""
    if kind.auto_class in GENERATING:
        return {ONE_GRAPH: {"generation": {"cache": "none"}}, COMPONENTS: {}}
    if kind.name in TWO_ENCODERS:
        return {ONE_GRAPH: {}, COMPONENTS: {"separate_encoders": True}}
    return {ONE_GRAPH: {}}


def default(kind: zoo.Kind) -> str:
    """The form that a job makes by itself."""
    return next(form for form, options in forms(kind).items() if not options)


def documented(page: Path = PAGE) -> Cells:
    """The cells of both tables."""
    cells, form, backends = {}, "", []
    for line in page.read_text("utf-8").splitlines():
        name, _, *row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else ("", "")
        if name in FORMS:
            form, backends = name, row
        elif name:
            cells |= {(name, form, backend): cell for backend, cell in zip(backends, row, strict=True)}
    return cells


def outcome_of(subject: Subject, backend: str, options: dict[str, Any]) -> tuple[str, str]:
    """(cell, what it rests on), after everything that a job tries by itself."""
    job = subject.job(backend, **options)
    while True:
        found, error = None, None
        try:
            outcome, files = subject.export_job(job)
            found = subject.verify(backend, outcome, files)
        except HubExporterError as raised:
            error = StageError(kind="HubExporterError", message=str(raised), hint=raised.hint)
        following = next_job(job, error, found)
        if following is None:
            break
        job = following[0]
    if error is not None:
        return "failed" if error.hint else "failed without a hint", error.message
    assert found is not None
    fixed = f" (fixed: {', '.join(outcome.fixed)})" if found.passed and outcome.fixed else ""
    return (found.level if found.passed else "mismatch") + fixed, found.reason


def cell_of(subject: Subject, backend: str, options: dict[str, Any]) -> str:
    """One cell: the outcome, and of one that is not `parity` the reason."""
    result, text = outcome_of(subject, backend, options)
    if result.startswith(("failed", "mismatch")):
        said = text.partition("Error: ")[2] or text.rpartition(": ")[2]
        return f"{result}: {plain(said)[:80]}"
    return result


def plain(text: str) -> str:
    """Without what means something in a table."""
    return re.sub(r"[`\\|]", "", text)


def table(cells: Cells, form: str) -> str:
    """Markdown, in the order of the zoo."""
    lines = [head(form), "|---" * (2 + len(DEFAULT_BACKENDS)) + "|"]
    for kind in zoo.KINDS:
        if form in forms(kind):
            row = [cells.get((kind.name, form, backend), UNKNOWN) for backend in DEFAULT_BACKENDS]
            lines.append(f"| {kind.name} | {kind.about} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def head(form: str) -> str:
    """The first line of a table."""
    return f"| {form} | what it stands for | {' | '.join(DEFAULT_BACKENDS)} |"


def write(cells: Cells, page: Path = PAGE) -> None:
    """Put the tables into the page, in the places of those that are there."""
    text = page.read_text("utf-8")
    for form in FORMS:
        made = table(cells, form)
        text = re.sub(rf"(?m)^{re.escape(head(form))}\n(^\|.*\n)*", lambda _, made=made: made, text, count=1)
    page.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(zoo.BY_NAME))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--backends", default=",".join(DEFAULT_BACKENDS))
    parser.add_argument("--write", action="store_true", help="put the cells into docs/coverage.md")
    given = parser.parse_args()
    for kind in given.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            made = subject(kind, Path(folder))
            chosen = [form for form in forms(zoo.BY_NAME[kind]) if form in given.forms.split(",")]
            for form, backend in itertools.product(chosen, given.backends.split(",")):
                began = time.process_time()
                cell = cell_of(made, backend, forms(zoo.BY_NAME[kind])[form])
                sys.stdout.write(f"{kind}, {form}, {backend}: {cell} ({time.process_time() - began:.0f} s)\n")
                sys.stdout.flush()
                if given.write:
                    write(documented() | {(kind, form, backend): cell})


if __name__ == "__main__":
    main()
