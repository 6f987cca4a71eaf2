from __future__ import annotations

import hashlib
import json
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hub_exporter import hub
from hub_exporter.errors import SourceError
from hub_exporter.files import listing
from hub_exporter.hub import Snapshot
from hub_exporter.recipe import requests
from hub_exporter.records import ResolvedModel
from hub_exporter.resolve import resolve

ModelFolder = Callable[..., Path]


def resolved(source: Path | str, **flags: Any) -> ResolvedModel:
    (request,) = requests(None, [str(source)], {f"--{name.replace('_', '-')}": value for name, value in flags.items()})
    return resolve(request)


def refusal(source: Path | str, **flags: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        resolved(source, **flags)
    assert caught.value.hint
    assert str(source) in str(caught.value)
    return caught.value


def test_folder_is_resolved_with_all_that_the_plan_needs(model_folder: ModelFolder) -> None:
    folder = model_folder(
        **{"README.md": "---\nlicense: apache-2.0\nlanguage:\n- en\n- no\ntags: [bert]\n---\n# Card\n"}
    )
    model = resolved(folder)

    assert (model.task, model.task_origin, model.auto_class) == ("fill-mask", "BertForMaskedLM", "AutoModelForMaskedLM")
    assert (model.name, model.repo, model.revision, model.folder) == ("tiny-bert", None, None, str(folder))
    assert (model.parameters, model.weight_bytes, model.dtypes) == (8, 32, {"F32": 8})
    assert (model.context_length, model.padding_side, model.model_type) == (32, "right", "bert")
    assert (model.license, model.languages, model.tags) == ("apache-2.0", ("en", "no"), ("bert",))
    assert model.side_files == ("config.json", "tokenizer.json", "tokenizer_config.json")
    assert not model.remote_code
    assert not model.sentence_transformers


def test_files_come_with_size_and_digest(model_folder: ModelFolder) -> None:
    folder = model_folder(**{"added_tokens.json": b""})
    files = {file.path: file for file in resolved(folder).files}

    assert set(files) == {
        "added_tokens.json",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    for path, file in files.items():
        content = (folder / path).read_bytes()
        assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_commit_of_a_folder_changes_with_its_files_and_nothing_else(model_folder: ModelFolder) -> None:
    folder = model_folder()
    commit = resolved(folder).commit
    assert commit.startswith("sha256:")

    (folder / "README.md").write_text("# Card\n")
    (folder / "notes.log").write_text("x")
    assert resolved(folder).commit == commit

    (folder / "tokenizer.json").write_text("{}")
    assert resolved(folder).commit != commit


@pytest.mark.parametrize(
    ("folder", "name"),
    [("Qwen2.5-0.5B", "Qwen2_5-0_5B"), ("my model (v1)", "my-model--v1-"), ("bert_base", "bert_base")],
)
def test_name_has_no_dot_and_no_odd_characters(model_folder: ModelFolder, folder: str, name: str) -> None:
    assert resolved(model_folder(folder)).name == name


def test_folder_may_be_relative_or_below_home(model_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder("org/model@v1")
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent.parent))

    assert resolved("./model@v1").folder == resolved("~/org/model@v1").folder == str(folder)
    assert resolved("./model@v1").source == "./model@v1"


def test_task_of_the_user_wins_and_its_origin_is_told(model_folder: ModelFolder) -> None:
    model = resolved(model_folder(), task="text-classification")

    assert (model.task, model.task_origin) == ("text-classification", "--task")
    assert model.auto_class == "AutoModelForSequenceClassification"


def modules(*names: str) -> list[dict[str, str]]:
    return [{"path": "", "type": f"sentence_transformers.models.{name}"} for name in names]


def test_sentence_transformers_repository_is_recognised(model_folder: ModelFolder) -> None:
    folder = model_folder(
        config={"architectures": ["Qwen3ForCausalLM"]},
        **{
            "modules.json": modules("Transformer", "Pooling", "Normalize"),
            "1_Pooling/config.json": {},
            "2_Dense/config.json": {},
            "2_Dense/model.safetensors": b"",
        },
    )
    model = resolved(folder)

    assert (model.task, model.task_origin, model.auto_class) == ("sentence-similarity", "modules.json", "AutoModel")
    assert model.sentence_transformers
    assert {"1_Pooling/config.json", "2_Dense/config.json", "modules.json"} <= set(model.side_files)
    assert "2_Dense/model.safetensors" not in model.side_files


@pytest.mark.parametrize(
    "files",
    [
        {"modules.json": modules("MLMTransformer", "SpladePooling")},
        {
            "modules.json": modules("Transformer", "Pooling"),
            "config_sentence_transformers.json": {"model_type": "SparseEncoder"},
        },
    ],
)
def test_head_of_a_sparse_encoder_is_kept(model_folder: ModelFolder, files: dict[str, Any]) -> None:
    assert resolved(model_folder(**files)).task == "fill-mask"


def test_decoder_pads_left_whatever_its_tokenizer_says(model_folder: ModelFolder) -> None:
    right = {"tokenizer_config.json": {"padding_side": "right"}}
    left = {"tokenizer_config.json": {"padding_side": "left"}}

    assert resolved(model_folder("a", {"architectures": ["LlamaForCausalLM"]}, **right)).padding_side == "left"
    assert resolved(model_folder("b", {"architectures": ["LlamaModel"]}, **left)).padding_side == "left"


# ── The Hub ───────────────────────────────────────────────────────────────────────────────────────────────────────


def on_the_hub(monkeypatch: pytest.MonkeyPatch, folder: Path, *unfetched: str) -> list[tuple[str, str | None, bool]]:
    """Puts a folder in the place of what the Hub would send; the calls are noted."""
    calls = []

    def fetch(repo: str, revision: str | None, *, code: bool, weights: bool) -> Snapshot:
        assert not weights
        calls.append((repo, revision, code))
        return Snapshot(repo, revision, "c0ffee", folder, (*listing(folder), *unfetched))

    monkeypatch.setattr(hub, "fetch", fetch)
    return calls


def test_model_of_the_hub_keeps_its_id_revision_and_commit(
    model_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = on_the_hub(monkeypatch, model_folder())
    model = resolved("org/Tiny.Bert@v1.2", trust_remote_code=True)

    assert (model.name, model.repo, model.revision) == ("Tiny_Bert", "org/Tiny.Bert", "v1.2")
    assert (model.commit, model.source) == ("c0ffee", "org/Tiny.Bert@v1.2")
    assert calls == [("org/Tiny.Bert", "v1.2", True)]


def test_weights_that_were_not_fetched_are_named(model_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_hub(monkeypatch, model_folder(**{"model.safetensors": None}), "pytorch_model.bin")

    assert "pickle" in str(refusal("org/model"))


def test_code_of_a_repository_needs_the_commit_that_was_read(
    model_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_hub(monkeypatch, model_folder(config={"auto_map": {"AutoModel": "modeling.Foo"}}))

    for source in ("org/code", "org/code@main", "org/code@v1"):
        with pytest.raises(SourceError, match="may bring other code tomorrow") as caught:
            resolved(source, trust_remote_code=True)
        assert "`org/code@c0ffee`" in str(caught.value.hint)
    assert resolved("org/code@" + "ab" * 20, trust_remote_code=True).remote_code


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", ["./missing", "missing", "a/b/c", "/no/such/folder", "~no-such-user/x", "org/../x"])
def test_missing_folder_is_refused(source: str) -> None:
    assert f"There is no folder `{source}`" in str(refusal(source))


def test_unreadable_path_is_refused() -> None:
    assert "cannot be read: File name too long" in str(refusal("x" * 5000))


def test_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("")

    assert "is a file" in str(refusal(tmp_path / "model.onnx"))


def test_folder_without_configuration_is_refused(model_folder: ModelFolder) -> None:
    assert "has no `config.json`" in str(refusal(model_folder(**{"config.json": None})))


@pytest.mark.parametrize(
    ("file", "hint"),
    [("adapter_config.json", "merge it"), ("q4.gguf", "original checkpoint"), ("model_index.json", "diffusers")],
)
def test_folder_of_another_kind_is_explained(model_folder: ModelFolder, file: str, hint: str) -> None:
    assert hint in str(refusal(model_folder(**{"config.json": None, file: "{}"})).hint)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json", "modules.json"])
@pytest.mark.parametrize("content", ["{", "", b"\xff\xfe", "3", "[" * 100_000])
def test_broken_json_is_refused(model_folder: ModelFolder, name: str, content: str | bytes) -> None:
    assert f"`{name}`" in str(refusal(model_folder(**{name: content})))


def test_numbers_that_only_python_writes_are_read(model_folder: ModelFolder) -> None:
    folder = model_folder(config={"time_step_limit": [0.0, float("inf")], "x": float("nan")})

    assert "Infinity" in (folder / "config.json").read_text()
    assert resolved(folder).task == "fill-mask"


@pytest.mark.parametrize("value", [None, [], "BertForMaskedLM", [3]])
def test_configuration_without_architecture_is_refused(model_folder: ModelFolder, value: Any) -> None:
    assert "names no `architectures`" in str(refusal(model_folder(config={"architectures": value})))


def test_unknown_task_is_refused_with_all_that_are_known(model_folder: ModelFolder) -> None:
    folder = model_folder(config={"architectures": ["BertForMultipleChoice"]})
    error = refusal(folder)

    assert "the task of `BertForMultipleChoice` is not known" in str(error)
    assert "`--task`" in str(error.hint)
    assert "`fill-mask`" in str(error.hint)
    assert resolved(folder, task="fill-mask").task == "fill-mask"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"vision_config": {}}, "vision"),
        ({"image_size": 224}, "vision"),
        ({"audio_config": {}}, "audio"),
        ({"model_type": "whisper", "num_mel_bins": 80}, "audio"),
        ({"model_type": "wav2vec2", "feat_extract_norm": "group"}, "audio"),
        ({"encoder": {"patch_size": 16}}, "vision"),
        ({"prediction_length": 24}, "time series"),
    ],
)
def test_a_model_of_pictures_or_sounds_is_not_taken_for_a_text_model(
    model_folder: ModelFolder, config: dict[str, Any], what: str
) -> None:
    error = refusal(model_folder(config=config))

    assert what in str(error)
    assert "feeds a model with text alone" in str(error)
    assert "`image-classification`" in str(error.hint)


def test_bare_model_without_vocabulary_is_not_taken_for_a_text_encoder(model_folder: ModelFolder) -> None:
    assert "`vocab_size`" in str(refusal(model_folder(config={"architectures": ["RegNetModel"], "vocab_size": None})))


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_remote_code_needs_consent(model_folder: ModelFolder, where: str) -> None:
    auto_map = {"auto_map": {"AutoModel": "modeling.Foo"}}
    files: dict[str, Any] = {"modeling.py": "raise SystemExit", "tokenizer_config.json": {}}
    if where == "config.json":
        folder = model_folder(config=auto_map, **files)
    else:
        folder = model_folder(**files | {where: auto_map})

    assert "--trust-remote-code" in str(refusal(folder).hint)
    model = resolved(folder, trust_remote_code=True)
    assert model.remote_code
    assert "modeling.py" in [file.path for file in model.files]
    assert "modeling.py" not in model.side_files


def test_quantised_checkpoint_is_refused(model_folder: ModelFolder) -> None:
    error = refusal(model_folder(config={"quantization_config": {"quant_method": "gptq"}}))

    assert "quantised already (`gptq`)" in str(error)


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"architectures": ["ViTForImageClassification"], "image_size": 224}, "image-classification"),
        ({"architectures": ["ResNetModel"], "num_channels": 3, "vocab_size": None}, "image-feature-extraction"),
        ({"architectures": ["DetrForObjectDetection"], "is_encoder_decoder": True}, "object-detection"),
        ({"architectures": ["Wav2Vec2ForCTC"], "feat_extract_norm": "layer"}, "automatic-speech-recognition"),
        ({"architectures": ["Wav2Vec2ForSequenceClassification"], "num_mel_bins": 80}, "audio-classification"),
        ({"architectures": ["CLIPModel"], "vision_config": {}, "text_config": {}}, "zero-shot-image-classification"),
    ],
)
def test_a_model_that_reads_no_text_needs_its_processor(
    model_folder: ModelFolder, config: dict[str, Any], task: str
) -> None:
    folder = model_folder(config=config)

    assert f"no `preprocessor_config.json`, so that no inputs can be made for `{task}`" in str(refusal(folder))
    (folder / "preprocessor_config.json").write_text("{}", "utf-8")
    model = resolved(folder)
    assert model.task == task
    assert "preprocessor_config.json" in model.side_files


def test_series_need_no_processor_and_their_class_loads_itself(model_folder: ModelFolder) -> None:
    series = {"architectures": ["PatchTSTForPrediction"], "prediction_length": 24}
    model = resolved(model_folder(config=series, **{"tokenizer.json": None, "tokenizer_config.json": None}))

    assert (model.task, model.auto_class) == ("time-series-forecasting", "PatchTSTForPrediction")


def test_model_without_tokenizer_is_refused(model_folder: ModelFolder) -> None:
    folder = model_folder(**{"tokenizer.json": None, "tokenizer_config.json": None})

    assert "has no tokenizer" in str(refusal(folder))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("pytorch_model.bin", "pickle"),
        ("pytorch_model-00001-of-00002.bin", "pickle"),
        ("model.pt", "pickle"),
        ("model.Q4_K_M.gguf", "GGUF"),
        ("tf_model.h5", "TensorFlow"),
        ("flax_model.msgpack", "Flax"),
        ("adapter_config.json", "adapter"),
        ("consolidated.safetensors", "has no weights"),
        ("other.txt", "has no weights"),
    ],
)
def test_folder_without_safetensors_weights_is_refused(model_folder: ModelFolder, file: str, words: str) -> None:
    assert words in str(refusal(model_folder(**{"model.safetensors": None, file: b"{}"})))


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


TENSOR = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty or cut off"),
        (b"\x00" * 7, "empty or cut off"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n", "does not begin like"),
        (safetensors(TENSOR, b"\x00" * 7), "is cut off: its tensors need 8 bytes, it has 7"),
        (safetensors(TENSOR, b"\x00" * 9), "1 bytes follow the last tensor"),
        (safetensors(TENSOR, length=5000), "is cut off: the header alone has 5000 bytes"),
        (safetensors(b"{nonsense}", b"\x00" * 8), "header is not readable"),
        (safetensors(b"[1, 2, 3, 4]"), "header is not readable"),
        (safetensors(b"[" * 100_000), "header is not readable"),
        (safetensors({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, b"\x00" * 8), "not readable"),
        (safetensors({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, b"\x00" * 8), "does not lie where"),
        (safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, b"\x00" * 12), "does not lie"),
        (safetensors({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}}), "does not lie"),
    ],
)
def test_damaged_weights_are_refused(model_folder: ModelFolder, content: bytes, words: str) -> None:
    error = refusal(model_folder(**{"model.safetensors": content}))

    assert "`model.safetensors` is damaged" in str(error)
    assert words in str(error)


def sharded(folder: Path, weight_map: dict[str, str]) -> Path:
    (folder / "model.safetensors").unlink()
    save_file({"a": np.zeros(3, np.float32)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": np.zeros(5, np.float16)}, folder / "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


WEIGHT_MAP = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}


def test_shards_are_added_up(model_folder: ModelFolder) -> None:
    model = resolved(sharded(model_folder(), WEIGHT_MAP))

    assert (model.parameters, model.weight_bytes, model.dtypes) == (8, 22, {"F16": 5, "F32": 3})
    assert {file.path for file in model.files} >= {*WEIGHT_MAP.values(), "model.safetensors.index.json"}


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        (WEIGHT_MAP | {"c": "model-00003-of-00003.safetensors"}, "`model-00003-of-00003.safetensors`"),
        (WEIGHT_MAP | {"c": WEIGHT_MAP["a"]}, "promises `c` in `model-00001-of-00002.safetensors`"),
        ({"a": "../model.safetensors"}, "which is not a shard beside it"),
        ({"a": "/etc/passwd"}, "which is not a shard beside it"),
        ({"a": 3}, "which is not a shard beside it"),
        ({}, "is not an index of shards"),
        (["a"], "is not an index of shards"),
    ],
)
def test_broken_index_is_refused(model_folder: ModelFolder, weight_map: Any, words: str) -> None:
    assert words in str(refusal(sharded(model_folder(), weight_map)))


def test_link_out_of_the_folder_is_refused(model_folder: ModelFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = model_folder()
    (folder / "chat_template.jinja").symlink_to(tmp_path / "secret")

    assert "`chat_template.jinja` is a link that leads out of the folder" in str(refusal(folder))


def test_linked_subfolder_is_refused(model_folder: ModelFolder, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "default.jinja").write_text("x")
    folder = model_folder()
    (folder / "chat_templates").symlink_to(tmp_path / "secrets")

    assert "leads out of the folder" in str(refusal(folder))


def test_links_within_a_snapshot_of_the_hub_are_fine(model_folder: ModelFolder) -> None:
    folder = model_folder("models--org--bert/snapshots/0123")
    blobs = folder.parent.parent / "blobs"
    blobs.mkdir()
    (folder / "config.json").rename(blobs / "abc")
    (folder / "config.json").symlink_to(Path("../../blobs/abc"))

    assert resolved(folder).task == "fill-mask"


@pytest.mark.parametrize(
    "front_matter",
    [
        "license: [unclosed",
        "- a\n- b",
        "license: {a: 1}\ntags: 3\nlanguage: {x: y}",
        "license: !!python/object/apply:os.system ['true']",
        "a: &a [x,x]\nb: &b [*a,*a]\nlicense: *b",
        "[" * 1500,
        "? [a]\n: b",
    ],
)
def test_hostile_front_matter_is_survived(
    model_folder: ModelFolder, front_matter: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        model = resolved(model_folder(**{"README.md": f"---\n{front_matter}\n---\n"}))

    assert isinstance(model.license, str | None)
    assert all(isinstance(tag, str) for tag in (*model.tags, *model.languages))


def test_unreadable_front_matter_is_told(model_folder: ModelFolder, caplog: pytest.LogCaptureFixture) -> None:
    resolved(model_folder(**{"README.md": "---\nlicense: [unclosed\n---\n"}))

    assert "licence and tags are left out" in caplog.text


# ── Context length ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "limit", "length"),
    [
        ({"max_position_embeddings": 512}, None, 512),
        ({"n_positions": 1024}, None, 1024),
        ({"n_ctx": 77}, None, 77),
        ({}, None, None),
        ({"max_position_embeddings": -1}, None, None),
        ({"max_position_embeddings": "512"}, None, None),
        ({"max_position_embeddings": float("inf")}, None, None),
        ({"text_config": {"max_position_embeddings": 4096}}, None, 4096),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, None, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514}, None, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512, 512),
        ({"max_position_embeddings": 512}, 256, 256),
        ({"max_position_embeddings": 512}, 1000000000000000019884624838656, 512),
        ({"max_position_embeddings": 512}, 0, 512),
        ({}, 512, 512),
    ],
)
def test_context_length_is_what_configuration_and_tokenizer_allow(
    model_folder: ModelFolder, config: dict[str, Any], limit: Any, length: int | None
) -> None:
    folder = model_folder(
        config={"max_position_embeddings": None, **config},
        **{"tokenizer_config.json": {"model_max_length": limit}, "sentence_bert_config.json": {"max_seq_length": 8}},
    )

    assert resolved(folder).context_length == length
