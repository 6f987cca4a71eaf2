"""What GitHub Actions reads: workflow commands for its log, Markdown for the summary of a step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hub_exporter import wording
from hub_exporter.records import JobResult, ModelReport


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


def summary(reports: Sequence[ModelReport]) -> str:
    """The step summary: per model the jobs, the files with sizes and digests, and what did not pass."""
    return "\n".join(_model_summary(report) for report in reports)


def _model_summary(report: ModelReport) -> str:
    written = f" → {wording.code(report.target)}" if report.written else ", nothing written"
    lines = [f"### {wording.inline(report.source)}{written}", ""]
    lines += _table(("job", "outcome", "level", "size", "agreement", "time"), map(_job_row, report.results))
    files = [artifact for result in report.results for artifact in result.artifacts]
    if files and report.written:
        rows = ((wording.code(file.path), wording.size(file.size), wording.code(file.sha256)) for file in files)
        lines += ["", *_table(("file", "size", "sha256"), rows)]
    lost = [result for result in report.results if result.status != "passed"]
    lines += ["", *(f"- {wording.code(r.job)}, {r.status}: {wording.prose(r.reason)}" for r in lost)] if lost else []
    return "\n".join([*lines, ""])


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
