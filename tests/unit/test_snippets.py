"""The examples of a card: Python that runs, for every backend and kind of model."""

from __future__ import annotations

import ast
import json
import sys
import types

import made_up
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from hub_exporter.card import render_card
from hub_exporter.records import Component
from hub_exporter.snippets import PACKAGES, install_line, render_snippet

VOCABULARY = 32


def encoder_decoder(backend: str):
    axes = ("batch_size", "sequence_length")
    cross, own = (
        [made_up.port(f"past_key_values.0.{side}.{part}", *shape, dtype="float32") for part in ("key", "value")]
        for side, shape in (("encoder", "????"), ("decoder", ("b", 2, "t", 4)))
    )
    given = [
        [msgspec.structs.replace(port, name=port.name.replace("past_key_values", "present")) for port in ports]
        for ports in (cross, own)
    ]
    encoder = Component(
        name="encoder",
        file="encoder.bin",
        inputs=(made_up.port("input_ids", *axes), made_up.port("attention_mask", *axes)),
        outputs=tuple(given[0]),
    )
    decode = Component(
        name="decode",
        file="decode.bin",
        inputs=(made_up.port("input_ids", *axes), *cross, *own, made_up.port("encoder_attention_mask", *axes)),
        outputs=(made_up.port("logits", *axes, 7, dtype="float32"), *given[1]),
    )
    return msgspec.structs.replace(made_up.outcome(backend), layout="encoder-decoder", components=(encoder, decode))


def hears(backend: str):
    """Whisper's kind: neither the encoder nor the decoder takes a mask."""
    export = encoder_decoder(backend)
    encoder, decode = export.components
    sound = made_up.port("input_features", "batch_size", 80, 3000, dtype="float32")
    text = tuple(port for port in decode.inputs if "mask" not in port.name)
    parts = (msgspec.structs.replace(encoder, inputs=(sound,)), msgspec.structs.replace(decode, inputs=text))
    return msgspec.structs.replace(export, components=parts)


def sees(backend: str, places: tuple[str, ...] = ("batch_size", "sequence_length")):
    """LLaVA's kind: embeddings and one position for each token."""
    axes = ("batch_size", "sequence_length")
    cache = [made_up.port(f"past_key_values.0.{part}", "b", 2, "t", 4, dtype="float32") for part in ("key", "value")]
    given = [msgspec.structs.replace(port, name=port.name.replace("past_key_values", "present")) for port in cache]
    pixels = made_up.port("pixel_values", "b", 3, 8, 8, dtype="float32")
    features = made_up.port("image_features", "b", 4, 8, dtype="float32")
    ids, mask = (made_up.port(name, *axes) for name in ("input_ids", "attention_mask"))
    positions = made_up.port("position_ids", *places)
    embeddings = made_up.port("inputs_embeds", *axes, 8, dtype="float32")
    logits = made_up.port("logits", *axes, 7, dtype="float32")
    parts = (
        Component(name="image_encoder", file="image_encoder.bin", inputs=(pixels,), outputs=(features,)),
        Component(name="embed_tokens", file="embed_tokens.bin", inputs=(ids,), outputs=(embeddings,)),
        Component(
            name="decode", file="decode.bin", inputs=(embeddings, mask, positions, *cache), outputs=(logits, *given)
        ),
    )
    return msgspec.structs.replace(made_up.outcome(backend), layout="multimodal", components=parts)


@pytest.mark.parametrize(
    "task",
    [
        "sentence-similarity",
        "feature-extraction",
        "fill-mask",
        "text-classification",
        "token-classification",
        "question-answering",
    ],
)
@pytest.mark.parametrize("backend", PACKAGES)
def test_the_examples_of_encoders_are_python(backend, task):
    index = made_up.index(made_up.encoder(task=task, sentence_transformers=task == "sentence-similarity"))

    ast.parse(render_snippet(index, made_up.passed(backend)))


def fed(backend: str, *ports: tuple[str, int], **changes: object):
    """An encoder that takes these inputs."""
    export = made_up.outcome(backend, "encoder")
    inputs = tuple(made_up.port(name, *("batch_size", 8, 9, 10)[:rank], dtype="float32") for name, rank in ports)
    component = msgspec.structs.replace(export.components[0], inputs=inputs)
    return msgspec.structs.replace(export, components=(component,), **changes)


OTHER_TASKS = {
    "image-classification": [("pixel_values", 4)],
    "image-feature-extraction": [("pixel_values", 4)],
    "object-detection": [("pixel_values", 4), ("pixel_mask", 3)],
    "image-segmentation": [("pixel_values", 4)],
    "depth-estimation": [("pixel_values", 4)],
    "zero-shot-image-classification": [("input_ids", 2), ("pixel_values", 4), ("attention_mask", 2)],
    "audio-classification": [("input_values", 2)],
    "automatic-speech-recognition": [("input_values", 2), ("attention_mask", 2)],
    "time-series-forecasting": [("past_values", 3)],
}


@pytest.mark.parametrize("task", OTHER_TASKS)
@pytest.mark.parametrize("backend", PACKAGES)
def test_the_examples_of_pictures_sounds_and_series_are_python_and_feed_every_input(backend, task):
    export = fed(backend, *OTHER_TASKS[task])
    text = render_snippet(made_up.index(made_up.encoder(task=task)), made_up.passed(backend, export=export))

    if backend.startswith("executorch") and task.startswith("zero-shot"):
        assert text is None, "it would take one picture and one text at a time"
        return
    ast.parse(text)
    assert all(f'"{name}":' in text for name, _ in OTHER_TASKS[task])
    line = install_line(made_up.index(), made_up.passed(backend, export=export))
    assert ("pillow" in line) == ("PIL" in text)
    assert ("transformers" in line) == ("transformers" in text)
    assert ("tokenizers" in line) == ("Tokenizer" in text)


def test_a_graph_of_fixed_pictures_has_no_example_and_one_of_fixed_sounds_is_fed_with_as_many_samples():
    pictures = fed("onnx", ("pixel_values", 4), fixed={"height": 800, "width": 1066})
    sounds = fed("onnx", ("input_values", 2), fixed={"sequence_length": 30401})
    index = made_up.index(made_up.encoder(task="audio-classification"))

    assert render_snippet(index, made_up.passed("onnx", export=pictures)) is None
    assert "np.arange(30401)" in render_snippet(index, made_up.passed("onnx", export=sounds))


@pytest.mark.parametrize("backend", PACKAGES)
def test_the_examples_of_generative_models_are_python_and_feed_every_input(backend):
    for export in (made_up.outcome(backend, "decoder"), encoder_decoder(backend), hears(backend), sees(backend)):
        text = render_snippet(made_up.index(made_up.decoder()), made_up.passed(backend, export=export))

        ast.parse(text)
        if "executorch" not in backend:
            assert all(f'"{port.name}":' in text for port in export.components[0].inputs if "past" not in port.name)


def test_a_set_that_is_driven_in_another_way_has_no_example():
    rows_of_places, index = sees("onnx", (3, "batch_size", "sequence_length")), made_up.index(made_up.decoder())
    encoder, decode = hears("onnx").components
    masked = msgspec.structs.replace(encoder, inputs=(*encoder.inputs, made_up.port("attention_mask", "b", 3000)))

    assert render_snippet(index, made_up.passed("onnx", export=rows_of_places)) is None
    export = msgspec.structs.replace(hears("onnx"), components=(masked, decode))
    assert render_snippet(index, made_up.passed("onnx", export=export)) is None


def test_a_picture_is_asked_about_in_a_chat_where_the_model_has_a_template_for_one():
    result = made_up.passed("onnx", export=sees("onnx"))
    plain = made_up.index(made_up.decoder())
    chat = made_up.index(msgspec.structs.replace(made_up.decoder(), side_files=("chat_template.jinja", "config.json")))

    assert "apply_chat_template" in render_snippet(chat, result)
    assert "apply_chat_template" not in render_snippet(plain, result)
    assert install_line(chat, result) == f"{install_line(plain, result)} jinja2"


@settings(max_examples=50)
@given(st.text(min_size=1))
def test_no_file_name_gets_out_of_its_literal(name):
    component = msgspec.structs.replace(made_up.outcome("onnx").components[0], file=name)
    result = made_up.passed("onnx", export=made_up.outcome("onnx", components=(component,)))

    tree = ast.parse(render_snippet(made_up.index(), result))

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    session = next(call for call in calls if getattr(call.func, "attr", "") == "InferenceSession")
    assert ast.literal_eval(session.args[0]) == f"onnx/{name}"


def test_inputs_that_no_example_knows_are_listed_instead():
    component = msgspec.structs.replace(
        made_up.outcome("onnx").components[0], inputs=(made_up.port("bbox", "batch_size", 4, dtype="float32"),)
    )
    result = made_up.passed("onnx", export=made_up.outcome("onnx", components=(component,)))

    assert render_snippet(made_up.index(), result) is None
    assert "- model takes bbox: float32 (batch_size, 4)" in render_card(made_up.index(jobs=(result,)))


def test_there_is_no_example_without_a_tokenizer_file():
    index = made_up.index(made_up.encoder(side_files=("config.json", "vocab.txt")))

    assert render_snippet(index, made_up.passed("onnx")) is None


def test_the_install_line_pins_what_was_used_and_nothing_more():
    line = install_line(made_up.index(), made_up.passed("onnx"))

    assert line == "pip install onnxruntime==1.32.0 numpy==2.4.6 tokenizers==0.23.3"
    assert "torch==2.13.0 " in install_line(made_up.index(), made_up.passed("dynamo"))


# ── Run, with a runtime that answers at random ──


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What a written folder has beside the graphs; it is the current directory."""
    words = ["[PAD]", "[MASK]", "</s>", "The", "cat", "France", "."]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[MASK]", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"eos_token_id": 2, "decoder_start_token_id": 0, "pad_token_id": 0, "id2label": {"0": "good", "1": "bad"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 9]}))
    made_up.write(tmp_path / "1_Pooling" / "config.json", b'{"pooling_mode_mean_tokens": true}')
    monkeypatch.chdir(tmp_path)


class RandomSession:
    """Stands for an ONNX Runtime session with the outputs that `outputs` names and sizes."""

    outputs: dict[str, tuple[int, ...]]

    def __init__(self, file: str, providers: list[str]):
        self._random = np.random.default_rng(0)

    def get_inputs(self) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(name=f"past_key_values.0.{part}") for part in ("key", "value")]

    def get_outputs(self) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(name=name) for name in self.outputs]

    def run(self, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        shape = inputs["input_ids"].shape
        assert len({value.shape[0] for value in inputs.values()}) == 1
        if "position_ids" in inputs:
            assert inputs["position_ids"].shape == shape
            assert inputs["attention_mask"].shape[1] == inputs["past_key_values.0.key"].shape[2] + shape[1]
        caches = {
            name: np.concatenate(
                [value, value[:, :, :1] if value.shape[2] else np.zeros((*value.shape[:2], shape[1], 4))], 2
            )
            for name, value in inputs.items()
            if name.startswith("past")
        }
        return [
            caches[name.replace("present", "past_key_values")]
            if name.startswith("present")
            else self._random.normal(size=(*shape, *self.outputs[name])).astype(np.float32)
            for name in names
        ]


def run(text: str, monkeypatch, outputs: dict[str, tuple[int, ...]]) -> None:
    runtime = types.ModuleType("onnxruntime")
    runtime.InferenceSession = type("Session", (RandomSession,), {"outputs": outputs})
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    exec(compile(text, "example", "exec"), {})


@pytest.mark.parametrize(
    ("task", "outputs", "lines"),
    [
        ("sentence-similarity", {"last_hidden_state": (8,)}, 3),
        ("feature-extraction", {"last_hidden_state": (8,), "pooler_output": ()}, 2),
        ("fill-mask", {"logits": (7,)}, 2),
        ("token-classification", {"logits": (2,)}, 2),
        ("question-answering", {"start_logits": (), "end_logits": ()}, 1),
    ],
)
@pytest.mark.usefixtures("folder")
def test_an_encoder_example_prints_an_answer_for_every_text(task, outputs, lines, monkeypatch, capsys):
    model = made_up.encoder(task=task, sentence_transformers=task == "sentence-similarity")

    run(render_snippet(made_up.index(model), made_up.passed("onnx")), monkeypatch, outputs)

    assert len(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.usefixtures("folder")
def test_a_decoder_example_feeds_cache_mask_and_positions_of_fitting_sizes(monkeypatch, capsys):
    export = made_up.outcome("onnx", "decoder")
    ports = [
        msgspec.structs.replace(port, shape=("batch_size", 2, "past_sequence_length", 4))
        if "past" in port.name
        else port
        for port in export.components[0].inputs
    ]
    component = msgspec.structs.replace(export.components[0], inputs=tuple(ports))
    result = made_up.passed("onnx", export=msgspec.structs.replace(export, components=(component,)))
    outputs = {"logits": (7,), "present.0.key": (), "present.0.value": ()}

    run(render_snippet(made_up.index(made_up.decoder()), result), monkeypatch, outputs)

    assert len(capsys.readouterr().out.splitlines()) == 2
