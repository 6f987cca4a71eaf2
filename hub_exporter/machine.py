"""What this machine is and has. Everything that a plan weighs is told to it from here."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from hub_exporter.catalogue import Machine
from hub_exporter.errors import UsageError

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's memory is said, in the two versions of control groups."""


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """What kind of machine this is, for the backends that need one of a kind.

    `HUB_EXPORTER_MACHINE` says it where it cannot be seen, as in a container. Raises UsageError for an unknown kind.
    """
    told = environ.get("HUB_EXPORTER_MACHINE")
    for kind in get_args(Machine):
        if kind == told:
            return cast(Machine, kind)
    if told:
        kinds = ", ".join(f"`{kind}`" for kind in get_args(Machine))
        raise UsageError(f"HUB_EXPORTER_MACHINE: there is no kind `{told}` of machine", hint=f"It is one of {kinds}")
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "macos-arm64"
    return "linux-cuda" if Path("/proc/driver/nvidia/version").exists() else "linux-cpu"


def memory() -> int:
    """Bytes of memory: of the machine, or of the container where that has less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # not there, or `max`
            sizes.append(int(Path(limit).read_text("ascii")))
    return min(sizes)
