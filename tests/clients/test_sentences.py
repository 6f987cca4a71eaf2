"""A sentence model in the clients that embed with it: each has to give the vectors of eager transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import client_environments
import numpy as np
import pytest
from card_examples import output_in, output_in_node
from published import Published, publish
from real_models import minilm
from running_hub import Hub

from hub_exporter.records import Index, from_json

pytestmark = pytest.mark.clients

TEXTS = [
    "The cat sits on the mat.",
    "A kitten is sitting on a rug, and it looks at the rain that has been falling since the morning.",
    "Interest rates went up again.",
]
"""A batch with padding."""

EXACT = {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}
HAS_BF16 = "bf16" in Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else True
"""On such processors OpenVINO computes in bf16 unless it is told not to."""


@pytest.fixture(scope="module")
def sentences(hub: Hub) -> Published:
    return publish(hub, minilm(), "minilm", "--dataset", "builtin", "--backends", "onnx,openvino")


@pytest.fixture(scope="module")
def expected(sentences: Published) -> np.ndarray:
    """(texts, size), normalized"""
    return np.array(sentences.eager(texts=TEXTS)["embeddings"])


def least_cosine(said: dict[str, Any], expected: np.ndarray) -> float:
    """Over the texts, of vectors that have to be normalized as the repository says."""
    vectors = np.array(said["embeddings"])
    assert vectors.shape == expected.shape
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
    return float((vectors * expected).sum(axis=1).min())


def test_sentence_transformers_with_onnx_from_the_hub(sentences: Published, expected: np.ndarray) -> None:
    said = sentences.ask("sentence-transformers-onnx", "sentences", backend="onnx", texts=TEXTS)

    assert least_cosine(said, expected) >= 0.99999


@pytest.mark.parametrize("options", [{}, EXACT], ids=["defaults", "f32"])
def test_sentence_transformers_with_openvino_from_the_hub(
    sentences: Published, expected: np.ndarray, options: dict[str, Any]
) -> None:
    said = sentences.ask(
        "sentence-transformers-openvino", "sentences", backend="openvino", texts=TEXTS, model_kwargs=options
    )

    assert least_cosine(said, expected) >= (0.9999 if HAS_BF16 and not options else 0.99999)


def test_optimum_with_onnx_from_the_hub(sentences: Published, expected: np.ndarray) -> None:
    said = sentences.ask(
        "sentence-transformers-onnx",
        "optimum_sentences",
        **{"class": "optimum.onnxruntime.ORTModelForFeatureExtraction"},
        options={},
        texts=TEXTS,
    )

    assert least_cosine(said, expected) >= 0.99999


def test_optimum_with_openvino_from_the_hub(sentences: Published, expected: np.ndarray) -> None:
    said = sentences.ask(
        "sentence-transformers-openvino",
        "optimum_sentences",
        **{"class": "optimum.intel.OVModelForFeatureExtraction"},
        options={"subfolder": "openvino", **EXACT},
        texts=TEXTS,
    )

    assert least_cosine(said, expected) >= 0.99999


def test_openvino_genai(sentences: Published, expected: np.ndarray) -> None:
    said = sentences.ask("openvino-genai", "genai_openvino", model=sentences.folder / "openvino", texts=TEXTS)

    assert least_cosine(said, expected) >= 0.99999


def test_transformers_js_in_node_from_the_hub(sentences: Published, expected: np.ndarray, scripts: Path) -> None:
    said = sentences.ask_node(scripts, "sentences", texts=TEXTS, dtype="fp32")

    assert least_cosine(said, expected) >= 0.99999


def test_exported_model_from_the_hub(sentences: Published, expected: np.ndarray) -> None:
    said = sentences.ask("hub-exporter", "exported_model", subfolders=["onnx", "openvino"], texts=TEXTS)

    assert least_cosine({"embeddings": said["onnx"]}, expected) >= 0.99999
    assert least_cosine({"embeddings": said["openvino"]}, expected) >= (0.9999 if HAS_BF16 else 0.99999)


# ── The card ──

EXAMPLES = {
    ("sentence-transformers", "onnx"): "sentence-transformers-onnx",
    ("sentence-transformers", "openvino"): "sentence-transformers-openvino",
    ("optimum-onnx", "onnx"): "sentence-transformers-onnx",
    ("optimum-intel", "openvino"): "sentence-transformers-openvino",
    ("openvino-genai", "openvino"): "openvino-genai",
}
"""Client with an example in Python, and backend -> environment."""


@pytest.fixture(scope="module")
def index(sentences: Published) -> Index:
    return from_json((sentences.folder / "hub-exporter.json").read_bytes(), Index)


def test_the_index_promises_just_these_clients(index: Index) -> None:
    runtimes = {
        ("transformers", "onnx"),
        ("onnxruntime", "onnx"),
        ("transformers", "openvino"),
        ("openvino", "openvino"),
    }

    promised = {(client, job.backend) for job in index.jobs for client in job.clients}

    assert promised == runtimes | {*EXAMPLES, ("transformers.js", "onnx")}


@pytest.mark.parametrize(("client", "backend"), EXAMPLES)
def test_the_cards_example_for(sentences: Published, index: Index, client: str, backend: str) -> None:
    (job,) = [job for job in index.jobs if job.backend == backend]
    python = client_environments.python(EXAMPLES[client, backend])

    said = output_in(client, index, job, sentences.folder, python)

    assert ("1.0" if client == "sentence-transformers" else "384") in said, "a similarity, or the size of a vector"


def test_the_cards_example_for_transformers_js(sentences: Published, index: Index, scripts: Path) -> None:
    (job,) = [job for job in index.jobs if job.backend == "onnx"]

    assert "384" in output_in_node("transformers.js", index, job, sentences.folder, scripts)
