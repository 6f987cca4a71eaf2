"""Side files that are made for clients: what they say, and that nothing of the source's is touched."""

from __future__ import annotations

import json
from pathlib import Path

import made_up
import msgspec
import pytest

from hub_exporter import publish
from hub_exporter.adapt import adapted
from hub_exporter.records import INDEX_FILE, Index, from_json

CONFIG = {"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "eos_token_id": 7, "rms_norm_eps": 1e-05}


def model(tmp_path: Path, files: dict[str, object], **changes: object):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        made_up.write(tmp_path / "source" / name, text.encode())
    made = made_up.decoder()
    changes = {"folder": str(tmp_path / "source"), "side_files": tuple(sorted(files)), **changes}
    return msgspec.structs.replace(made, **changes)


def onnx(*extra: str, size: int = 9, **changes: object):
    files = [*made_up.FILES["onnx"][2], *extra]
    artifacts = tuple(made_up.artifact(f"onnx/{name}", b"x" * size) for name in files)
    return made_up.passed("onnx", layout="decoder", artifacts=artifacts, **changes)


def values(content: bytes) -> dict[str, object]:
    return json.loads(content)


def test_a_decoder_gets_the_configuration_of_onnx_runtime_genai(tmp_path):
    generation = {"bos_token_id": 0, "eos_token_id": [2, 9], "do_sample": True, "temperature": 0.2}
    source = model(tmp_path, {"config.json": CONFIG, "generation_config.json": generation})

    config = values(adapted(source, [onnx()], own=False)["genai_config.json"])

    assert config == {
        "model": {
            "bos_token_id": 0,
            "eos_token_id": [2, 9],
            "pad_token_id": 2,
            "context_length": 8192,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "onnx/model.onnx",
                "head_size": 64,
                "hidden_size": 576,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": 9,
                "num_hidden_layers": 1,
                "num_key_value_heads": 3,
            },
            "type": "llama",
            "vocab_size": 49152,
        },
        "search": {"do_sample": True, "temperature": 0.2, "max_length": 8192, "past_present_share_buffer": False},
    }


def test_a_model_type_that_genai_does_not_know_is_a_decoder(tmp_path):
    source = model(tmp_path, {"config.json": CONFIG}, model_type="stablelm")

    config = values(adapted(source, [onnx()], own=False)["genai_config.json"])

    assert (config["model"]["type"], config["model"]["eos_token_id"]) == ("decoder", 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": "cumulative_length"},
        {"outputs": "hidden_states"},
    ],
)
def test_a_decoder_with_other_ports_gets_none(tmp_path, changes):
    ((side, name),) = changes.items()
    export = made_up.outcome("onnx", "decoder")
    part = export.components[0]
    part = msgspec.structs.replace(part, **{side: (*getattr(part, side), made_up.port(name, 1))})
    job = onnx(export=msgspec.structs.replace(export, components=(part,)))

    assert "genai_config.json" not in adapted(model(tmp_path, {"config.json": CONFIG}), [job], own=False)


def test_a_cache_of_a_window_gets_none(tmp_path):
    export = made_up.outcome("onnx", "decoder")
    part = export.components[0]
    outputs = [msgspec.structs.replace(port, shape=("batch_size", 3, 7, 64)) for port in part.outputs[1:]]
    part = msgspec.structs.replace(part, outputs=(part.outputs[0], *outputs))
    job = onnx(export=msgspec.structs.replace(export, components=(part,)))

    assert "genai_config.json" not in adapted(model(tmp_path, {"config.json": CONFIG}), [job], own=False)


def test_transformers_js_is_told_that_there_is_no_quantised_file(tmp_path):
    source = model(tmp_path, {"config.json": CONFIG})

    written = adapted(source, [onnx()], own=False)["config.json"]

    assert values(written) == {**CONFIG, "transformers.js_config": {"dtype": "fp32"}}
    assert written.startswith((Path(source.folder) / "config.json").read_bytes().rstrip()[:-2])


def test_transformers_js_is_told_the_same_of_two_encoders(tmp_path):
    source = model(tmp_path, {"config.json": CONFIG})
    graphs = tuple(made_up.artifact(f"onnx/{name}.onnx", b"x") for name in ("text_model", "vision_model"))

    written = adapted(source, [made_up.passed("onnx", artifacts=graphs)], own=False)["config.json"]

    assert values(written) == {**CONFIG, "transformers.js_config": {"dtype": "fp32"}}


def test_transformers_js_is_told_of_data_beside_the_graph(tmp_path):
    source = model(tmp_path, {"config.json": {**CONFIG, "transformers.js_config": {"device": "webgpu"}}})

    written = adapted(source, [onnx("model.onnx_data", "model_quantized.onnx")], own=False)["config.json"]

    told = values(written)["transformers.js_config"]
    assert told == {"use_external_data_format": {"model.onnx": 1}, "device": "webgpu"}


def test_nothing_is_told_where_no_such_graph_was_made(tmp_path):
    source = model(tmp_path, {"config.json": CONFIG})

    assert adapted(source, [made_up.passed("openvino", layout="decoder")], own=False) == {}
    assert adapted(source, [made_up.not_passed("onnx", "failed", "broke")], own=False) == {}


def test_a_chat_template_in_a_file_is_put_into_the_tokenizers_configuration(tmp_path):
    files = {
        "config.json": CONFIG,
        "tokenizer_config.json": {"model_max_length": 9},
        "chat_template.jinja": "{{ 'ü' }}",
    }

    written = adapted(model(tmp_path, files), [], own=False)["tokenizer_config.json"]

    assert values(written) == {"model_max_length": 9, "chat_template": "{{ 'ü' }}"}


def test_a_chat_template_that_is_there_stays(tmp_path):
    files = {"tokenizer_config.json": {"chat_template": "a"}, "chat_template.jinja": "b"}

    assert adapted(model(tmp_path, files), [], own=False) == {}


def test_a_models_own_repository_gets_the_new_file_only(tmp_path):
    files = {"config.json": CONFIG, "tokenizer_config.json": {}, "chat_template.jinja": "b"}

    assert set(adapted(model(tmp_path, files), [onnx()], own=True)) == {"genai_config.json"}


# ── In a target ──


def written(tmp_path: Path, target: Path, files: dict[str, object]) -> Index:
    source = model(tmp_path, files)
    made = made_up.run(tmp_path, (made_up.passed("onnx", layout="decoder"),), source)
    for name, content in files.items():  # `run` wrote its own
        (tmp_path / "source" / name).write_text(json.dumps(content, indent=2) + "\n")
    publish.write_folder(target, made)
    return from_json((target / INDEX_FILE).read_bytes(), Index)


FILES = {"config.json": CONFIG, "tokenizer.json": {}, "tokenizer_config.json": {}}


def test_the_index_lists_adapted_files_as_they_are(tmp_path):
    target = tmp_path / "place" / "out"

    index = written(tmp_path, target, FILES)

    listed = {artifact.path: artifact for artifact in index.side_files}
    for name in ("config.json", "genai_config.json"):
        assert listed[name] == made_up.artifact(name, (target / name).read_bytes())
    assert (target / "tokenizer_config.json").read_bytes() == (tmp_path / "source/tokenizer_config.json").read_bytes()


def test_a_second_run_changes_nothing(tmp_path):
    target = tmp_path / "place" / "out"
    written(tmp_path, target, FILES)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}

    written(tmp_path, target, FILES)

    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before


def test_somebody_elses_configuration_for_genai_stays(tmp_path):
    target = tmp_path / "place" / "out"
    made_up.write(target / "genai_config.json", b"mine")

    index = written(tmp_path, target, FILES)

    assert (target / "genai_config.json").read_bytes() == b"mine"
    assert "genai_config.json" not in {artifact.path for artifact in index.side_files}


def test_the_models_own_folder_keeps_its_configuration(tmp_path):
    index = written(tmp_path, tmp_path / "source", FILES)

    assert json.loads((tmp_path / "source/config.json").read_bytes()) == CONFIG
    assert "genai_config.json" in {artifact.path for artifact in index.side_files}
