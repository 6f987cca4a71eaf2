"""The only module that talks: progress, tables, messages, annotations and summaries on stderr; data on stdout."""

from __future__ import annotations

import os
import platform
import secrets
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hub_exporter import __version__, github, wording
from hub_exporter.errors import HubExporterError
from hub_exporter.progress import STYLES, LiveProgress, PlainProgress, Progress
from hub_exporter.records import (
    Change,
    Event,
    Finding,
    Job,
    JobResult,
    ModelReport,
    Plan,
    Record,
    Reproduction,
    ResolvedModel,
    Survey,
    to_json,
)

WIDE = 240
"""Columns of a log: tables are not folded there."""


LOG_LINES = 200
"""Of a job that did not pass, on GitHub Actions, where nobody can open a file of the runner."""


class Report:
    """Tells one person, or one log, what happens.

    `quiet` leaves errors and what did not pass. `environ` is asked only for what GitHub Actions sets.
    """

    def __init__(self, *, quiet: bool = False, environ: Mapping[str, str] = os.environ):
        self._quiet = quiet
        self._on_github = environ.get("GITHUB_ACTIONS") == "true"
        self._summary = environ.get("GITHUB_STEP_SUMMARY")
        self._outputs = environ.get("GITHUB_OUTPUT")
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal and not self._on_github
        if not self._live and not self._console.is_terminal:
            self._console = Console(stderr=True, highlight=False, markup=False, emoji=False, width=WIDE)

    def line(self, text: str, style: str = "", indent: str = "") -> None:
        """One line, whatever foreign text it holds."""
        self._print(indent + wording.one_line(text), style)

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(github.harmless(line) if self._on_github else line, style), soft_wrap=True)

    def data(self, records: Record | Sequence[Record]) -> None:
        """Records as JSON on stdout."""
        self.text(to_json(records if isinstance(records, Record) else list(records)).decode())

    def text(self, text: str) -> None:
        """Data on stdout, which holds nothing else."""
        sys.stdout.write(text)
        sys.stdout.flush()

    # ── Before and while it runs ──

    def begin(self, model: ResolvedModel, jobs: Sequence[Job], target: str) -> None:
        """What is about to be done for one model."""
        if self._quiet:
            return
        task = f"{model.task} (from {model.task_origin})"
        self.line(f"{model.source}: {task}, {wording.plural(len(jobs), 'job')}, to {target}", "bold")

    @contextmanager
    def progress(self, jobs: Sequence[str]) -> Iterator[Progress]:
        """Shows the events of one model's jobs."""
        made: Progress
        if self._quiet:
            made = _Silent()
        elif self._live:
            made = LiveProgress(self._console, jobs)
        else:
            made = PlainProgress(self._console, on_github=self._on_github)
        with made:
            yield made

    # ── Afterwards ──

    def finish(self, reports: Sequence[ModelReport]) -> None:
        """The final table, then what did not pass and why; on GitHub Actions annotations, the step summary and the
        outputs of the step too."""
        self.results([result for report in reports for result in report.results])
        for report in reports:
            self._written(report)
        if reports:
            _append(self._summary, github.summary(reports))
            self.outputs(github.results(reports))

    def results(self, results: Sequence[JobResult]) -> None:
        """How jobs ended: a table, and what did not pass and why."""
        if results and not self._quiet:
            self._console.print(_results_table(results))
        for result in results:
            if result.status not in ("passed", "current"):
                self._not_passed(result)

    def outputs(self, values: Mapping[str, str]) -> None:
        """What later steps of a workflow read, by name."""
        _append(self._outputs, "".join(github.output(*value, secrets.token_hex(16)) for value in values.items()))

    def _not_passed(self, result: JobResult) -> None:
        self.line(f"{result.job} {result.status}: {result.reason}", STYLES[result.status])
        for name, text in (("hint", result.hint), ("log", result.log)):
            if text:
                self.line(f"{name}: {text}", indent="  ")
        if result.status != "skipped":
            self.annotate(f"{result.job} {result.status}", result.reason, result.hint)
        if self._on_github and result.log and Path(result.log).is_file():
            self._console.print(Text(github.group(f"Log of {result.job}")), soft_wrap=True)
            self._verbatim(Path(result.log).read_text("utf-8", "replace").splitlines()[-LOG_LINES:])
            self._console.print(github.ENDGROUP)

    def _written(self, report: ModelReport) -> None:
        publication = report.publication
        if self._quiet or publication is None:
            if not self._quiet:
                self.line(f"{report.source}: nothing was written to {report.target}")
            return
        if publication.dry_run:
            self._console.print(_changes_table(publication.files))
        self.line(f"{report.source}: {wording.publication(publication, report.target)}")
        if publication.url:
            self.line(publication.url, indent="  ")

    # ── Errors ──

    def error(self, error: HubExporterError, source: str | None = None) -> None:
        """What stopped the command, or one of its models."""
        message = f"{source}: {error}" if source and source not in str(error) else str(error)
        self.line(f"error: {message}", "red")
        if error.hint:
            self.line(f"hint: {error.hint}")
        self.annotate("hub-exporter", message, error.hint)

    def crash(self, error: BaseException, command: Sequence[str]) -> None:
        """A bug: a text that can be pasted into an issue. It holds no environment variables."""
        self.line(f"error: hub-exporter stopped at a bug: {type(error).__name__}: {error}", "red")
        self.line("hint: Report it with the text below; read it first, paths and names in it are yours")
        lines = [
            "",
            f"hub-exporter {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {shlex.join(command)}",
            *"".join(traceback.format_exception(error)).splitlines(),
        ]
        self._verbatim(lines)
        self.annotate("hub-exporter", f"Bug: {type(error).__name__}: {error}")

    def _verbatim(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._print("".join(char if char.isprintable() else " " for char in line))

    def annotate(self, title: str, message: str, hint: str | None = None) -> None:
        """On GitHub Actions, an error that stands on the page of the run."""
        if self._on_github:
            command = github.error(title, "\n".join(filter(None, (message, hint))))
            self._console.print(Text(command), soft_wrap=True)

    # ── The plan ──

    def plan(self, plan: Plan, models: Iterable[ResolvedModel]) -> None:
        """What would run, why, and what would not."""
        if self._quiet:
            return
        requests = {request.settings.source: request for request in plan.requests}
        for model in models:
            self.line(f"{model.source}: {model.task} (from {model.task_origin}), {model.architecture}", "bold")
            numbers = f"{model.parameters:,} parameters, {wording.size(model.weight_bytes)}"
            self.line(f"commit {model.commit}, {numbers}", indent="  ")
            settings = requests[model.source].origins if model.source in requests else ()
            for setting in settings:
                self.line(f"{setting.key}: {_shown(setting.value)} (from {setting.origin})", indent="  ")
        if plan.jobs:
            table = _table("job", "runner", "memory", "disk", "time", "target", right=("memory", "disk", "time"))
            for job in plan.jobs:
                row = (job.name, wording.runner(job.runner), *wording.needs(job.needs), job.target)
                table.add_row(*map(_cell, row))
            self._console.print(table)
        for skip in plan.skipped:
            status = "current" if skip.current else "skipped"
            self.line(f"{skip.name} {status}: {skip.reason}", STYLES[status])
        _append(self._summary, github.planned(plan))

    def findings(self, found: Sequence[Finding]) -> None:
        """What is stale and why, what is not, and what could not be read."""
        if not self._quiet and found:
            table = _table("job", "target", "status", "why")
            for finding in found:
                status = Text(finding.status, _FINDINGS[finding.status])
                table.add_row(_cell(finding.job), _cell(finding.target), status, _cell(wording.why(finding)))
            self._console.print(table)
        for finding in found:
            if finding.status == "unknown":
                self.line(f"{finding.target} cannot be judged: {finding.note}", _FINDINGS["unknown"])
                self.annotate(f"{finding.target} cannot be judged", finding.note, None)
        _append(self._summary, github.findings(found))

    # ── The pins ──

    def survey(self, survey: Survey) -> None:
        """Tested, locked and newest packages of each backend, and why a lock is not what was tested."""
        for one in survey.backends:
            self.line(f"{one.backend}: tested by transformers {survey.engine}, pins {one.pins[:12]}", "bold")
            table = _table("package", "tested", "locked", "newest")
            for package in one.packages:
                others = ", ".join(package.quantizers)
                tested = ", ".join(package.tested) + (f" (quantizers: {others})" if others else "")
                table.add_row(*map(_cell, (package.package, tested, package.locked or "", package.newest or "")))
            self._console.print(table)
            for package in one.packages:
                if package.reason:
                    self.line(f"{package.package} {package.locked}: {package.reason}", indent="  ")
            for channel, versions in one.channels.items():
                pairs = ", ".join(f"{name} {version}" for name, version in versions.items())
                self.line(f"channel {channel}: {pairs}", indent="  ")
        if survey.unknown:
            self.line(f"The newest versions are not known: {survey.unknown}", "yellow")

    def reproductions(self, found: Sequence[Reproduction]) -> None:
        """Which rebuilt files are the published ones, and where the others differ first."""
        for one in found:
            if one.status == "same":
                if not self._quiet:
                    self.line(f"{one.job}: byte for byte the same", "green")
                continue
            text = f"{one.job} {one.status}: {one.file}{' ' if one.file else ''}{one.difference}"
            self.line(text, "red")
            self.annotate(f"{one.job} {one.status}", text, None)


_FINDINGS = {"current": "green", "stale": "yellow", "unknown": "red"}


class _Silent:
    """Progress of a quiet run."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def event(self, event: Event) -> None:
        """Say nothing."""


def _append(path: str | None, text: str) -> None:
    """To one of the files that GitHub Actions reads after the step."""
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def _results_table(results: Iterable[JobResult]) -> Table:
    table = _table("job", "outcome", "level", "size", "agreement", "time", right=("size", "time"))
    for result in results:
        passed = result.status == "passed"
        size = wording.size(sum(artifact.size for artifact in result.artifacts)) if passed else ""
        level = result.verification.level if passed and result.verification else ""
        time = wording.duration(result.seconds) if result.seconds else ""
        agreement = wording.agreement(result.verification)
        outcome = Text(result.status, STYLES[result.status])
        table.add_row(_cell(result.job), outcome, _cell(level), _cell(size), _cell(agreement), _cell(time))
    return table


def _changes_table(files: Iterable[Change]) -> Table:
    table = _table("file", "change", "size", right=("size",))
    for change in files:
        table.add_row(_cell(change.path), _cell(change.kind), _cell(wording.size(change.size)))
    return table


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return table


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _cell(text: str) -> Text:
    return Text(wording.one_line(text))
