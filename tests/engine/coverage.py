"""The table of docs/coverage.md, made from runs: `make coverage`, or a part of it with `--kinds a,b --backends x`.

Each cell is what a user gets: the job with all that it tries. Cells that are not run keep what they say.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import zoo
from pipeline import Subject, subject

from hub_exporter.attempts import next_job
from hub_exporter.catalogue import DEFAULT_BACKENDS
from hub_exporter.export import ExportError
from hub_exporter.records import StageError

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
HEAD = f"| model | what it stands for | {' | '.join(DEFAULT_BACKENDS)} |"
UNKNOWN = "not run"

Cells = dict[tuple[str, str], str]
"""(kind, backend) -> `parity`, `loaded`, `exported`, `mismatch: ...` or `failed: ...`."""


def documented(page: Path = PAGE) -> Cells:
    """The cells of the table."""
    lines = [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    backends = rows[0][2:]
    return {(row[0], backend): cell for row in rows[2:] for backend, cell in zip(backends, row[2:], strict=True)}


def outcome_of(subject: Subject, backend: str) -> tuple[str, str]:
    """(cell, what it rests on), after everything that a job tries by itself."""
    job = subject.job(backend)
    while True:
        found, error = None, None
        try:
            outcome, files = subject.export_job(job)
            found = subject.verify(backend, outcome, files)
        except ExportError as raised:
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


def cell_of(subject: Subject, backend: str) -> str:
    """One cell: the outcome, and of one that is not `parity` the reason."""
    result, text = outcome_of(subject, backend)
    if result.startswith(("failed", "mismatch")):
        return f"{result}: {plain(text.rpartition(': ')[2])[:80]}"
    return result


def plain(text: str) -> str:
    """Without what means something in a table."""
    return re.sub(r"[`\\|]", "", text)


def table(cells: Cells) -> str:
    """Markdown, in the order of the zoo."""
    lines = [HEAD, "|---" * (2 + len(DEFAULT_BACKENDS)) + "|"]
    for kind in zoo.KINDS:
        row = [cells.get((kind.name, backend), UNKNOWN) for backend in DEFAULT_BACKENDS]
        lines.append(f"| {kind.name} | {kind.about} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def write(cells: Cells, page: Path = PAGE) -> None:
    """Put the table into the page, in the place of the one that is there."""
    text = page.read_text("utf-8")
    page.write_text(re.sub(r"(?m)(^\|.*\n)+", lambda _: table(cells), text, count=1), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(zoo.BY_NAME))
    parser.add_argument("--backends", default=",".join(DEFAULT_BACKENDS))
    parser.add_argument("--write", action="store_true", help="put the cells into docs/coverage.md")
    given = parser.parse_args()
    for kind in given.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            made = subject(kind, Path(folder))
            for backend in given.backends.split(","):
                began = time.process_time()
                cell = cell_of(made, backend)
                sys.stdout.write(f"{kind} {backend}: {cell} ({time.process_time() - began:.0f} s)\n")
                sys.stdout.flush()
                if given.write:
                    write(documented() | {(kind, backend): cell})


if __name__ == "__main__":
    main()
