"""Progress of one model's jobs: a table that renews itself in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hub_exporter import github, wording
from hub_exporter.records import Event

STYLES = {"passed": "green", "mismatch": "bold red", "failed": "red", "skipped": "yellow", "current": "green"}
"""Outcome -> colour; the word itself is always there."""


class Progress(Protocol):
    """Told of every event while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def event(self, event: Event) -> None:
        """Show one line of progress."""


@dataclass
class _Row:
    label: str
    state: str = "waiting"
    style: str = "dim"
    since: float | None = None
    """Clock when the job began, while it runs."""
    seconds: float | None = None
    """How long it took, once it has ended."""

    def elapsed(self) -> str:
        seconds = self.seconds if self.since is None else time.monotonic() - self.since
        return "" if seconds is None else wording.duration(seconds)


class LiveProgress:
    """For a terminal: one row per job, gone when the model is done (the final table stays)."""

    def __init__(self, console: Console, jobs: Sequence[str]):
        self._console = console
        self._rows = {job: _Row(job) for job in jobs}
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def event(self, event: Event) -> None:
        """Renew the row of the event's job; a note goes above the table and stays."""
        if event.kind == "note":
            self._console.print(Text(wording.one_line(f"{event.job}: {event.text}")))
            return
        row = self._rows.setdefault(event.job, _Row(event.job))
        if event.kind == "end":
            outcome = event.status or "done"
            row.state, row.style, row.since, row.seconds = outcome, STYLES.get(outcome, ""), None, event.seconds
        else:
            if event.kind == "start" and event.text not in ("", event.job):
                row.label = f"{event.job}: {event.text}"
            row.state, row.style = wording.one_line(event.text) if event.kind == "step" else "starting", "cyan"
            row.since = time.monotonic() - event.seconds

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", min_width=12)
        table.add_column(no_wrap=True, justify="right")
        for row in self._rows.values():
            table.add_row(Text(wording.one_line(row.label)), Text(row.state, row.style), Text(row.elapsed()))
        return table


class PlainProgress:
    """For logs: a line per event, without times that would differ from run to run; foldable on GitHub Actions."""

    def __init__(self, console: Console, *, on_github: bool):
        self._console = console
        self._on_github = on_github
        self._open: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def event(self, event: Event) -> None:
        """Print the event."""
        if event.job != self._open:
            self._close()
            self._open = event.job
            if self._on_github:
                self._print(github.group(wording.one_line(event.job)))
        if event.kind != "start":
            text = event.status or "done" if event.kind == "end" else event.text
            line = wording.one_line(f"{event.job}: {text}")
            self._print(github.harmless(line) if self._on_github else line)
        if event.kind == "end":
            self._close()

    def _close(self) -> None:
        if self._open is not None and self._on_github:
            self._print(github.ENDGROUP)
        self._open = None

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
