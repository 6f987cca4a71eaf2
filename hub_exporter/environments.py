"""Where the stages of a job run: in this Python, or in an environment made from the locked pins of its backend.

Environments are made once, under a name that says what decides their content, and are shared by all jobs and all runs.
They hold the packages and not hub-exporter: the package that runs is handed to them by a folder with a link to it, so
that a checkout, an installed wheel and a change of either all use the environment that is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from hub_exporter import installer, pins
from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import HubExporterError
from hub_exporter.records import Toolchain

NOT_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that would bring packages of the user into an isolated environment."""


@dataclass(frozen=True)
class Environment:
    """A Python that stage processes are started with."""

    python: str
    packages: Path | None = None
    """Its site-packages; `None` for the one that runs this."""
    link: Path | None = None
    """Folder that holds nothing but `hub_exporter`."""

    def command(self) -> list[str]:
        """How a module of hub-exporter is run in it: nothing in the current folder is taken for a module."""
        return [self.python, "-P"] if self.link else [self.python]

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment variables of a process in it."""
        if self.link is None:
            return dict(environ)
        return {key: value for key, value in environ.items() if key not in NOT_OURS} | {"PYTHONPATH": str(self.link)}

    def versions(self) -> dict[str, str]:
        """Package -> version, of all that is installed in it."""
        found = importlib.metadata.distributions(path=sys.path if self.packages is None else [str(self.packages)])
        return {pins.normalized(one.name): one.version for one in found if one.name}

    def engine(self) -> Path:
        """Folder of its `transformers.exporters`."""
        return pins.engine_source() if self.packages is None else self.packages / "transformers" / "exporters"


CURRENT = Environment(sys.executable)
"""The one that runs this."""


def wanted(asked: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether jobs are isolated: when it is asked for, and on GitHub always."""
    return asked or environ.get("GITHUB_ACTIONS") == "true"


def root() -> Path:
    """Where environments are kept. Deleting it costs nothing but the time to make them again."""
    return installer.cache() / "environments"


def isolated(backend: str, link: Path) -> Environment:
    """The environment of a backend's pins, made if it is not there. Raises HubExporterError.

    `link` is what `linked` gave.
    """
    cuda = BACKENDS[backend].runner == "linux-cuda"
    ready = root() / name_of(backend, cuda)
    if not works(ready):
        _make(ready, backend, cuda)
    (packages,) = ready.glob("lib/python*/site-packages")
    return Environment(str(ready / "bin" / "python"), packages, link)


def name_of(backend: str, cuda: bool) -> str:
    """Of its folder: the pins, what decides which builds they give, and the Python."""
    decisive = json.dumps([pins.digest(backend), sorted(installer.settings(cuda).items())])
    key = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    return f"{key}-{sys.implementation.cache_tag}-{sysconfig.get_platform()}"


def works(folder: Path) -> bool:
    """Whether there is an environment whose Python still exists: it is renamed into place when it is whole."""
    return (folder / "bin" / "python").exists()


def _make(ready: Path, backend: str, cuda: bool) -> None:
    """Make an environment aside and rename it. Of several processes that want the same one, the first makes it."""
    try:
        with _alone(ready), installer.scratch(ready.parent, ready.name) as aside:
            if works(ready):
                return
            if ready.exists():  # its Python was removed
                ready.rename(aside / "broken")
            installer.make_environment(aside / "made", *pins.files(backend), cuda)
            (aside / "made").rename(ready)
    except OSError as error:
        hint = "Name a folder that can be written with `HUB_EXPORTER_CACHE`"
        raise HubExporterError(f"The environment of `{backend}` cannot be made: {error}", hint=hint) from error
    except HubExporterError as error:
        raise HubExporterError(f"The environment of `{backend}` cannot be made. {error}", hint=error.hint) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else makes this folder. The lock ends with its process, however that ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        yield


def linked(folder: Path) -> Path:
    """A folder in `folder` that gives an isolated Python this hub_exporter, and nothing that lies beside it."""
    place = folder / "package"
    place.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (place / "hub_exporter").symlink_to(Path(__file__).parent, target_is_directory=True)
    return place


def released_engine(version: str) -> Path:
    """Folder of `transformers.exporters` of a release, fetched on first use. Raises HubExporterError."""
    ready = installer.cache() / "engines" / version
    if ready.is_dir():
        return ready
    with _alone(ready), installer.scratch(ready.parent, version) as aside:
        if not ready.is_dir():
            installer.unpack(f"transformers=={version}", aside)
            source = aside / "transformers" / "exporters"
            if not source.is_dir():
                raise HubExporterError(f"transformers {version} has no exporters", hint="They came with 5.13")
            source.rename(ready)
    return ready


def toolchain(backend: str, environment: Environment) -> Toolchain:
    """What was locked, what the engine was tested with, and what is installed for a backend."""
    installed = environment.versions()
    named = {}
    with contextlib.suppress(HubExporterError):  # an engine that says it differently can still export
        named = pins.tested(environment.engine())
    tested = pins.expected(named.get(backend, ()))
    lock = pins.locked(backend)
    shown = [name for name in {**pins.direct(backend), **tested} if name in lock or name in installed]
    return Toolchain(
        pins=pins.digest(backend),
        isolated=environment.link is not None,
        locked={name: lock[name] for name in shown if name in lock},
        tested={name: tested[name] for name in shown if name in tested},
        ran={name: installed[name] for name in shown if name in installed},
    )


def drift(found: Toolchain) -> Iterator[str]:
    """What runs and is not what is locked, a package each: `torch 2.12.1 instead of 2.13.0`.

    Another build of the same version (`2.13.0+cpu`) is none; the engine takes it for the same too.
    """
    for name, version in found.locked.items():
        ran = found.ran.get(name)
        if ran is None:
            yield f"no {name} instead of {version}"
        elif ran.partition("+")[0] != version:
            yield f"{name} {ran} instead of {version}"
