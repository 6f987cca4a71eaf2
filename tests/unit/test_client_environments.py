"""The environments of the clients: locked, and described by `docs/clients.md` as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from client_environments import ENVIRONMENTS, NODE
from packaging.version import Version

from hub_exporter import clients, pins

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"
NAMES = sorted(path.stem for path in ENVIRONMENTS.glob("*.in"))
PAIR = re.compile(r"(\S+) (\d[\w.]*)")
"""`onnxruntime 1.32.0`"""


def locked(environment: str) -> dict[str, str]:
    """Package -> version."""
    if environment == "node":
        packages = json.loads((NODE / "package-lock.json").read_text("utf-8"))["packages"]
        return {path.removeprefix("node_modules/"): entry.get("version", "") for path, entry in packages.items()}
    if environment == "the project's own":
        return pins.locked("onnx")
    return pins.pinned(ENVIRONMENTS / f"{environment}.txt")


def described() -> list[tuple[str, str]]:
    """(environment, versions) of each row of the table."""
    rows = [line.split("|")[1:-1] for line in DOCS.read_text("utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) == 5]
    return [(row[1].strip("`"), row[2]) for row in rows[2:]]


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_locked_with_what_it_asks_for(name: str) -> None:
    asked = [re.sub(r"\[.*?\]", "", line) for line in (ENVIRONMENTS / f"{name}.in").read_text("utf-8").split()]
    lock = (ENVIRONMENTS / f"{name}.txt").read_text("utf-8")

    assert pins.pins_in(asked).items() <= locked(name).items()
    assert {pins.normalized(line.partition("==")[0]) for line in asked} <= locked(name).keys()
    assert not re.search(r"@ |\+|://", lock), "no local wheel, no local build, no address"


def test_the_packages_for_node_are_exact_and_have_no_address() -> None:
    asked = json.loads((NODE / "package.json").read_text("utf-8"))["dependencies"]

    assert asked.items() <= locked("node").items()
    assert '"resolved"' not in (NODE / "package-lock.json").read_text("utf-8")


def test_the_documentation_names_every_environment_with_its_versions() -> None:
    assert {environment for environment, _ in described()} == {*NAMES, "node", "the project's own"}
    for environment, versions in described():
        assert PAIR.findall(versions), versions
        for package, version in PAIR.findall(versions):
            assert locked(environment)[package] == version, (environment, package)


def test_what_the_card_says_was_tried_was_tried() -> None:
    described_pairs = {
        (name, Version(version)) for _, versions in described() for name, version in PAIR.findall(versions)
    }

    for client in clients.table():
        tried = {(name, Version(version)) for name, version in PAIR.findall(client.tried)}
        assert tried, client
        assert tried <= described_pairs, client
