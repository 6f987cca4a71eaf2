"""What newer packages change: `python .ci/upstream.py BEFORE.json AFTER.json`, two results of `export --json`.

Writes Markdown to stdout: a row for each job, with what it was before and what it is now.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hub_exporter import wording
from hub_exporter.records import JobResult, ModelReport

HEAD = ("job", "level", "agreement", "largest difference", "size", "export and check", "one run")


def main() -> None:
    """Compare the two files; one that is missing or empty counts as nothing."""
    before, after = (results(Path(path)) for path in sys.argv[1:3])
    sys.stdout.write(report(before, after))


def results(path: Path) -> dict[str, JobResult]:
    """Job -> its result, of what `export --json` wrote."""
    try:
        reports = msgspec.json.decode(path.read_bytes(), type=tuple[ModelReport, ...])
    except (OSError, msgspec.DecodeError):
        return {}
    return {result.job: result for report in reports for result in report.results}


def report(before: dict[str, JobResult], after: dict[str, JobResult]) -> str:
    """The canary in Markdown."""
    names = list(dict.fromkeys([*before, *after]))
    if not names:
        return "The examples could not be exported, with the locked packages or with the newer ones: see the log.\n"
    rows = [row(name, before.get(name), after.get(name)) for name in names]
    lost = [
        f"- {wording.code(name)} {after[name].status}: {wording.prose(after[name].reason)}"
        for name in names
        if name in after and after[name].status != "passed"
    ]
    lines = [table_row(HEAD), table_row(["---"] * len(HEAD)), *map(table_row, rows), *([""] if lost else []), *lost]
    return "\n".join(
        ["The examples, exported and checked with the locked packages → with the newer ones:", "", *lines, ""]
    )


def row(name: str, before: JobResult | None, after: JobResult | None) -> list[str]:
    """One job; what is the same is said once."""
    return [wording.code(name), *map(change, figures(before), figures(after))]


def figures(result: JobResult | None) -> Sequence[str]:
    """What is compared of a job, in words."""
    if result is None:
        return ["not run", *[""] * 5]
    checked = result.verification
    if result.status != "passed" or checked is None:
        return [result.status, *[""] * 5]
    difference = wording.max_difference(checked)
    return [
        checked.level,
        wording.tokens(checked) or "",
        "" if difference is None else wording.number(difference),
        wording.size(sum(artifact.size for artifact in result.artifacts)),
        wording.duration(result.seconds),
        "" if checked.latency is None else f"{checked.latency * 1000:.3g} ms",
    ]


def change(old: str, new: str) -> str:
    """`parity`, or `parity → mismatch`."""
    return new if old == new else f"{old or '?'} → {new or '?'}"


def table_row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
