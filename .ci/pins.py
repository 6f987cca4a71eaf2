"""Renew `pins/`, and the locks of the clients' environments in the tests: `make pins`.

Direct packages move to the newest release that is past the cool-down, but for those that the engine names (what it was
tested with decides about them) and those that a comment `# held: ` holds: they move by hand, and so do the clients.
With `--engine` the engine moves too, to its newest release, and with it what that was tested with. Then every lock is
compiled anew and the diff is printed.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hub_exporter import environments, installer, pins
from hub_exporter.catalogue import BACKENDS

ROOT = Path(__file__).parents[1]
PINS = ROOT / "pins"
CLIENTS = ROOT / "tests" / "clients" / "environments"

COOL_DOWN = 7
"""Days that a release must be old: most bad ones are found and withdrawn within them."""


def main() -> None:
    """Renew the files in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the direct packages as they are, and only compile")
    parser.add_argument("--engine", action="store_true", help="move the engine as well, and what it was tested with")
    chosen = parser.parse_args()
    os.environ.pop("HUB_EXPORTER_PINS", None)
    before = contents()
    until = f"{datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=COOL_DOWN):%Y-%m-%d}"
    if not chosen.keep:
        move_direct(until)
    if chosen.engine:
        move_engine(installer.newest(["transformers"], until)["transformers"])
    for source in sorted(PINS.glob("*.in")):
        lock = source.with_suffix(".txt")
        if source.stem in BACKENDS:
            lock.write_text(installer.compile_lock(source, until, hashes=False), "utf-8")
        elif lock.exists():  # what the Actions start from; the others are included by these, or have no lock
            lock.write_text(installer.compile_lock(source, until, hashes=True), "utf-8")
    os.environ["UV_EXCLUDE"] = str(CLIENTS / "excluded.txt")
    for source in sorted(CLIENTS.glob("*.in")):
        source.with_suffix(".txt").write_text(installer.compile_lock(source, until, hashes=False), "utf-8")
    sys.stdout.writelines(diff(before, contents()))


def move_direct(until: str) -> None:
    """Write the newest versions into the `.in` files."""
    named = {entry.package for entries in pins.tested(pins.engine_source()).values() for entry in entries}
    files = sorted(PINS.glob("*.in"))
    newest = installer.newest(sorted({name for file in files for name in pins.pinned(file)} - named), until)
    for file in files:
        rewrite(file, newest)


def move_engine(version: str) -> None:
    """Write a release of the engine into the `.in` files, and what it was tested with, but for what differs from that
    on purpose or was tested in more versions than one."""
    for backend, named in pins.tested(environments.released_engine(version)).items():
        deliberate = {one.package for one in pins.differences() if backend in one.backends}
        tested = {name: versions[0] for name, versions in pins.expected(named).items() if len(versions) == 1}
        rewrite(PINS / f"{backend}.in", {name: v for name, v in tested.items() if name not in deliberate})
    for file in PINS.glob("*.in"):
        rewrite(file, {"transformers": version})


def rewrite(file: Path, versions: Mapping[str, str]) -> None:
    """Write these versions into an `.in` file."""
    lines = [moved(line, versions) for line in file.read_text("utf-8").splitlines()]
    file.write_text("\n".join(lines) + "\n", "utf-8")


def moved(line: str, newest: Mapping[str, str]) -> str:
    """A line of an `.in` file with its version renewed, unless a comment holds it."""
    name, exact, _ = line.partition("==")
    version = newest.get(pins.normalized(name)) if exact and "# held: " not in line else None
    return f"{name}=={version}" if version else line


def contents() -> dict[str, list[str]]:
    """The lines of every file, by its path."""
    files = sorted(file for folder in (PINS, CLIENTS) for kind in ("*.in", "*.txt") for file in folder.glob(kind))
    return {file.relative_to(ROOT).as_posix(): file.read_text("utf-8").splitlines(keepends=True) for file in files}


def diff(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[str]:
    """What changed, as `diff -u` shows it, digests left out."""
    for name, lines in after.items():
        old, new = ([line for line in text if "--hash=" not in line] for text in (before.get(name, []), lines))
        yield from difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=0)


if __name__ == "__main__":
    main()
