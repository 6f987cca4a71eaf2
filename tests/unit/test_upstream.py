"""The table of what newer packages change, and how the engine is moved to a newer release."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import made_up
import pytest

from hub_exporter import environments, pins
from hub_exporter.records import Difference, EngineVersions, ModelReport, to_json

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(path: Path, *results: object) -> Path:
    report = ModelReport(source="s", target="t", results=tuple(results), written=True)  # type: ignore[arg-type]
    path.write_bytes(to_json([report]))
    return path


def test_the_table_says_how_each_job_moved(tmp_path: Path) -> None:
    upstream = script("upstream")
    slower = made_up.passed("onnx", seconds=60.0, verification=made_up.verification(latency=0.0042))
    before = upstream.results(written(tmp_path / "before.json", made_up.passed("onnx"), made_up.passed("dynamo")))
    lost = made_up.not_passed("dynamo", "mismatch", "output `logits` differs")
    after = upstream.results(written(tmp_path / "after.json", slower, lost, made_up.passed("openvino")))

    rows = [line.strip("| ").split(" | ") for line in upstream.report(before, after).splitlines() if "fp32`" in line]
    assert rows[0][:4] == ["`all-MiniLM-L6-v2.onnx.fp32`", "parity", "", "2.4e-07"]
    assert rows[0][5:] == ["41 s → 1 min 00 s", "? → 4.2 ms"]
    assert rows[1][1] == "parity → mismatch"
    assert rows[2][1] == "not run → parity"
    assert rows[3] == ["- `all-MiniLM-L6-v2.dynamo.fp32` mismatch: output `logits` differs"]


def test_what_could_not_be_exported_is_said(tmp_path: Path) -> None:
    upstream = script("upstream")
    (tmp_path / "empty.json").touch()

    assert upstream.results(tmp_path / "missing.json") == upstream.results(tmp_path / "empty.json") == {}
    assert "could not be exported" in upstream.report({}, {})


def test_the_engine_moves_with_what_it_was_tested_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renew = script("pins")
    (tmp_path / "stage.in").write_text("numpy==2.4.6\ntransformers==5.24.0\n")
    (tmp_path / "onnx.in").write_text("-r stage.in\nonnx==1.23.2\nonnxruntime==1.32.0  # held: why\ntorch==2.13.0\n")
    named = [("onnx", "1.30.0"), ("onnxruntime", "1.40.0"), ("torch", "2.20.0")]
    entries = tuple(EngineVersions(package=p, owner="OnnxExporter", quantizer=False, tested=v) for p, v in named)
    deliberate = Difference(package="torch", backends=("onnx",), locked="2.13.0", tested=("2.20.0",), reason="why")
    monkeypatch.setattr(renew, "PINS", tmp_path)
    monkeypatch.setattr(environments, "released_engine", Path)
    monkeypatch.setattr(pins, "tested", lambda source: {"onnx": entries})
    monkeypatch.setattr(pins, "differences", lambda: (deliberate,))

    renew.move_engine("5.30.0")

    assert (tmp_path / "stage.in").read_text() == "numpy==2.4.6\ntransformers==5.30.0\n"
    assert (tmp_path / "onnx.in").read_text() == (
        "-r stage.in\nonnx==1.30.0\nonnxruntime==1.32.0  # held: why\ntorch==2.13.0\n"
    )
