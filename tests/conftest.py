"""Fixtures that several test files share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from safetensors.numpy import save_file

# Slow moments of a busy machine are no failures, and fifty examples find what these properties can find.
hypothesis.settings.register_profile("hub-exporter", deadline=None, max_examples=50)
hypothesis.settings.load_profile("hub-exporter")

# On GitHub every job is isolated and the log is another; a test that wants that says so.
for name in ("GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(name, None)

ModelFolder = Callable[..., Path]

CONFIG = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 16,
    "max_position_embeddings": 32,
}


LONGEST = (
    "real/test_smollm2",
    "clients/",
    "engine/test_coverage",
    "engine/test_closed_sets",
    "real/test_whisper",
    "real/test_minilm",
    "engine/test_locked",
    "engine/test_command",
    "engine/",
)
"""Files that take minutes, the longest first: what is started last ends last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long files first; the others keep their order."""

    def rank(item: pytest.Item) -> int:
        return next((rank for rank, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST))

    items.sort(key=rank)


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    """Makes folders that look like a model: a configuration, one tensor of weights, a tokenizer. Nothing runs them.

    `config` replaces keys of the configuration (`None` removes one), `files` adds or replaces files: text, bytes, JSON
    values, or `None` for none.
    """

    def make(name: str = "tiny-bert", config: Mapping[str, Any] | None = None, **files: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        merged = {key: value for key, value in {**CONFIG, **(config or {})}.items() if value is not None}
        save_file({"weight": np.ones((4, 2), np.float32)}, folder / "model.safetensors")
        contents = {"config.json": merged, "tokenizer.json": {"model": {}}, "tokenizer_config.json": {}, **files}
        for path, content in contents.items():
            write(folder / path, content)
        return folder

    return make


def write(path: Path, content: Any) -> None:
    """Writes text, bytes or a JSON value; `None` deletes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        path.unlink(missing_ok=True)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
