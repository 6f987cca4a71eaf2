"""What the files look like from outside: names, axes, manifests, memory, metadata methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up
import msgspec
import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from pipeline import Subject

from hub_exporter import clients
from hub_exporter.backends.dynamo import empty_cache
from hub_exporter.backends.onnx import describe
from hub_exporter.catalogue import CACHE_AXES
from hub_exporter.records import Component, ExportOutcome

pytestmark = pytest.mark.engine

Made = tuple[Subject, ExportOutcome, Path]


@pytest.fixture(scope="module")
def decoder(subject_named: Callable[[str], Subject]) -> Made:
    subject = subject_named("llama")
    return subject, *subject.export("onnx")


def test_the_onnx_decoder_has_the_names_and_axes_that_clients_look_for(decoder: Made) -> None:
    model = onnx.load(decoder[2] / "model.onnx")

    assert {value.name: axes(value) for value in model.graph.input} == {
        "input_ids": ["batch_size", "sequence_length"],
        "attention_mask": ["batch_size", "total_sequence_length"],
        "position_ids": ["batch_size", "sequence_length"],
        **{f"past_key_values.{n}.{kind}": list(CACHE_AXES) for n, kind in CACHE},
    }
    assert {value.name: axes(value) for value in model.graph.output} == {
        "logits": ["batch_size", "sequence_length", 320],
        **{f"present.{n}.{kind}": ["batch_size", 2, "total_sequence_length", 8] for n, kind in CACHE},
    }


CACHE = [(n, kind) for n in range(2) for kind in ("key", "value")]


def axes(value: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("backend", ["onnx", "dynamo"])
def test_no_file_knows_where_it_was_made(backend: str, subject_named: Callable[[str], Subject]) -> None:
    here = str(Path(torch.__file__).parents[1]).encode()
    _, files = subject_named("llama").export(backend)

    assert not [path.name for path in files.iterdir() if here in path.read_bytes()]


def test_the_onnx_file_is_one_self_contained_file(decoder: Made, tmp_path: Path) -> None:
    import onnxruntime

    alone = tmp_path / "model.onnx"
    alone.write_bytes((decoder[2] / "model.onnx").read_bytes())

    onnxruntime.InferenceSession(str(alone), providers=["CPUExecutionProvider"])
    assert (decoder[2] / "model.onnx.data").stat().st_size == 0, "the engine's loader insists on this file"


def test_weights_that_protobuf_cannot_hold_lie_beside_the_graph(
    decoder: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hub_exporter.backends import onnx as backend

    subject, outcome, files = decoder
    program = onnx_ir.load(files / "model.onnx")
    monkeypatch.setattr(backend, "EMBED_LIMIT", 1000)

    backend._save({"model.onnx": program}, tmp_path)
    part = describe("model.onnx", onnx_ir.load(tmp_path / "model.onnx"))
    found = subject.verify("onnx", msgspec.structs.replace(outcome, components=(part,)), tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx_data"}
    assert part.data == "model.onnx_data"
    assert msgspec.structs.replace(part, data=None) == outcome.components[0]
    assert (found.passed, found.level) == (True, "parity"), found.reason


def test_the_engine_loads_a_renamed_decoder(decoder: Made) -> None:
    from transformers.exporters import ExportedModel

    subject, _, files = decoder
    exported = ExportedModel.from_pretrained(files.parent, subfolder=files.name)
    ids, mask = prompt(subject)

    answer = exported(
        input_ids=ids,
        attention_mask=mask,
        position_ids=torch.arange(ids.shape[1])[None],
        **{f"past_key_values.{n}.{kind}": torch.zeros(1, 2, 0, 8) for n, kind in CACHE},
    )

    expected = subject.arrays["prompt 1/logits"][0]
    np.testing.assert_allclose(answer["logits"][:, -1], expected, atol=1e-4)


def prompt(subject: Subject) -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = (torch.from_numpy(subject.arrays[f"prompt 1/in/{name}"]) for name in ("input_ids", "attention_mask"))
    return ids, mask


def test_an_encoder_keeps_the_engines_names(subject_named: Callable[[str], Subject]) -> None:
    outcome, _ = subject_named("bert").export("onnx")

    assert [port.name for port in outcome.components[0].inputs] == ["input_ids", "attention_mask"]
    assert [port.shape for port in outcome.components[0].inputs] == [("batch_size", "sequence_length")] * 2
    assert [port.name for port in outcome.components[0].outputs] == ["last_hidden_state", "pooler_output"]


def test_separate_prefill_and_decode_graphs_agree_and_have_options_of_their_own(
    subject_named: Callable[[str], Subject],
) -> None:
    subject = subject_named("llama")
    outcome, files = subject.export("onnx", multi_token_decode=False, components={"decode": {"opset_version": 18}})

    found = subject.verify("onnx", outcome, files)

    assert [part.file for part in outcome.components] == ["prefill.onnx", "decode.onnx"]
    versions = [onnx.load(files / part.file).opset_import[0].version for part in outcome.components]
    assert versions[0] > versions[1] == 18
    assert {path.name for path in files.iterdir()} >= {"model.onnx_data", "prefill.onnx.data", "decode.onnx.data"}
    assert sum(path.stat().st_size for path in files.glob("*.onnx")) < (files / "model.onnx_data").stat().st_size
    assert (files / "model.onnx_data").stat().st_size <= subject.model.weight_bytes * 1.03, "one copy of the weights"
    assert (found.passed, found.level) == (True, "parity"), found.reason


@pytest.mark.parametrize("backend", ["onnx", "dynamo", "executorch-xnnpack"])
def test_a_static_cache_is_written_in_place_and_agrees(backend: str, subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("llama")
    outcome, files = subject.export(backend, generation={"cache": "static", "max_cache_len": None})

    found = subject.verify(backend, outcome, files)

    assert (outcome.layout, outcome.cache_length) == ("static-cache", 128)
    assert (found.passed, found.level) == (True, "parity"), found.reason
    batch = any(decode.prompts == 3 and decode.tokens == 96 for decode in found.decodes)
    assert batch or backend == "executorch-xnnpack", "a left-padded batch; ExecuTorch's cache is for one row"
    assert len(subject.run_example(backend, outcome, files).splitlines()) == 2


def test_a_shared_buffer_that_is_not_written_is_noticed(subject_named: Callable[[str], Subject]) -> None:
    from hub_exporter.backends.onnx import InPlaceRunner

    subject = subject_named("llama")
    outcome, files = subject.export("onnx", generation={"cache": "static", "max_cache_len": None})
    runner = InPlaceRunner(files, outcome)
    ids, mask = (value.numpy() for value in prompt(subject))
    places = np.arange(ids.shape[1])[None]
    runner.start(1)
    first = runner.step(ids, mask, places)
    again = runner.step(ids[:, -1:], np.pad(mask, ((0, 0), (0, 1)), constant_values=1), places[:, -1:] + 1)

    runner.start(1)  # the same step behind an empty cache
    runner._counters = dict.fromkeys(runner._counters, ids.shape[1])
    forgotten = runner.step(ids[:, -1:], np.pad(mask, ((0, 0), (0, 1)), constant_values=1), places[:, -1:] + 1)

    np.testing.assert_allclose(first[:, -1], subject.arrays["prompt 1/logits"][0], atol=1e-4)
    assert np.abs(again - forgotten).max() > 0.1


def test_options_reach_the_engine(subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("bert")
    _, files = subject.export("onnx", opset_version=18, dynamic_shapes={"sequence_length": {"max": 64}})

    assert onnx.load(files / "model.onnx").opset_import[0].version == 18
    manifest = json.loads((files / "export.json").read_text("utf-8"))
    assert manifest["components"]["model"]["metadata"]["export_config"]["opset_version"] == 18


def test_the_openvino_decoder_is_stateful_unless_told_otherwise(subject_named: Callable[[str], Subject]) -> None:
    outcome, files = subject_named("llama").export("openvino")

    assert [port.name for port in outcome.components[0].inputs] == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "beam_idx",
    ]
    assert {path.name for path in files.iterdir()} == {
        *("openvino_model.xml", "openvino_model.bin", "export.json", "config.json", "generation_config.json"),
        *("openvino_tokenizer.xml", "openvino_tokenizer.bin", "openvino_detokenizer.xml", "openvino_detokenizer.bin"),
    }
    assert outcome.components[0].data == "openvino_model.bin"


def test_a_tokenizer_that_openvino_cannot_convert_is_said(
    subject_named: Callable[[str], Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openvino_tokenizers

    from hub_exporter.backends import openvino
    from hub_exporter.loading import load

    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("no such thing")

    monkeypatch.setattr(openvino_tokenizers, "convert_tokenizer", refuse)

    notes = openvino.accompany(load(subject_named("llama").model), tmp_path)

    assert notes == ["its tokenizer cannot be converted to OpenVINO (NotImplementedError), which OpenVINO GenAI needs"]
    assert not list(tmp_path.iterdir())


def test_an_openvino_encoder_gives_one_output_and_the_engine_loads_it(
    subject_named: Callable[[str], Subject],
) -> None:
    from transformers.exporters import ExportedModel

    subject = subject_named("bert")
    outcome, files = subject.export("openvino")
    found = subject.verify("openvino", outcome, files)
    answer = ExportedModel.from_pretrained(files)(
        input_ids=torch.ones(2, 5, dtype=torch.long), attention_mask=torch.ones(2, 5, dtype=torch.long)
    )

    assert [port.name for port in outcome.components[0].outputs] == ["last_hidden_state"]
    assert outcome.components[0].left_out == ("pooler_output",)
    assert (found.passed, found.level) == (True, "parity"), found.reason
    assert list(answer) == ["last_hidden_state"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: setattr(model.graph.inputs[0], "name", "ids"), "does not know the input `ids`"),
        (lambda model: model.graph.opset_imports.update({"": 24}), "opset 24"),
        (lambda model: setattr(model.graph.inputs[3], "dtype", onnx_ir.DataType.FLOAT16), "is float16, not float32"),
    ],
)
def test_a_contract_that_is_broken_in_the_file_is_found(decoder: Made, tmp_path: Path, change: Any, words: str) -> None:
    subject, outcome, files = decoder
    model = onnx_ir.load(files / "model.onnx")
    assert broken_contracts(subject, outcome, describe("model.onnx", model)) == {}

    change(model)
    onnx_ir.save(model, tmp_path / "model.onnx")
    found = broken_contracts(subject, outcome, describe("model.onnx", onnx_ir.load(tmp_path / "model.onnx")))

    assert {"transformers.js", "onnxruntime-genai", "optimum-onnx"} <= set(found)
    assert all(words in found[name] for name in ("transformers.js", "onnxruntime-genai", "optimum-onnx"))


def broken_contracts(subject: Subject, outcome: ExportOutcome, part: Component) -> dict[str, str]:
    """Client -> what breaks its contract, of a graph as it lies in a file."""
    export = msgspec.structs.replace(outcome, components=(part,))
    names = ("model.onnx", "model.onnx.data", "export.json")
    artifacts = tuple(made_up.artifact(f"onnx/{name}", b"x") for name in names)
    job = made_up.passed("onnx", export=export, artifacts=artifacts)
    genai = {"model": {"decoder": {"filename": "onnx/model.onnx", "num_hidden_layers": 2}}}
    side = frozenset({*subject.model.side_files, "genai_config.json"})
    offer = clients.Offer(subject.model, job, side, lambda path: genai if path == "genai_config.json" else {})
    rows = [(row.name, clients.broken(row, offer)) for row in clients.rows_of(job)]
    return {name: problem for name, problem in rows if problem}


def test_the_executorch_decoder_has_the_runners_methods_and_a_bounded_plan(
    subject_named: Callable[[str], Subject],
) -> None:
    from executorch.runtime import Runtime

    subject = subject_named("llama")
    outcome, files = subject.export("executorch-xnnpack")
    program = Runtime.get().load_program(files / "model.pte")

    def constant(name: str) -> Any:
        return program.load_method(name).execute([])

    assert constant("get_max_seq_len") == [128], "the model's context"
    assert constant("get_vocab_size") == [320]
    assert constant("get_eos_ids") == [2]
    assert {"use_kv_cache", "get_bos_id", "get_max_context_len", "get_n_layers"} <= program.method_names
    (component,) = outcome.components
    assert [port.name for port in component.inputs] == ["input_ids", "cache_position"]
    assert component.planned_memory is not None
    assert 0 < component.planned_memory < 50_000_000
    assert component.delegated is not None
    assert 0 < component.delegated <= 1
    assert outcome.restrictions == ("batch 1", "at most 128 tokens of text and answer together")


def test_the_executorch_cache_can_stay_outside(subject_named: Callable[[str], Subject]) -> None:
    subject = subject_named("llama")
    outcome, files = subject.export("executorch-xnnpack", generation={"cache": "dynamic", "max_cache_len": None})

    found = subject.verify("executorch-xnnpack", outcome, files)

    assert outcome.layout == "decoder"
    assert (found.passed, found.level) == (True, "parity"), found.reason


def test_an_executorch_bound_from_the_recipe_is_the_programs_bound(subject_named: Callable[[str], Subject]) -> None:
    outcome, _ = subject_named("bert").export("executorch-xnnpack", dynamic_shapes={"sequence_length": {"max": 70}})

    assert outcome.components[0].inputs[0].shape == (1, 70)
    assert "at most 70 tokens of input" in outcome.restrictions


def test_the_configuration_lies_beside_the_graphs_as_the_source_wrote_it(decoder: Made) -> None:
    subject, _, files = decoder

    for name in ("config.json", "generation_config.json"):
        assert (files / name).read_bytes() == (Path(subject.model.folder) / name).read_bytes()


def test_an_empty_cache_has_keys_and_values_of_no_tokens(subject_named: Callable[[str], Subject]) -> None:
    outcome, _ = subject_named("llama").export("dynamo")

    cache = empty_cache(outcome.components[0], batch=3)

    assert [tuple(leaf.shape) for leaf in cache] == [(3, 2, 0, 8)] * 4
