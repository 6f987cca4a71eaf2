"""The example that the README's first command exports."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "tiny-chat"


def test_tiny_model_is_at_most_two_megabytes() -> None:
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 2_000_000


def test_tiny_model_has_all_that_a_chat_model_needs() -> None:
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((MODEL / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["num_key_value_heads"] < config["num_attention_heads"], "grouped heads are the harder case"
    assert config["tie_word_embeddings"]
    assert tokenizer["padding_side"] == "left"
    assert "add_generation_prompt" in tokenizer["chat_template"]
    assert (MODEL / "model.safetensors").is_file()


def test_card_of_the_tiny_model_names_its_licence() -> None:
    _, front_matter, _ = (MODEL / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front_matter)["license"] == "apache-2.0"


def test_rows_are_distinct_beginnings_of_different_lengths() -> None:
    lines = (ROOT / "examples" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert len(set(texts)) == len(texts) >= 16
    assert len({len(text.split()) for text in texts}) >= 8


def test_recipe_loads_and_its_files_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    from hub_exporter.recipe import load_recipe

    monkeypatch.chdir(ROOT)
    (model,) = load_recipe(Path("examples/hub-exporter.yaml")).models
    assert Path(model.source, "config.json").is_file()
    assert model.dataset is not None
    assert Path(model.dataset.path).is_file()
    assert set(model.backends) == {"onnx", "openvino", "executorch-xnnpack", "dynamo"}


def test_ci_script_is_executable_and_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "make test" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["help", "demo", "test", "lint", "format", "bench", "clean"])
def test_makefile_has_the_target(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)
