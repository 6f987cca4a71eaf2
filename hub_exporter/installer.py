"""The only door to uv: it finds packages, installs them, and knows the user's indexes, wheels and credentials.

Its own settings (`UV_...`) decide; those of pip stand in where it has none.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hub_exporter import pins
from hub_exporter.errors import HubExporterError
from hub_exporter.secrecy import without_secrets

AS_IN_PIP = {
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
}
"""Setting of pip -> what uv calls it."""

SOURCES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
"""Settings that say where packages come from."""

DECISIVE = (*SOURCES, "UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE")
"""Settings that may decide which build of a package is installed."""

OLDEST = "3.11"
"""The oldest Python that we support: what a lock and the newest versions are good for."""


def cache() -> Path:
    """Where what we make of packages is kept: `HUB_EXPORTER_CACHE`, or a folder in the user's cache."""
    return Path(os.environ.get("HUB_EXPORTER_CACHE") or Path.home() / ".cache" / "hub-exporter").absolute()


def settings(cuda: bool = False, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What decides which builds are installed.

    Without any word about where packages come from, Linux gets CPU builds of torch unless `cuda` is wanted: PyPI's come
    with several gigabytes of CUDA. They are asked for at download.pytorch.org, where any index can be replaced.
    """
    chosen = {uv_name: environ[name] for name, uv_name in AS_IN_PIP.items() if environ.get(name)}
    chosen |= {name: environ[name] for name in DECISIVE if environ.get(name)}
    if "UV_FIND_LINKS" in chosen:  # uv is not run in the current folder
        places = chosen["UV_FIND_LINKS"].split(",")
        chosen["UV_FIND_LINKS"] = ",".join(str(Path(one).absolute()) if Path(one).is_dir() else one for one in places)
    if sys.platform == "linux" and not cuda and not {*SOURCES, "UV_TORCH_BACKEND"} & set(chosen):
        chosen["UV_TORCH_BACKEND"] = "cpu"
    return chosen


def newest(packages: Iterable[str], until: str | None = None) -> dict[str, str]:
    """Package -> its newest release in the user's index, older than the day `until` (`2026-11-23`) if one is given.

    Raises HubExporterError; without a network too.
    """
    command = ["pip", "compile", "--no-deps", "--no-annotate", "--no-header", "--universal"]
    command += ["--python-version", OLDEST, "--fork-strategy", "fewest"]
    command += [*(["--exclude-newer", until] if until else []), "-"]
    return pins.pins_in(_uv(command, settings(cuda=True), "\n".join(packages)).splitlines())


def compile_lock(source: Path, until: str, hashes: bool) -> str:
    """Text of the lock of an `.in` file, for every platform and every Python that we support.

    One version of each package, none of them newer than the day `until`; without local wheels and without a choice
    of torch builds, for a lock is for everybody. Raises HubExporterError.
    """
    command = ["pip", "compile", "--universal", "--fork-strategy", "fewest", "--python-version", OLDEST]
    command += ["--exclude-newer", until, *(["--generate-hashes"] if hashes else []), source.name]
    local = {name: "" for name in DECISIVE if name not in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")}
    return _uv(command, {**local, "UV_CUSTOM_COMPILE_COMMAND": "make pins"}, cwd=source.parent)


def make_environment(folder: Path, direct: Path, lock: Path, cuda: bool) -> None:
    """Make an environment in `folder`, for the Python that runs this, with these pins. Raises HubExporterError.

    It can be moved afterwards.
    """
    _uv(["venv", "--relocatable", "--no-project", "--python", sys.executable, str(folder)], {})
    python = str(folder / "bin" / "python")
    _uv(["pip", "install", "--python", python, "-r", str(direct), "-c", str(lock)], settings(cuda))


def unpack(requirement: str, folder: Path) -> None:
    """Put one package into `folder`, without what it depends on. Raises HubExporterError."""
    _uv(["pip", "install", "--no-deps", "--target", str(folder), requirement], settings())


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent`, so that what is made in it can be renamed into `parent`; gone afterwards.

    So are those that were left by processes that died while they made the same: one makes `name` at a time.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for dead in parent.glob(f".making-{name}-*"):
        shutil.rmtree(dead, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".making-{name}-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def find() -> str:
    """Path of uv: our dependency, else one on PATH. Raises HubExporterError where there is none."""
    with contextlib.suppress(ImportError, FileNotFoundError):
        import uv

        return str(uv.find_uv_bin())
    found = shutil.which("uv")
    if found is None:
        raise HubExporterError("uv cannot be found", hint="Install it: `pip install uv`")
    return found


def _uv(arguments: list[str], chosen: Mapping[str, str], text: str = "", cwd: Path | None = None) -> str:
    """What uv writes to stdout. It gets its own credentials, and no other secret: packages run code to be built."""
    own = {key: value for key, value in os.environ.items() if key.startswith("UV_")}
    environment = {**without_secrets(os.environ), **own, **chosen}
    environment = {key: value for key, value in environment.items() if value}  # uv takes an empty one for a value
    try:
        done = subprocess.run(
            [find(), *arguments, "--quiet", "--no-progress"],
            input=text,
            env=environment,
            cwd=cwd or tempfile.gettempdir(),  # not the user's: a pyproject.toml there has settings of uv too
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise HubExporterError(f"uv cannot be started: {error}", hint="Install it: `pip install uv`") from error
    if done.returncode:
        raise explained(done.stderr)
    return done.stdout


CAUSES = (
    ("No space left on device", "The disk is full", "Free some space, or set `HUB_EXPORTER_CACHE` and `UV_CACHE_DIR`"),
    ("network was disabled", "uv was told to work offline", "Unset `UV_OFFLINE`, or fill uv's cache first"),
    ("Failed to fetch", "The package index cannot be reached", "Check the network, `UV_DEFAULT_INDEX` and `UV_INDEX`"),
    (
        "No solution found",
        "The packages cannot be found",
        "Check `UV_DEFAULT_INDEX`, `UV_INDEX` and `UV_FIND_LINKS`",
    ),
)
"""Sign in what uv says -> what happened, and what to do about it."""


def explained(said: str) -> HubExporterError:
    """uv's own words as an error, with its last cause for a message."""
    lines = [line.strip().removeprefix("cause: ").removeprefix("error: ") for line in said.splitlines()]
    told = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    last = told[-1][:400] if told else "it said nothing"
    for sign, what, hint in CAUSES:
        if sign in said:
            return HubExporterError(f"{what}: {last}", hint=hint)
    return HubExporterError(f"uv failed: {last}", hint="Run it by hand on the same pins to see all that it says")
