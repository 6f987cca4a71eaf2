"""`hub-exporter pins`: three versions of each package, the reasons between them, and no failure without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import typer.testing

from hub_exporter import cli, environments, installer, pins
from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import ExitCode, HubExporterError
from hub_exporter.records import BackendPins, PinnedPackage, Survey, from_json
from hub_exporter.report import Report
from hub_exporter.survey import survey


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(packages: object, until: str | None = None) -> dict[str, str]:
        raise HubExporterError("The package index cannot be reached: x", hint="Check")

    monkeypatch.setattr(installer, "newest", newest)


def package(found: Survey, backend: str, name: str) -> PinnedPackage:
    pinned = next(one for one in found.backends if one.backend == backend)
    return next(one for one in pinned.packages if one.package == name)


def test_every_backend_shows_what_was_tested_locked_and_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "newest", lambda names: dict.fromkeys(names, "9.9"))

    found = survey()

    assert (found.engine, [one.backend for one in found.backends]) == (pins.engine_version(), list(BACKENDS))
    torch = package(found, "onnx", "torch")
    assert (torch.tested, torch.quantizers, torch.locked, torch.newest) == (("2.12.0",), ("2.13.0",), "2.13.0", "9.9")
    assert torch.reason is not None
    assert torch.reason.startswith("One torch for all backends")
    assert package(found, "executorch-xnnpack", "torch").reason is None, "it is what was tested"
    assert package(found, "onnx", "nncf").locked is None, "no variant uses it"
    assert {one.backend: one.pins for one in found.backends} == {name: pins.digest(name) for name in BACKENDS}


def test_a_channel_shows_what_it_has_and_the_backends_own_set_has_not(no_network: None) -> None:
    channels = {one.backend: one.channels for one in survey().backends if one.channels}

    assert list(channels) == ["executorch-mlx"]
    assert channels["executorch-mlx"]["executorch-mlx-nightly"].keys() == {"executorch", "torch"}


def test_without_a_network_only_the_newest_versions_are_missing(no_network: None) -> None:
    found = survey()

    assert found.unknown == "The package index cannot be reached: x"
    assert {one.newest for backend in found.backends for one in backend.packages} == {None}
    assert package(found, "onnx", "onnx").locked == pins.locked("onnx")["onnx"]


def test_a_reason_for_other_versions_is_not_shown(no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another engine or other pins it would explain what is not there."""
    monkeypatch.setattr(pins, "locked", lambda backend: {"torch": "2.14.0"})

    assert package(survey(), "onnx", "torch").reason is None


def test_a_released_engine_is_fetched_once(no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = "class OnnxExporter:\n    tested_versions = {'torch': '2.99.0'}\n"
    wheel(tmp_path / "wheels", "5.99.0", {"transformers/exporters/exporter_onnx.py": exporter})
    wheel(tmp_path / "wheels", "4.0.0", {"transformers/__init__.py": ""})
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("HUB_EXPORTER_CACHE", str(tmp_path / "cache"))

    found = survey("5.99.0")

    assert (found.engine, package(found, "onnx", "torch").tested) == ("5.99.0", ("2.99.0",))
    with pytest.raises(HubExporterError, match=r"transformers 4\.0\.0 has no exporters"):
        survey("4.0.0")
    with pytest.raises(HubExporterError, match="cannot be found"):
        survey("6.0.0")
    monkeypatch.setattr(installer, "find", lambda: pytest.fail("uv is not asked again"))
    assert environments.released_engine("5.99.0").is_dir()
    assert [path.name for path in (tmp_path / "cache/engines").iterdir() if path.is_dir()] == ["5.99.0"]


def wheel(folder: Path, version: str, files: dict[str, str]) -> None:
    """A wheel of transformers with these files."""
    folder.mkdir(exist_ok=True)
    info = f"transformers-{version}.dist-info"
    with zipfile.ZipFile(folder / f"transformers-{version}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: transformers\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


# ── How it is told ──


def test_the_table_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    torch = PinnedPackage(
        package="torch",
        tested=("2.12.0",),
        quantizers=("2.13.0",),
        locked="2.13.0",
        newest="2.15.0",
        reason="One for all",
    )
    backend = BackendPins(
        backend="onnx", pins="ab" * 32, packages=(torch,), channels={"onnx-nightly": {"torch": "2.16.0.dev1"}}
    )

    Report().survey(Survey(engine="5.24.0", backends=(backend,), unknown="No network"))

    said = capsys.readouterr().err
    assert "onnx: tested by transformers 5.24.0, pins abababababab\n" in said
    assert ["torch", "2.12.0", "(quantizers:", "2.13.0)", "2.13.0", "2.15.0"] in map(str.split, said.splitlines())
    assert "torch 2.13.0: One for all" in said
    assert "channel onnx-nightly: torch 2.16.0.dev1" in said
    assert "The newest versions are not known: No network" in said


def test_the_command_writes_json_and_ends_well_without_a_network(no_network: None) -> None:
    done = typer.testing.CliRunner().invoke(cli.app, ["pins", "--format", "json"])

    assert done.exit_code == ExitCode.OK
    assert from_json(done.stdout, Survey).unknown == "The package index cannot be reached: x"
