"""What pyproject.toml promises: what is in the wheel, what is declared, what is pinned."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub_exporter import pins

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]


def package_name(requirement: str) -> str:
    """`Torch>=2.13` -> `torch`"""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def group(name: str) -> Iterator[str]:
    """The requirements of a dependency group and of those that it includes."""
    for entry in PROJECT["dependency-groups"][name]:
        yield from [entry] if isinstance(entry, str) else group(entry["include-group"])


def imported_modules(source: Path) -> set[str]:
    """The top-level names of all absolute imports in a file, those inside functions too."""
    nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in names}


@pytest.fixture(scope="session")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would lie in somebody's site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def test_wheel_holds_every_file_that_is_not_code(installed_wheel: Path) -> None:
    templates = [file.relative_to(ROOT) for file in (ROOT / "templates").rglob("*") if file.is_file()]
    locks = [file.relative_to(ROOT) for file in (ROOT / "pins").iterdir()]
    package = [file.relative_to(ROOT / "hub_exporter") for file in (ROOT / "hub_exporter").rglob("*.*")]
    data = [file for file in package if file.suffix not in (".py", ".pyc")]
    assert templates
    assert locks
    assert Path("recipe.schema.json") in data
    assert [
        file for file in [*templates, *locks, *data] if not (installed_wheel / "hub_exporter" / file).is_file()
    ] == []


def test_wheel_holds_nothing_but_the_package(installed_wheel: Path) -> None:
    folders = {path.name.split("-")[0] for path in installed_wheel.iterdir()}
    assert folders == {"hub_exporter"}
    assert list(installed_wheel.glob("*.dist-info/licenses/LICENSE")) != []


def test_installed_wheel_finds_its_own_templates(installed_wheel: Path, tmp_path: Path) -> None:
    program = "from hub_exporter.snippets import environment; print(*environment().list_templates())"
    environment = {**os.environ, "PYTHONPATH": str(installed_wheel)}
    listed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert "card.md.j2" in listed.stdout.split()


def test_installed_wheel_finds_its_own_pins(installed_wheel: Path, tmp_path: Path) -> None:
    program = "from hub_exporter import pins; print(pins.folder(), pins.digest('onnx'))"
    environment = {**os.environ, "PYTHONPATH": str(installed_wheel)}
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert said.stdout.split() == [str(installed_wheel / "hub_exporter" / "pins"), pins.digest("onnx")]


def test_script_exists() -> None:
    module, _, function = PROJECT["project"]["scripts"]["hub-exporter"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_version_is_that_of_the_package() -> None:
    import hub_exporter

    assert importlib.metadata.version("hub-exporter") == hub_exporter.__version__


def test_every_import_of_the_package_is_a_declared_dependency() -> None:
    distributions = importlib.metadata.packages_distributions()
    declared = {package_name(requirement) for requirement in DEPENDENCIES}
    used = set().union(*map(imported_modules, (ROOT / "hub_exporter").rglob("*.py")))
    foreign = used - set(sys.stdlib_module_names) - {"hub_exporter"}
    undeclared = {
        name for name in foreign if not declared & {package_name(found) for found in distributions.get(name, [])}
    }
    assert undeclared == set()


def exact() -> dict[str, str]:
    """What `make` installs with: the locks of the backends that it tests, and constraints.txt for the rest."""
    (line,) = re.findall(r"^LOCKS := .*,(.*)\)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    merged = pins.pinned(ROOT / "constraints.txt")
    for backend in line.split():
        lock = pins.locked(backend)
        assert {name: merged[name] for name in merged.keys() & lock.keys() if merged[name] != lock[name]} == {}, backend
        merged |= lock
    return merged


def test_constraints_pin_every_direct_package_exactly() -> None:
    direct = {pins.normalized(package_name(entry)) for entry in [*DEPENDENCIES, *group("dev"), *group("weights")]}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)] == []
    assert direct - exact().keys() == set()


def test_constraints_keep_the_bounds_of_the_project() -> None:
    """The tested set is what is installed here, so the bounds of pyproject.toml hold for it."""
    from packaging.requirements import Requirement

    versions = exact()
    requirements = [Requirement(entry) for entry in [*DEPENDENCIES, *group("dev")]]
    assert [
        str(entry) for entry in requirements if not entry.specifier.contains(versions[pins.normalized(entry.name)])
    ] == []
