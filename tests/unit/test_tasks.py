from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

from hub_exporter.catalogue import BACKENDS, COMMON_OPTIONS, DEFAULT_BACKENDS, RUNNERS, VARIANTS
from hub_exporter.records import DatasetSpec, EngineOptions
from hub_exporter.tasks import TASKS, auto_class_of, dataset_for, task_of

MAPPINGS = {
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "text-generation",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "fill-mask",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": "text-classification",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": "token-classification",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": "question-answering",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "text2text-generation",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "image-classification",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES": "object-detection",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES": "image-segmentation",
    "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES": "image-segmentation",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES": "depth-estimation",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": "audio-classification",
    "MODEL_FOR_CTC_MAPPING_NAMES": "automatic-speech-recognition",
}
UNDECIDED = {
    "BertGenerationDecoder",
    "SeamlessM4TForTextToText",
    "SeamlessM4Tv2ForTextToText",
    "OneFormerForUniversalSegmentation",
}
"""Their names do not tell, and `--task` says it; OneFormer must be told its task in words beside the picture."""


def transformers_classes(mapping: str) -> list[str]:
    """The classes of one of transformers' tables, read from its source: importing it would import torch."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "models/auto/modeling_auto.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == mapping:
            assert isinstance(node.value, ast.Call)
            assert isinstance(node.value.args[0], ast.List)
            pairs = [ast.literal_eval(pair) for pair in node.value.args[0].elts if isinstance(pair, ast.Tuple)]
            return [pair[1] for pair in pairs if isinstance(pair[1], str)]
    raise AssertionError(mapping)


@pytest.mark.parametrize(("mapping", "task"), MAPPINGS.items())
def test_classes_that_transformers_loads_for_a_task_have_that_task(mapping: str, task: str) -> None:
    encoder_decoder = task == "text2text-generation"
    classes = [name for name in transformers_classes(mapping) if name not in UNDECIDED]
    if not encoder_decoder:  # some multimodal and encoder-decoder classes stand in these tables too
        classes = [name for name in classes if not name.endswith(("ForConditionalGeneration", "XLMWithLMHeadModel"))]

    assert len(classes) > 5
    assert {name: task_of(name, encoder_decoder) for name in classes} == dict.fromkeys(classes, task)


@pytest.mark.parametrize("encoder_decoder", [False, True])
@pytest.mark.parametrize("mapping", [*MAPPINGS, "MODEL_FOR_PRETRAINING_MAPPING_NAMES"])
def test_class_with_a_head_is_never_feature_extraction(mapping: str, encoder_decoder: bool) -> None:
    heads = [name for name in transformers_classes(mapping) if not name.endswith("EncoderModel")]

    assert not [name for name in heads if task_of(name, encoder_decoder) == "feature-extraction"]


@pytest.mark.parametrize(
    ("architecture", "encoder_decoder", "task"),
    [
        ("BertModel", False, "feature-extraction"),
        ("LongformerModel", False, "feature-extraction"),
        ("VitsModel", False, "text-to-audio"),
        ("T5EncoderModel", True, "feature-extraction"),
        ("T5Model", True, None),  # both halves, no head: nothing that one graph could be
        ("BertForPreTraining", False, "fill-mask"),
        ("ElectraForPreTraining", False, None),  # a discriminator
        ("T5WithLMHeadModel", True, "text2text-generation"),
        ("FlaubertWithLMHeadModel", False, "fill-mask"),
        ("EncoderDecoderModel", True, "text2text-generation"),
        ("MarianMTModel", False, None),
        ("GPT2DoubleHeadsModel", False, None),
        ("Qwen2ForRewardModel", False, None),
        ("BertForMultipleChoice", False, None),
        ("LlavaForConditionalGeneration", False, "image-text-to-text"),
        ("Qwen2_5_VLForConditionalGeneration", False, "image-text-to-text"),
        ("LlavaNextForConditionalGeneration", False, None),  # puts its tiles together in a way of its own
        ("Qwen2AudioForConditionalGeneration", False, "audio-text-to-text"),
        ("WhisperForConditionalGeneration", True, "speech-seq2seq"),
        ("FooBar", False, None),
    ],
)
def test_task_follows_from_the_class_name(architecture: str, encoder_decoder: bool, task: str | None) -> None:
    assert task_of(architecture, encoder_decoder) == task


def test_encoder_of_t5_is_not_loaded_as_a_whole_t5() -> None:
    task = TASKS["feature-extraction"]

    assert auto_class_of(task, "T5EncoderModel") == "AutoModelForTextEncoding"
    assert auto_class_of(task, "BertModel") == "AutoModel"


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_row_of_every_task_is_complete(task: object) -> None:
    row = next(row for row in TASKS.values() if row is task)

    assert row.dataset.path.count("/") == 1
    assert row.licence
    assert row.dataset.rows >= 8
    assert all(column in {name for columns in row.reads for name in columns} for column in row.dataset.columns)
    assert (row.layout in ("decoder", "multimodal")) == (row.padding_side == "left")


def test_dataset_of_a_task_is_used_where_none_is_named() -> None:
    task = TASKS["fill-mask"]

    assert dataset_for(task, None) == task.dataset
    assert dataset_for(task, DatasetSpec(rows=32)).rows == 32
    assert dataset_for(task, DatasetSpec(rows=32)).path == task.dataset.path
    assert dataset_for(task, DatasetSpec(path="rows.jsonl")) == DatasetSpec(path="rows.jsonl")


def test_every_engine_option_belongs_to_a_backend() -> None:
    known = COMMON_OPTIONS.union(*(backend.options for backend in BACKENDS.values()))

    assert known == set(EngineOptions.__struct_fields__)


def test_backends_are_consistent_rows() -> None:
    assert DEFAULT_BACKENDS == ("onnx", "openvino", "executorch-xnnpack", "dynamo")
    for backend in BACKENDS.values():
        assert "." not in backend.name
        assert backend.runner in RUNNERS
        assert set(backend.variants) <= set(VARIANTS)
    folders = [backend.folder for backend in BACKENDS.values()]
    assert len(set(folders)) == len(folders)
