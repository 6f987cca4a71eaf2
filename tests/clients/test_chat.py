"""A language model in the clients that people run it with: each has to say what eager transformers says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import client_environments
import numpy as np
import onnx
import pytest
from card_examples import output_in, output_in_node, output_of
from published import Published, publish
from running_hub import Hub

from hub_exporter.compare import TOLERANCES
from hub_exporter.records import Index, from_json
from hub_exporter.snippets import install_line

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "tiny-chat"
ROWS = ROOT / "examples" / "rows.jsonl"
SCREENSHOT = ROOT / "out" / "clients" / "transformers-js.png"

REQUEST = {
    "prompts": [
        "Anna left Lisbon early in the morning and walked to the forest.",
        "This is the story of Hugo from Kyoto, who wanted to see the river. The weather was mild and still.",
    ],
    "chat": [{"role": "user", "content": "Early in the morning Greta walked from Cork to the hill."}],
    "new_tokens": 24,
    "start": "<|start|>",
}
"""Two prompts of different length, alone and as a batch, and one through the chat template.

`start` is what the tokenizer puts before a text.
"""

OPTIMUM = {
    "ORTModelForCausalLM": ("sentence-transformers-onnx", "optimum.onnxruntime", {}),
    "OVModelForCausalLM": (
        "sentence-transformers-openvino",
        "optimum.intel",
        {"subfolder": "openvino", "ov_config": {"INFERENCE_PRECISION_HINT": "f32"}},
    ),
}
"""Class -> environment, module, and what a user has to say."""

RUNTIMES = {"onnx": "onnxruntime", "openvino": "openvino", "executorch-xnnpack": "executorch", "dynamo": "torch"}
"""Backend -> the environment with nothing but the packages that its example imports."""

PAGE = {
    "prompt": REQUEST["prompts"][0],
    "new_tokens": REQUEST["new_tokens"],
    "options": {},
    "screenshot": SCREENSHOT,
    "seconds": 120,
}
"""What is asked of a page in Chromium."""

PROMPTS = ["The capital of France is", "Once upon a time there was a little"]
"""Of the card's examples."""

EXAMPLES = {
    "executorch-llm": "executorch-runner",
    "onnxruntime-genai": "onnxruntime-genai",
    "openvino-genai": "openvino-genai",
    "optimum-intel": "sentence-transformers-openvino",
    "optimum-onnx": "sentence-transformers-onnx",
}
"""Client with an example in Python -> environment."""

COARSE = {"openvino-genai", "optimum-intel"}
"""Their examples compute in bf16 where the processor can: what a small model is unsure of may come out otherwise."""

STARTING = {"onnxruntime-genai", "optimum-onnx"}
"""They put the start token before a text; the others leave that to whoever calls them."""


@pytest.fixture(scope="module", autouse=True)
def _screenshots() -> None:
    SCREENSHOT.parent.mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="module")
def chat(hub: Hub) -> Published:
    return publish(hub, TINY, "tiny-chat", "--dataset", ROWS)


@pytest.fixture(scope="module")
def expected(chat: Published) -> dict[str, Any]:
    """What eager transformers says: tokens, text, the ids of the prompts, and the logits after each."""
    said = chat.eager(**REQUEST)
    assert said["alone"] == said["batch"]
    assert min(map(len, [*said["alone"], said["chat"]])) == REQUEST["new_tokens"]
    return said


@pytest.fixture(scope="module")
def continued(chat: Published) -> dict[str, list[str]]:
    """What eager transformers makes of the prompts of the card's examples, with a start token and without."""
    return chat.eager(**{**REQUEST, "prompts": PROMPTS, "new_tokens": 32})


@pytest.fixture(scope="module")
def index(chat: Published) -> Index:
    return from_json((chat.folder / "hub-exporter.json").read_bytes(), Index)


def tokens(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("alone", "batch", "chat")}


@pytest.mark.parametrize("name", OPTIMUM)
def test_optimum_from_the_hub(chat: Published, expected: dict[str, Any], name: str) -> None:
    environment, module, options = OPTIMUM[name]

    said = chat.ask(environment, "optimum_chat", **REQUEST, **{"class": f"{module}.{name}"}, options=options)

    assert said == tokens(expected)


def test_transformers_js_in_node_from_the_hub(chat: Published, expected: dict[str, Any], scripts: Path) -> None:
    said = chat.ask_node(scripts, "chat", **REQUEST, dtype="fp32")

    assert tokens(said) == tokens(expected)
    assert said["ids"] == expected["ids"]


def test_transformers_js_on_a_page_in_chromium(chat: Published, expected: dict[str, Any], scripts: Path) -> None:
    """Like any page, it says nothing about the precision. The pipeline puts no start token before a text."""
    said = chat.ask_node(scripts, "browser", **PAGE)

    assert said.get("text") == expected["bare_texts"][0], said
    assert SCREENSHOT.stat().st_size > 5_000


def test_onnxruntime_genai(chat: Published, expected: dict[str, Any]) -> None:
    said = chat.ask("onnxruntime-genai", "genai_onnxruntime", model=chat.folder, **REQUEST)

    assert tokens(said) == tokens(expected)
    assert said["ids"] == expected["ids"][0]


def test_openvino_genai(chat: Published, expected: dict[str, Any]) -> None:
    said = chat.ask("openvino-genai", "genai_openvino", model=chat.folder / "openvino", **REQUEST)

    assert tokens(said) == tokens(expected)
    assert said["texts"] == expected["texts"]


def test_executorchs_own_runner_for_language_models(chat: Published, expected: dict[str, Any]) -> None:
    said = chat.ask("executorch-runner", "executorch_runner", model=chat.folder, **REQUEST)

    assert said["texts"] == expected["bare_texts"]


def test_exported_model_from_the_hub(chat: Published, expected: dict[str, Any]) -> None:
    """OpenVINO computes in bf16 where the processor can, and the loader has no say in it from the Hub."""
    tolerance = {"onnx": 1e-4, "openvino": 0.05, "executorch/xnnpack": 1e-4, "pt2": 1e-4}
    reference = np.array(expected["last_logits"])

    said = chat.ask("hub-exporter", "exported_model", subfolders=list(tolerance), **REQUEST)

    differences = {
        folder: np.abs(np.array(said[folder]) - reference).max() / np.abs(reference).max() for folder in said
    }
    assert differences.keys() == tolerance.keys()
    assert [folder for folder, limit in tolerance.items() if differences[folder] > limit] == [], differences


def test_the_index_promises_just_these_clients(index: Index) -> None:
    runtimes = {"transformers", "onnxruntime", "openvino", "executorch", "torch"}

    assert {client for job in index.jobs for client in job.clients} == runtimes | {*EXAMPLES, "transformers.js"}


@pytest.mark.parametrize("backend", RUNTIMES)
def test_the_cards_example_needs_no_more_than_its_packages(
    chat: Published, index: Index, continued: dict[str, list[str]], backend: str
) -> None:
    (job,) = [job for job in index.jobs if job.backend == backend]

    said = output_of(index, job, chat.folder, client_environments.python(RUNTIMES[backend]))

    assert said.splitlines() == [prompt + text for prompt, text in zip(PROMPTS, continued["texts"], strict=True)]
    installed = (client_environments.ENVIRONMENTS / f"{RUNTIMES[backend]}.in").read_text("utf-8").split()
    asked = str(install_line(index, job)).removeprefix("pip install ").split()
    assert {line.partition("==")[0] for line in installed} == {line.partition("==")[0] for line in asked}


@pytest.mark.parametrize("client", EXAMPLES)
def test_the_cards_example_for(chat: Published, index: Index, continued: dict[str, list[str]], client: str) -> None:
    (job,) = [job for job in index.jobs if client in job.clients]

    said = output_in(client, index, job, chat.folder, client_environments.python(EXAMPLES[client]))

    assert said.strip()
    if client not in COARSE:
        assert continued["texts" if client in STARTING else "bare_texts"][0] in said


def test_the_cards_example_for_transformers_js(
    chat: Published, index: Index, continued: dict[str, list[str]], scripts: Path
) -> None:
    (job,) = [job for job in index.jobs if "transformers.js" in job.clients]

    said = output_in_node("transformers.js", index, job, chat.folder, scripts)

    assert said.strip() == PROMPTS[0] + continued["bare_texts"][0]


# ── Less precision ──


@pytest.fixture(scope="module")
def small(hub: Hub) -> Published:
    return publish(hub, TINY, "tiny-chat-small", "--dataset", ROWS, "--backends", "onnx", "--variants", "int8,int4")


def test_transformers_js_chooses_the_same_tokens_within_the_bounds(
    small: Published, expected: dict[str, Any], scripts: Path
) -> None:
    """Fed with what eager transformers says, so that one difference does not hide what comes after."""
    rows = [ids + said for ids, said in zip(expected["ids"], expected["alone"], strict=True)]

    chosen = small.ask_node(scripts, "choices", rows=rows, dtypes=["q8", "q4"])

    for dtype, variant in (("q8", "int8"), ("q4", "int4")):
        made = [
            (token, choice)
            for ids, said, choices in zip(expected["ids"], expected["alone"], chosen[dtype], strict=True)
            for token, choice in zip(said, choices[len(ids) - 1 : -1], strict=True)
        ]
        share = sum(token == choice for token, choice in made) / len(made)
        assert share >= TOLERANCES[variant]["agreement"], (dtype, share)


def test_a_page_gets_the_smaller_file_by_default(small: Published, scripts: Path) -> None:
    said = small.ask_node(scripts, "browser", **PAGE | {"screenshot": SCREENSHOT.with_stem("transformers-js-q8")})

    assert len(said.get("text", "").split()) > 8, said


# ── A head size that is not the hidden size by the heads ──


@pytest.fixture(scope="module")
def qwen3(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A random one, with the tokenizer of the other model."""
    from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM, set_seed

    folder = tmp_path_factory.mktemp("qwen3")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        initializer_range=0.2,  # large, so that no two tokens are nearly as likely
        **special,
    )
    set_seed(1)
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(**special)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)
    return publish(hub, folder, "tiny-qwen3", "--dataset", ROWS, "--backends", "onnx")


def test_clients_that_make_the_cache_themselves_know_its_size(qwen3: Published, scripts: Path) -> None:
    expected = tokens(qwen3.eager(**REQUEST))
    environment, module, options = OPTIMUM["ORTModelForCausalLM"]
    optimum = {"class": f"{module}.ORTModelForCausalLM", "options": options}

    assert qwen3.ask(environment, "optimum_chat", **REQUEST, **optimum) == expected
    assert tokens(qwen3.ask_node(scripts, "chat", **REQUEST, dtype="fp32")) == expected
    assert tokens(qwen3.ask("onnxruntime-genai", "genai_onnxruntime", model=qwen3.folder, **REQUEST)) == expected


# ── Contracts broken on purpose: the client has to fail too ──


def renamed_input(graph: onnx.GraphProto) -> None:
    (port,) = [port for port in graph.input if port.name == "attention_mask"]
    port.name = "mask"
    for node in graph.node:
        node.input[:] = ["mask" if name == "attention_mask" else name for name in node.input]


def float16_input(graph: onnx.GraphProto) -> None:
    (port,) = [port for port in graph.input if port.name == "attention_mask"]
    port.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for node in graph.node:
        node.input[:] = ["cast_mask" if name == "attention_mask" else name for name in node.input]
    graph.node.insert(0, onnx.helper.make_node("Cast", ["attention_mask"], ["cast_mask"], to=onnx.TensorProto.INT64))


def missing_cache(graph: onnx.GraphProto) -> None:
    (port,) = [port for port in graph.output if port.name == "present.0.key"]
    graph.output.remove(port)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (renamed_input, "Missing Input: mask"),
        (float16_input, "must have the same data type"),
        (missing_cache, "present.0.key"),
    ],
)
def test_onnxruntime_genai_refuses_other_ports(
    chat: Published, tmp_path: Path, damage: Callable[[onnx.GraphProto], None], said: str
) -> None:
    folder = damaged(chat, tmp_path, lambda model: damage(model.graph))

    assert said in chat.refusal("onnxruntime-genai", "genai_onnxruntime", model=folder, **REQUEST)


def test_onnxruntime_genai_refuses_an_opset_that_is_too_high(chat: Published, tmp_path: Path) -> None:
    def raise_opset(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 99

    folder = damaged(chat, tmp_path, raise_opset)

    assert "opset" in chat.refusal("onnxruntime-genai", "genai_onnxruntime", model=folder, **REQUEST)


@pytest.mark.parametrize("missing", ["openvino_model.bin", "openvino_tokenizer.xml", "openvino_detokenizer.xml"])
def test_openvino_genai_refuses_without(chat: Published, tmp_path: Path, missing: str) -> None:
    folder = shutil.copytree(chat.folder / "openvino", tmp_path / "openvino")
    (folder / missing).unlink()

    assert chat.refusal("openvino-genai", "genai_openvino", model=folder, **REQUEST)


def test_onnxruntime_genai_refuses_without_the_weights_beside_the_graph(chat: Published, tmp_path: Path) -> None:
    folder = damaged(chat, tmp_path, lambda model: None, save_as_external_data=True, location="model.onnx_data")
    whole = chat.ask("onnxruntime-genai", "genai_onnxruntime", model=folder, **REQUEST)
    (folder / "onnx" / "model.onnx_data").unlink()

    assert len(whole["alone"]) == 2
    assert "model.onnx_data" in chat.refusal("onnxruntime-genai", "genai_onnxruntime", model=folder, **REQUEST)


def damaged(chat: Published, folder: Path, damage: Callable[[onnx.ModelProto], None], **options: Any) -> Path:
    """A copy of the repository whose ONNX graph has been changed."""
    copy = shutil.copytree(chat.folder, folder / "copy", ignore=shutil.ignore_patterns("executorch", "pt2", "openvino"))
    model = onnx.load(copy / "onnx" / "model.onnx")
    damage(model)
    onnx.save(model, copy / "onnx" / "model.onnx", **options)
    return Path(copy)
