"""Imports point one way, and planning, checking and publishing never load the engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hub_exporter

PACKAGE = Path(hub_exporter.__file__).parent

LAYERS = (
    {"hub_exporter", "errors", "records"},
    {"catalogue", "compare", "differences", "files", "frontmatter", "secrecy", "standing", "strict", "wording"},
    {
        "builtin",
        "capture",
        "chart",
        "checkpoint",
        "encoder_decoder",
        "folder",
        "github",
        "keys",
        "machine",
        "media",
        "metadata",
        "pins",
        "snippets",
        "tasks",
        "two_encoders",
        "voices",
    },
    {"adapt", "mixed_prompt"},
    {"clients", "multimodal"},
    {"checks", "index", "installer", "loading", "progress", "schema", "section", "staleness"},
    {"attempts", "card", "environments", "flags", "inputs", "report"},
    {"reference"},
    {"cells", "graphs", "plan", "preflight", "recipe", "staging", "survey"},
    {"matrix", "publish"},
    {"backends", "hub"},
    {"decoding", "weights"},
    {"export", "generate", "hub_write", "remote", "resolve", "rows", "verify"},
    {"push", "run", "sample"},
    {"again", "check", "targets"},
    {"session", "stage"},
    {"fanout"},
    {"cli"},
    {"__main__"},
)
"""A module imports from the layers above its own line only. `backends` is the package with all that is in it."""

ENGINE_HALF = {
    "backends",
    "encoder_decoder",
    "export",
    "generate",
    "graphs",
    "inputs",
    "loading",
    "multimodal",
    "reference",
    "stage",
    "two_encoders",
    "verify",
    "voices",
}
"""These run in a job's own process, and may import what they like."""

HEAVY = ("datasets", "executorch", "huggingface_hub", "onnx", "onnxruntime", "openvino", "torch", "transformers")

DOORS = {"huggingface_hub": {"hub", "hub_write"}, "datasets": {"rows"}, "uv": {"installer"}}
"""Package of the outside world -> the modules that may import it, inside functions too."""


def modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.setdefault("hub_exporter" if parts == ("__init__",) else parts[0], []).append(path)
    return found


def imports(path: Path) -> Iterator[str]:
    """Every absolute name that a file imports, at module level and inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path, known: set[str]) -> set[str]:
    """The modules of the package that a file imports."""
    names = {tuple(name.split(".")) for name in imports(path)}
    inside = {name[1] for name in names if name[0] == "hub_exporter" and len(name) > 1}
    return {name if name in known else "hub_exporter" for name in inside}


def test_every_module_has_a_layer() -> None:
    assert set(modules()) == set().union(*LAYERS), "say in LAYERS where a new module belongs"


@pytest.mark.parametrize("module", sorted(set().union(*LAYERS)))
def test_imports_point_one_way(module: str) -> None:
    layer = next(index for index, names in enumerate(LAYERS) if module in names)
    below = set().union(*LAYERS[:layer])
    known = set().union(*LAYERS)

    for path in modules().get(module, []):
        beyond = own_imports(path, known) - below - ({module} if module == "backends" else set())
        assert not beyond, f"{path.name} imports {sorted(beyond)}, which is not in a layer below"


@pytest.mark.parametrize(("package", "doors"), DOORS.items())
def test_outside_world_has_one_door(package: str, doors: set[str]) -> None:
    users = {
        module
        for module, paths in modules().items()
        if any(name.split(".")[0] == package for path in paths for name in imports(path))
    }

    assert users == doors


def test_torch_free_half_loads_nothing_heavy() -> None:
    names = sorted(f"hub_exporter.{name}" for name in set(modules()) - ENGINE_HALF - {"hub_exporter", "__main__"})
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "[]"
