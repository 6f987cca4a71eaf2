"""Lowering to MLX on Linux: four generated Python files of the same version's macOS wheel, which PyPI has, are all that
the wheel for Linux lacks. Nothing here can run what comes out."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import uv
from pipeline import Subject

from hub_exporter.records import DatasetSpec, JobResult
from hub_exporter.run import run_model

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="the wheel for macOS has the files itself"),
]

ROOT = Path(__file__).parents[2]

GENERATED = (
    "_generated_inspector.py",
    "serialization/_generated",
    "serialization/_generated_serializers.py",
    "serialization/mlx_graph_schema.py",
)


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which `executorch.backends` is the installed one, with the MLX of a Mac."""
    import executorch.backends

    folder = tmp_path_factory.mktemp("mlx")
    wheel = f"executorch=={importlib.metadata.version('executorch')}"
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "mac"), wheel]
    platform = ["--python-platform", "aarch64-apple-darwin", "--only-binary", ":all:"]
    subprocess.run([*command, *platform], check=True, env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"})
    installed = Path(executorch.backends.__path__[0])
    merged = folder / "overlay" / "executorch" / "backends"
    merged.mkdir(parents=True)
    for path in installed.iterdir():
        if path.name not in ("mlx", "__pycache__"):
            (merged / path.name).symlink_to(path)
    shutil.copytree(installed / "mlx", merged / "mlx", ignore=shutil.ignore_patterns("third-party", "__pycache__"))
    for name in GENERATED:
        source, target = folder / "mac" / "executorch" / "backends" / "mlx" / name, merged / "mlx" / name
        assert not target.exists(), "this version's wheel for Linux has it already"
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    return folder / "overlay"


@pytest.fixture
def exported(
    overlay: Path, subject_named: Callable[[str], Subject], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], JobResult]:
    """Gives the result of a job for MLX, in the processes that a job runs in."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(overlay), str(ROOT)]))

    def result(kind: str) -> JobResult:
        subject = subject_named(kind)
        rows = DatasetSpec(path=str(subject.folder / "rows.jsonl"), rows=10)
        job = msgspec.structs.replace(subject.job("executorch-mlx"), dataset=rows)
        return run_model(subject.model, (job,), tmp_path, lambda event: None).results[0]

    return result


def test_a_language_model_is_exported_with_its_cache_outside_and_every_axis_free(
    exported: Callable[[str], JobResult],
) -> None:
    result = exported("llama")

    assert result.status == "passed", result.reason
    assert result.export is not None
    (component,) = result.export.components
    assert [(port.name, port.shape) for port in component.inputs] == [
        ("input_ids", (1, 128)),
        ("position_ids", (1, 128)),
        *((f"cache_{leaf}", (1, 2, 128, 8)) for leaf in range(4)),
    ]
    assert component.outputs[0].shape == (1, 128, 320)
    assert component.delegated is not None
    assert component.delegated > 0.9
    assert result.export.restrictions == ("batch 1, no padding", "at most 128 tokens at a time")


def test_an_encoder_is_exported_and_said_to_be_no_more(exported: Callable[[str], JobResult]) -> None:
    result = exported("bert")

    assert result.status == "passed", result.reason
    assert [artifact.path for artifact in result.artifacts if artifact.path.endswith(".pte")] == [
        "executorch/mlx/model.pte"
    ]
    assert result.export is not None
    assert [port.shape for port in result.export.components[0].inputs] == [(1, 128)]
    assert result.verification is not None
    assert (result.verification.level, result.verification.cases) == ("exported", ())
    assert result.verification.reason.endswith("as installed here has no MLX delegate")
