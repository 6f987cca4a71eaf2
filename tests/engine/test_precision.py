"""ONNX files of less precision: named as transformers.js looks for them, smaller, within their bounds or refused."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from pipeline import Subject, subject_of

from hub_exporter.backends import onnx
from hub_exporter.records import ExportOutcome, Verification
from hub_exporter.verify import verify

pytestmark = pytest.mark.engine

TINY = Path(__file__).parents[2] / "examples" / "tiny-chat"

Made = tuple[Subject, ExportOutcome, Path]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The trained model of the examples: weights at random do not stand such rounding."""
    subject = subject_of(TINY, tmp_path_factory.mktemp("tiny"))
    return subject, *subject.export("onnx")


def converted(exact: Made, variant: str) -> Made:
    subject, outcome, files = exact
    folder = shutil.copytree(files, Path(tempfile.mkdtemp(dir=subject.folder)) / variant)
    parts = onnx.convert(list(outcome.components), folder, variant)
    return subject, msgspec.structs.replace(outcome, components=tuple(parts)), folder


def checked(made: Made, variant: str) -> Verification:
    subject, outcome, folder = made
    return verify("onnx", outcome, folder, subject.reference, subject.arrays, variant=variant)


@pytest.mark.parametrize(
    ("variant", "file", "smaller"),
    [("fp16", "model_fp16.onnx", 0.6), ("int8", "model_quantized.onnx", 0.4), ("int4", "model_q4.onnx", 0.5)],
)
def test_a_variant_is_smaller_and_close(exact: Made, variant: str, file: str, smaller: float) -> None:
    made = converted(exact, variant)
    found = checked(made, variant)
    (part,) = made[1].components

    assert (found.passed, found.level) == (True, "close"), found.reason
    assert found.reason.startswith("stays within its bounds on 7 inputs")
    assert [path.name for path in made[2].iterdir()] == [file]
    assert (made[2] / file).stat().st_size < smaller * (exact[2] / "model.onnx").stat().st_size
    assert (part.name, part.file, part.opsets["ai.onnx"], part.ir_version) == ("model", file, 20, 10)
    before = exact[1].components[0]
    assert (part.inputs, part.outputs) == (before.inputs, before.outputs), "clients feed and read the same"


def test_one_that_is_beyond_its_bounds_is_a_mismatch(exact: Made) -> None:
    made = converted(exact, "int4")

    assert checked(made, "int4").passed
    found = checked(made, "int8")
    assert not found.passed
    assert "of the choices are the same (at least 0.9)" in found.reason
    assert not checked(made, "fp32").passed


def test_it_shares_the_folder_with_others(exact: Made) -> None:
    subject, _, _ = exact
    outcome, files = subject.export_job(msgspec.structs.replace(subject.job("onnx"), variant="fp16"), "shared")

    assert [path.name for path in files.iterdir()] == ["model_fp16.onnx"], "no manifest of its own in the way"
    assert "convert to fp16" in outcome.seconds
