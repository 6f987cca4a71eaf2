"""What tests make once on a machine and keep: real models, environments of clients.

`HUB_EXPORTER_TEST_CACHE` puts it elsewhere than `~/.cache/hub-exporter-tests`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import filelock
import pytest


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder of the cache that `make` fills, on the first call of this machine.

    It is filled beside its place and moved there, so that what was killed half-way leaves nothing that looks whole.
    """
    cache = Path(os.environ.get("HUB_EXPORTER_TEST_CACHE") or Path.home() / ".cache" / "hub-exporter-tests")
    target = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{target}.lock"):  # pytest-xdist: the other workers wait for the first
        if not target.is_dir():
            staging = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache))
            try:
                make(staging)
                staging.rename(target)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return target


def unavailable(message: str) -> NoReturn:
    """Skips the test with this reason; in CI (`CI` is set), where everything has to be there, it fails."""
    if os.environ.get("CI"):
        raise RuntimeError(message)
    pytest.skip(message)
