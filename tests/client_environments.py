"""The environment of each client, as its users install it.

`clients/environments/<name>.in` says what a user asks pip for, and the `.txt` beside it has the exact versions that
come with it. Made by uv (npm, for the one in Node) in a second or a few, and kept until one of the two files changes.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from made_once import made_once, unavailable

from hub_exporter import installer
from hub_exporter.errors import HubExporterError

CLIENTS = Path(__file__).parent / "clients"
ENVIRONMENTS = CLIENTS / "environments"
NODE = CLIENTS / "node"
EXCLUDED = ENVIRONMENTS / "excluded.txt"
"""Packages that a client asks for and does not need here."""


@functools.cache
def python(name: str) -> Path:
    """The interpreter of a client's environment."""
    files = [ENVIRONMENTS / f"{name}.in", ENVIRONMENTS / f"{name}.txt", EXCLUDED]

    def make(folder: Path) -> None:
        with mock.patch.dict(os.environ, {"UV_EXCLUDE": str(EXCLUDED)}):
            installer.make_environment(folder, *files[:2], cuda=False)

    return _made(name, files, make) / "bin" / "python"


@functools.cache
def node_modules() -> Path:
    """The packages that the scripts for Node import."""
    if not (shutil.which("node") and shutil.which("npm")):
        unavailable("transformers.js runs in Node, and there is no `node` or no `npm` on this machine")
    files = [NODE / "package.json", NODE / "package-lock.json"]

    def make(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        # Without install scripts, of which one downloads a CUDA library.
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)

    return _made("node", files, make) / "node_modules"


def _made(name: str, files: list[Path], make: Callable[[Path], None]) -> Path:
    content = b"\0".join([sys.version.encode(), *(file.read_bytes() for file in files)])
    try:
        return made_once(f"client-{name}-{hashlib.sha256(content).hexdigest()[:12]}", make)
    except (HubExporterError, subprocess.CalledProcessError) as error:
        unavailable(f"The environment of the client `{name}` cannot be made: {error} {getattr(error, 'stderr', '')}")
