"""One error family: what happened, what to do about it, and the exit code that says which kind it was.

    HubExporterError      1  a bug in hub-exporter or in something below it
    ├── UsageError        2  the recipe or the command line asks for something that does not exist
    ├── SourceError       3  the model repository is missing, broken, unsafe or unsupported
    ├── DatasetError      4  the rows are missing or do not make a capture set
    ├── TargetError       5  the target cannot be written: rights, a full disk, somebody else's files
    └── HubError          8  the Hub did not answer, or refused

The outcomes of jobs are values, not exceptions: a run in which jobs failed ends with 6, one in which a written file
disagrees with its model with 7 (see `ExitCode`).
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process's exit status means; the README's table is checked against this one."""

    OK = 0
    """Everything that was asked for was written and verified."""
    INTERNAL = 1
    """A bug: the report that was printed belongs in an issue."""
    USAGE = 2
    """The recipe or the command line is wrong."""
    SOURCE = 3
    """The model cannot be exported as it is: missing, broken, unsafe or unsupported."""
    DATASET = 4
    """The rows are missing, or do not make a representative capture set."""
    TARGET = 5
    """The target cannot be written."""
    FAILED = 6
    """At least one job failed: its export or its verification could not be finished."""
    MISMATCH = 7
    """At least one written file disagrees with its model; such a file is never kept."""
    HUB = 8
    """The Hub did not answer, or refused."""
    STALE = 9
    """`check`: at least one published job is stale, or was never published."""
    DIFFERENT = 10
    """`reproduce`: at least one rebuilt file is not byte for byte the published one."""
    INTERRUPTED = 130
    """Ctrl-C."""


class HubExporterError(Exception):
    """Something that stops the command. `str()` is the message; `hint` says what to do next."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str | None = None):
        super().__init__(message)
        self.hint = hint


class UsageError(HubExporterError):
    """The recipe or the command line asks for something that does not exist."""

    exit_code = ExitCode.USAGE


class SourceError(HubExporterError):
    """The model repository is missing, broken, unsafe or unsupported."""

    exit_code = ExitCode.SOURCE


class DatasetError(HubExporterError):
    """The rows are missing, or do not make a representative capture set."""

    exit_code = ExitCode.DATASET


class TargetError(HubExporterError):
    """The target cannot be written."""

    exit_code = ExitCode.TARGET


class HubError(HubExporterError):
    """The Hub did not answer, or refused."""

    exit_code = ExitCode.HUB


ERRORS_BY_NAME: dict[str, type[HubExporterError]] = {
    cls.__name__: cls for cls in (HubExporterError, UsageError, SourceError, DatasetError, TargetError, HubError)
}
"""How an error crosses a process boundary: a stage process writes its class name, the parent raises it again."""
