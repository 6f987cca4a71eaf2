"""The verification is proved able to fail: files are damaged one way at a time, and each damage must be a mismatch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pipeline import Subject

from hub_exporter import backends
from hub_exporter.records import ExportOutcome, Verification
from hub_exporter.verify import _default_precision

pytestmark = pytest.mark.engine

Damage = Callable[[onnx.ModelProto], None]


@pytest.fixture(scope="module")
def decoder(subject_named: Callable[[str], Subject]) -> tuple[Subject, ExportOutcome, Path]:
    subject = subject_named("llama")
    return subject, *subject.export("onnx")


@pytest.fixture(scope="module")
def encoder(subject_named: Callable[[str], Subject]) -> tuple[Subject, ExportOutcome, Path]:
    subject = subject_named("bert")
    return subject, *subject.export("onnx")


def verified(made: tuple[Subject, ExportOutcome, Path], damage: Damage, tmp_path: Path) -> Verification:
    """The verification of a damaged copy."""
    subject, outcome, files = made
    copy = tmp_path / "damaged"
    shutil.copytree(files, copy)
    model = onnx.load(copy / "model.onnx")
    damage(model)
    onnx.save(model, copy / "model.onnx")
    return subject.verify("onnx", outcome, copy)


def test_undamaged_files_pass(decoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path) -> None:
    found = verified(decoder, lambda model: None, tmp_path)

    assert (found.passed, found.level) == (True, "parity")
    assert all(decode.agreed == decode.tokens >= 32 for decode in found.decodes)
    assert any(decode.prompts == 3 for decode in found.decodes)


def test_a_weight_that_is_one_percent_off_is_a_mismatch(
    decoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path
) -> None:
    found = verified(decoder, lambda model: change_weight(model, lambda weight: weight * 1.01), tmp_path)

    assert not found.passed
    assert "`logits` differs by" in found.reason


def test_nan_in_a_weight_is_a_mismatch(decoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path) -> None:
    found = verified(decoder, lambda model: change_weight(model, lambda weight: weight * np.nan), tmp_path)

    assert not found.passed
    assert "NaN or infinity" in found.reason


def test_a_dropped_output_is_a_mismatch(encoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path) -> None:
    found = verified(encoder, lambda model: drop_output(model, "pooler_output"), tmp_path)

    assert not found.passed
    assert "output `pooler_output` is missing" in found.reason


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_a_mask_that_is_ignored_is_a_mismatch(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    made = request.getfixturevalue(kind)

    found = verified(made, lambda model: replace_input(model, "attention_mask", ones), tmp_path)

    assert not found.passed
    assert "padded" in found.reason or "capture" in found.reason


def test_positions_that_are_off_by_one_are_a_mismatch(subject_named: Callable[[str], Subject], tmp_path: Path) -> None:
    subject = subject_named("gpt2")  # rotary positions are relative: adding one to all of them changes nothing

    found = verified(
        (subject, *subject.export("onnx")), lambda model: replace_input(model, "position_ids", plus_one), tmp_path
    )

    assert not found.passed


def test_a_decode_position_that_is_off_by_one_is_a_mismatch(
    decoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path
) -> None:
    found = verified(decoder, lambda model: replace_input(model, "position_ids", plus_one_behind_a_cache), tmp_path)

    assert all(case.passed for case in found.cases), "only steps behind a filled cache are wrong"
    assert not found.passed
    assert "decoding" in found.reason


def test_a_frozen_axis_is_a_mismatch(subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("bert")
    outcome, files = subject.export("onnx", dynamic=False)
    claimed = msgspec.structs.replace(outcome, options={}, fixed={})

    found = subject.verify("onnx", claimed, files)

    assert not found.passed
    assert "Got invalid dimensions for input" in found.reason


def test_axes_that_were_fixed_on_purpose_are_verified_at_their_size(subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("bert")
    outcome, files = subject.export("onnx", dynamic=False)

    found = subject.verify("onnx", outcome, files)

    assert (found.passed, found.level) == (True, "parity")
    assert len({case.shape for case in found.cases}) == 1
    assert len(found.cases) == 2, "the captured rows and held-out ones"
    assert "every axis is fixed" in outcome.restrictions[0]


def test_a_file_that_does_not_load_is_no_pass(decoder: tuple[Subject, ExportOutcome, Path], tmp_path: Path) -> None:
    subject, outcome, _ = decoder
    (tmp_path / "model.onnx").write_bytes(b"not a graph")

    found = subject.verify("onnx", outcome, tmp_path)

    assert (found.passed, found.level) == (False, "exported")
    assert "cannot load" in found.reason


def test_without_a_decode_loop_a_language_model_is_not_at_parity(
    decoder: tuple[Subject, ExportOutcome, Path],
) -> None:
    subject, outcome, files = decoder
    demanding = [msgspec.structs.replace(part, min_length=50) for part in outcome.components]  # no prompt has as many
    long_only = msgspec.structs.replace(outcome, components=tuple(demanding))

    found = subject.verify("onnx", long_only, files)

    assert (found.passed, found.level) == (True, "loaded")
    assert "a decode loop cannot be run" in found.reason


def test_what_a_runtimes_default_precision_costs_is_measured(decoder: tuple[Subject, ExportOutcome, Path]) -> None:
    subject, outcome, files = decoder
    runner = backends.get("onnx").open_runner(files, outcome)
    runner.precision = "bf16"
    module = SimpleNamespace(open_default_runner=lambda folder, outcome: runner)

    (note,) = _default_precision(module, files, outcome, subject.reference, subject.arrays, lambda step: None)

    assert note.startswith("by default this processor computes in bf16: outputs differ by up to ")
    assert note.endswith("224 of 224 greedy tokens are the same")


# ── Damages ──


def change_weight(model: onnx.ModelProto, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change one matrix of the middle of the graph."""
    matrices = [item for item in model.graph.initializer if len(item.dims) == 2 and item.data_type == TensorProto.FLOAT]
    weight = matrices[len(matrices) // 2]
    changed = change(numpy_helper.to_array(weight)).astype(np.float32)
    weight.CopyFrom(numpy_helper.from_array(changed, weight.name))


def drop_output(model: onnx.ModelProto, name: str) -> None:
    kept = [output for output in model.graph.output if output.name != name]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def replace_input(model: onnx.ModelProto, name: str, nodes: Callable[[str, str], Iterator[onnx.NodeProto]]) -> None:
    """Let everything that reads the input `name` read what `nodes` make of it."""
    for node in model.graph.node:
        for index, used in enumerate(node.input):
            if used == name:
                node.input[index] = f"{name}_changed"
    for position, node in enumerate(nodes(name, f"{name}_changed")):
        model.graph.node.insert(position, node)


def ones(source: str, result: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Shape", [source], ["mask_shape"])
    one = numpy_helper.from_array(np.array([1], np.int64))
    yield helper.make_node("ConstantOfShape", ["mask_shape"], [result], value=one)


def plus_one(source: str, result: str) -> Iterator[onnx.NodeProto]:
    one = numpy_helper.from_array(np.array([[1]], np.int64))
    yield helper.make_node("Constant", [], ["one"], value=one)
    yield helper.make_node("Add", [source, "one"], [result])


def plus_one_behind_a_cache(source: str, result: str) -> Iterator[onnx.NodeProto]:
    """Adds one where a single token is fed, as in a decode loop."""
    one = numpy_helper.from_array(np.array(1, np.int64))
    yield helper.make_node("Constant", [], ["one"], value=one)
    yield helper.make_node("Shape", [source], ["fed"], start=1)
    yield helper.make_node("Equal", ["fed", "one"], ["single"])
    yield helper.make_node("Cast", ["single"], ["shift"], to=TensorProto.INT64)
    yield helper.make_node("Add", [source, "shift"], [result])
