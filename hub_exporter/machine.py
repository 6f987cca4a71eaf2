"""What this machine is and has. Everything that a plan weighs is told to it from here."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from hub_exporter.catalogue import Machine

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container's memory is said, in the two versions of control groups."""


def this_machine() -> Machine:
    """What kind of machine this is, for the backends that need one of a kind."""
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
