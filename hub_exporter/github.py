"""What GitHub Actions reads: workflow commands for its log, outputs, Markdown for the summary of a step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hub_exporter import wording
from hub_exporter.records import Finding, JobResult, ModelReport, Plan, Publication


def group(title: str) -> str:
    """Begins a part of the log that can be folded; `ENDGROUP` ends it."""
    return f"::group::{_data(title)}"


ENDGROUP = "::endgroup::"


def error(title: str, message: str) -> str:
    """An annotation on the run; line ends in `message` are kept."""
    return f"::error title={_property(title)}::{_data(message)}"


def harmless(line: str) -> str:
    """A line of the log that the runner cannot take for a command, whatever text a model put into it."""
    shown = line.replace("##[", "## [")
    return f" {shown}".replace("::", ": :", 1) if shown.lstrip().startswith("::") else shown


# ── Outputs ──


def output(name: str, value: str, mark: str) -> str:
    """One output of a step, whatever lines it has; no line of it may be `mark`."""
    return f"{name}<<{mark}\n{value}\n{mark}\n"


RESULT_LIMIT = 200_000
"""Characters of the output `result`. GitHub takes 1 MB of all outputs of a job together, counted in UTF-16."""


def results(reports: Sequence[ModelReport]) -> dict[str, str]:
    """The outputs of a step that published: `result` as JSON, and the pages on the Hub, a line for each target.

    A `result` that would be too long is told without reasons, then without jobs.
    """
    made = [report.publication for report in reports if report.publication and report.publication.url]
    return {
        "result": _short([_result(report) for report in reports]),
        "commit-url": "\n".join(str(one.url) for one in made if one.pull_request is None),
        "pull-request-url": "\n".join(str(one.url) for one in made if one.pull_request is not None),
    }


def _result(report: ModelReport) -> dict[str, Any]:
    made = report.publication or Publication(target=report.target, files=())
    return {
        "source": report.source,
        "target": report.target,
        "error": report.error,
        "commit": made.commit,
        "pull-request": made.pull_request,
        "url": made.url,
        "unchanged": made.unchanged,
        "dry-run": made.dry_run,
        "jobs": [{"job": job.job, "status": job.status, "reason": job.reason} for job in report.results],
    }


def _short(told: list[dict[str, Any]]) -> str:
    """JSON within the limit."""
    for left_out in ((), ("reason", "error"), ("jobs",)):
        text = msgspec.json.encode(_without(told, left_out)).decode()
        if len(text) <= RESULT_LIMIT:
            return text
    return "[]"


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, keys) for key, inner in value.items() if key not in keys}
    return [_without(inner, keys) for inner in value] if isinstance(value, list) else value


# ── The summary ──

SUMMARY_LIMIT = 1_000_000
"""Bytes. GitHub shows nothing at all of a longer one."""


def summary(reports: Sequence[ModelReport]) -> str:
    """The step summary: per model the jobs, the files with sizes and digests, and what did not pass."""
    parts, room = [], SUMMARY_LIMIT
    for report in reports:
        part = _model_summary(report)
        room -= len(part.encode()) + 1
        if room < 0:
            break
        parts.append(part)
    left = len(reports) - len(parts)
    return "\n".join([*parts, *([f"And {wording.plural(left, 'more model')}: see the log.\n"] if left else [])])


def planned(plan: Plan) -> str:
    """The step summary of a plan: its jobs and their runners, what is skipped and why, and what cannot be planned."""
    count = wording.plural(len(plan.jobs), "job") if plan.jobs else "Nothing to export"
    rows = (
        (wording.code(job.name), wording.code(wording.runner(job.runner)), wording.code(job.target))
        for job in plan.jobs
    )
    skips = [f"- {wording.code(skip.name)} skipped: {wording.prose(skip.reason)}" for skip in plan.skipped]
    lost = [f"- {wording.code(one.source)} cannot be exported: {wording.prose(one.message)}" for one in plan.refused]
    table = _table(("job", "runner", "target"), rows) if plan.jobs else []
    lines = [f"### {count}", *([""] if table else []), *table, *([""] if skips or lost else []), *skips, *lost, ""]
    text = "\n".join(lines)
    return text if len(text.encode()) <= SUMMARY_LIMIT else f"### {count}\n\nToo many to list: see the log.\n"


def findings(found: Sequence[Finding]) -> str:
    """What `check` says, for the step summary: a row for each job that is not current."""
    rows = [
        (wording.code(one.job), wording.code(one.target), one.status, wording.inline(wording.why(one)))
        for one in found
        if one.status != "current"
    ]
    text = "\n".join(["", *_table(("job", "target", "status", "why"), rows[:FINDINGS])]) if rows else ""
    more = f"\n\nAnd {wording.plural(len(rows) - FINDINGS, 'more job')}." if len(rows) > FINDINGS else ""
    current = len(found) - len(rows)
    return f"### Published exports\n\n{wording.plural(current, 'job')} of {len(found)} current.\n{text}{more}\n"


FINDINGS = 500
"""Jobs that a summary lists."""


def _model_summary(report: ModelReport) -> str:
    lines = [f"### {wording.inline(report.source)}", "", *_became(report)]
    if report.results:
        head = ("job", "outcome", "level", "size", "agreement", "time")
        lines += ["", *_table(head, map(_job_row, report.results))]
    lost = [result for result in report.results if result.status not in ("passed", "current")]
    lines += ["", *(line for result in lost for line in _lost(result))] if lost else []
    files = [artifact for result in report.results for artifact in result.artifacts]
    if files and report.publication:
        rows = ((wording.code(file.path), wording.size(file.size), wording.code(file.sha256)) for file in files)
        table = _table(("file", "size", "sha256"), rows)
        lines += ["", f"<details><summary>{wording.plural(len(files), 'file')}</summary>", "", *table, "", "</details>"]
    return "\n".join([*lines, ""])


def _became(report: ModelReport) -> list[str]:
    """What became of the target, with a link to it, or what stopped the model."""
    made = report.publication
    lines = [wording.prose(wording.publication(made, f"`{report.target}`"))] if made else []
    if made and made.url:
        lines[0] += f": [{'pull request' if made.pull_request else 'commit'}]({_link(made.url)})"
    if report.error:
        lines += [*([""] if lines else []), f"**Stopped**: {wording.prose(report.error)}"]
    return lines or [f"Nothing was written to {wording.code(report.target)}."]


def _link(url: str) -> str:
    """An address in Markdown: nothing in it ends the link."""
    return "".join(char if char.isalnum() or char in ":/.-_~%?=&#+@" else f"%{ord(char):02X}" for char in url)


def _lost(result: JobResult) -> list[str]:
    lines = [f"- {wording.code(result.job)} {result.status}: {wording.prose(result.reason)}"]
    return [*lines, f"  <br>{wording.prose(result.hint)}"] if result.hint else lines


def _job_row(result: JobResult) -> tuple[str, ...]:
    level = result.verification.level if result.verification and result.status == "passed" else ""
    size = wording.size(sum(artifact.size for artifact in result.artifacts)) if result.artifacts else ""
    time = wording.duration(result.seconds) if result.seconds else ""
    return wording.code(result.job), result.status, level, size, wording.agreement(result.verification), time


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
