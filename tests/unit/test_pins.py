"""The locks: whole, consistent, and different from what the engine was tested with only where a reason is given."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import hub_exporter
from hub_exporter import pins
from hub_exporter.catalogue import BACKENDS, DEFAULT_BACKENDS
from hub_exporter.errors import HubExporterError, UsageError
from hub_exporter.records import Difference, EngineVersions

PACKAGE = Path(hub_exporter.__file__).parent

SAMPLE = """
class ExportFormat: ...
class Exporter:
    required_packages: list[str] = []
    min_versions: dict[str, str] = {}
    tested_versions: dict[str, str] = {}
"""
"""The base of the engine's exporters, as far as it matters here."""


@pytest.fixture
def own_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pins with one backend."""
    (tmp_path / "stage.in").write_text("# for all\nmsgspec==0.22.0\n", "utf-8")
    (tmp_path / "onnx.in").write_text("-r stage.in\nonnx_ir==1.1.0  # by hand\n", "utf-8")
    (tmp_path / "onnx.txt").write_text("msgspec==0.22.0\n    # via x\nonnx-ir==1.1.0 ; sys_platform != 'x'\n", "utf-8")
    monkeypatch.setenv("HUB_EXPORTER_PINS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lock_has_what_its_backend_names_and_one_version_of_each_package(backend: str) -> None:
    lines = [line for line in pins.files(backend)[1].read_text("utf-8").splitlines() if "==" in line]

    assert pins.direct(backend).items() <= pins.locked(backend).items()
    assert len(lines) == len(pins.locked(backend))
    assert not [line for line in lines if "@ " in line or "+" in line], "no local wheel and no local build"


def test_the_locks_agree_with_each_other() -> None:
    """So one reference serves all backends, and one environment all tests."""
    versions: dict[str, set[str]] = {}
    for backend in BACKENDS:
        for name, version in pins.locked(backend).items():
            versions.setdefault(name, set()).add(version)

    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_a_stage_process_imports_is_in_the_lock(backend: str) -> None:
    distributions = importlib.metadata.packages_distributions()
    module = {"executorch-xnnpack": "executorch", "executorch-mlx": "executorch", "executorch-cuda": "executorch"}
    foreign = foreign_imports(["stage", f"backends/{module.get(backend, backend)}"])
    missing = {
        name
        for name in foreign - {"hub_exporter"} - set(sys.stdlib_module_names)
        if not {pins.normalized(found) for found in distributions[name]} & pins.locked(backend).keys()
    }

    assert {"torch", "transformers", "datasets", "msgspec", "yaml"} <= foreign
    assert missing == set()


def foreign_imports(modules: list[str]) -> set[str]:
    """Top-level names that these modules of the package import, and those of its modules that they import."""
    seen, foreign = set(), set()
    while modules:
        path = PACKAGE / f"{modules.pop()}.py"
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for name in imports(path):
            top, *rest = name.split(".")
            foreign.add(top)
            if top == "hub_exporter" and rest[:1] != ["backends"]:
                modules += rest[:1]
            elif top == "hub_exporter":
                modules += ["backends/__init__", "backends/common"]
    return foreign


def imports(path: Path) -> Iterator[str]:
    """Every absolute name that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_locks_are_what_the_engine_was_tested_with_or_the_reason_is_given() -> None:
    found = set()
    for backend, named in pins.tested(pins.engine_source()).items():
        lock = pins.locked(backend)
        for package, versions in pins.expected(named).items():
            if package in lock and lock[package] not in versions:
                found.add((package, backend, lock[package], versions))
    explained = {
        (difference.package, backend, difference.locked, difference.tested)
        for difference in pins.differences()
        for backend in difference.backends
    }

    assert found == explained, "pins/differences.toml: one that has no reason, or one that is none any more"
    assert all(difference.reason for difference in pins.differences())


def test_the_locks_keep_the_engines_minimum_versions() -> None:
    from packaging.version import Version

    for backend, named in pins.tested(pins.engine_source()).items():
        lock = pins.locked(backend)
        for entry in named:
            if entry.minimum and entry.package in lock:
                assert Version(lock[entry.package]) >= Version(entry.minimum), entry


def test_the_tests_run_with_the_locked_engine() -> None:
    assert pins.engine_version() == pins.locked("onnx")["transformers"]


# ── Reading ──


def test_pins_are_read_with_what_they_include(own_pins: Path) -> None:
    assert pins.direct("onnx") == pins.locked("onnx") == {"msgspec": "0.22.0", "onnx-ir": "1.1.0"}
    assert pins.differences() == ()


def test_the_digest_is_of_the_packages_not_of_the_comments(own_pins: Path) -> None:
    before = pins.digest("onnx")

    (own_pins / "stage.in").write_text("# for every stage\n\nmsgspec==0.22.0  # newest\n", "utf-8")
    assert pins.digest("onnx") == before

    (own_pins / "stage.in").write_text("msgspec==0.23.0\n", "utf-8")
    assert pins.digest("onnx") != before


def test_a_version_in_the_lock_alone_changes_the_digest(own_pins: Path) -> None:
    before = pins.digest("onnx")
    lock = own_pins / "onnx.txt"
    lock.write_text(lock.read_text("utf-8") + "deeper==1.0\n", "utf-8")

    assert pins.digest("onnx") != before


def test_a_backend_without_pins_is_said(own_pins: Path) -> None:
    with pytest.raises(UsageError, match="no pins for `openvino`"):
        pins.digest("openvino")


def test_every_backend_has_a_digest_of_its_own_pins() -> None:
    digests = {backend: pins.digest(backend) for backend in DEFAULT_BACKENDS}

    assert len(set(digests.values())) == len(digests)


# ── The engine's own words ──


def engine(folder: Path, **files: str) -> Path:
    """A folder like `transformers/exporters`."""
    (folder / "quantizers").mkdir(parents=True)
    (folder / "base.py").write_text(SAMPLE, "utf-8")
    for name, text in files.items():
        parent = folder / "quantizers" if name.startswith("quantizer_") else folder
        (parent / f"{name}.py").write_text(text, "utf-8")
    return folder


def test_what_it_was_tested_with_is_read_without_importing_it(tmp_path: Path) -> None:
    source = engine(
        tmp_path,
        exporter_dynamo=(
            "raise SystemExit\nclass DynamoExporter(Exporter):\n    required_packages = ['torch']\n"
            "    min_versions = {'torch': '2.11.0'}\n    tested_versions = {'torch': '2.12.0'}\n"
        ),
        exporter_onnx=(
            "class OnnxExporter(DynamoExporter):\n    required_packages = ['torch', 'onnx']\n"
            "    tested_versions = {'torch': '2.12.0', 'onnx': '1.21.0'}\n"
        ),
        quantizer_nncf=(
            "class _Base:\n    tested_versions = {'nncf': '3.4.0'}\n    min_versions = {'nncf': '2.18.0'}\n"
            "class OnnxQuantizer(_Base):\n    supported_formats = (ExportFormat.ONNX,)\n"
            "    required_packages = ('nncf', 'onnx_ir')\n"
            "    tested_versions = {**_Base.tested_versions, 'onnx_ir': '1.0.0'}\n"
        ),
    )

    found = pins.tested(source)

    assert found["dynamo"] == (
        EngineVersions(package="torch", owner="DynamoExporter", quantizer=False, tested="2.12.0", minimum="2.11.0"),
    )
    assert [(entry.owner, entry.package, entry.tested, entry.minimum) for entry in found["onnx"]] == [
        ("OnnxExporter", "torch", "2.12.0", "2.11.0"),
        ("OnnxExporter", "onnx", "1.21.0", None),
        ("OnnxQuantizer", "nncf", "3.4.0", "2.18.0"),
        ("OnnxQuantizer", "onnx-ir", "1.0.0", None),
    ]
    assert found["openvino"] == ()


def test_the_exporter_is_asked_before_its_quantizers() -> None:
    def entry(package: str, version: str, quantizer: bool) -> EngineVersions:
        return EngineVersions(package=package, owner="x", quantizer=quantizer, tested=version)

    named = [entry("torch", "2.13.0", True), entry("torch", "2.12.0", False)]
    named += [entry("nncf", "3.4.0", True), entry("nncf", "3.5.0", True), entry("nncf", "3.4.0", True)]

    assert pins.expected(named) == {"torch": ("2.12.0",), "nncf": ("3.4.0", "3.5.0")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class OnnxExporter:\n    tested_versions = read_versions()\n", "cannot be read: read_versions"),
        ("class OnnxExporter:\n    versions = {'onnx': '1.21.0'}\n", "says nowhere what it was tested with"),
    ],
)
def test_an_engine_that_says_it_differently_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HubExporterError, match=message):
        pins.tested(engine(tmp_path, exporter_onnx=text))


def test_the_installed_engine_is_found_and_not_imported() -> None:
    script = (
        "import sys; from hub_exporter import pins; print(pins.tested(pins.engine_source())['onnx'][0].package);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "torch\n"), done.stderr


def test_a_difference_that_lacks_its_reason_is_refused(own_pins: Path) -> None:
    (own_pins / "differences.toml").write_text('[[difference]]\npackage = "onnx-ir"\nbackends = ["onnx"]\n', "utf-8")

    with pytest.raises(msgspec.ValidationError, match="locked"):
        pins.differences()
    assert Difference.__struct_fields__[-1] == "reason"


# ── make pins ──


def renewal() -> ModuleType:
    """The script behind `make pins`."""
    spec = importlib.util.spec_from_file_location("renewal", Path(__file__).parents[2] / ".ci/pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("msgspec==0.22.0", "msgspec==0.23.0"),
        ("onnx_ir==1.1.0", "onnx_ir==1.2.0"),
        ("torch==2.13.0", "torch==2.13.0"),
        ("msgspec==0.22.0  # held: of the same version as x", "msgspec==0.22.0  # held: of the same version as x"),
        ("-r stage.in", "-r stage.in"),
        ("# msgspec", "# msgspec"),
        ("", ""),
    ],
)
def test_a_direct_package_moves_unless_it_is_held(line: str, expected: str) -> None:
    assert renewal().moved(line, {"msgspec": "0.23.0", "onnx-ir": "1.2.0"}) == expected


def test_the_diff_names_what_changed_and_leaves_digests_out() -> None:
    before = {"uv.txt": ["uv==1 \\\n", "    --hash=sha256:a\n"]}
    after = {"uv.txt": ["uv==2 \\\n", "    --hash=sha256:b\n"], "new.txt": ["x==1\n"]}

    lines = [line.rstrip("\n") for line in renewal().diff(before, after) if line[:2] not in ("--", "++", "@@")]

    assert lines == ["-uv==1 \\", "+uv==2 \\", "+x==1"]
