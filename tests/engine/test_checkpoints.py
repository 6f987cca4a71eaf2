"""A checkpoint that is not sound is refused before anything is traced."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pipeline import Subject
from safetensors.numpy import load_file, save_file

from hub_exporter.errors import SourceError
from hub_exporter.loading import load
from hub_exporter.records import ResolvedModel

pytestmark = pytest.mark.engine

Weights = dict[str, np.ndarray]
LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def damaged(subject_named: Callable[[str], Subject], tmp_path: Path) -> Callable[..., ResolvedModel]:
    """Gives a copy of the small llama whose weights or configuration were changed."""
    model = subject_named("llama").model

    def make(weights: Callable[[Weights], None] = lambda weights: None, **config: object) -> ResolvedModel:
        folder = shutil.copytree(model.folder, tmp_path / "copy")
        changed = load_file(folder / "model.safetensors")
        weights(changed)
        save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
        written = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps(written | config), "utf-8")
        return msgspec.structs.replace(model, folder=str(folder))

    return make


def test_a_sound_checkpoint_loads(damaged: Callable[..., ResolvedModel]) -> None:
    loaded = load(damaged())

    assert not loaded.model.training
    assert loaded.model.config._attn_implementation == "sdpa"


def test_missing_weights_are_refused(damaged: Callable[..., ResolvedModel]) -> None:
    model = damaged(lambda weights: weights.pop(LAYER))

    with pytest.raises(SourceError, match=f"lacks weights that LlamaForCausalLM needs: `{LAYER}`") as error:
        load(model)
    assert "random numbers" in (error.value.hint or "")


def test_weights_of_another_shape_are_refused(damaged: Callable[..., ResolvedModel]) -> None:
    def cut(weights: Weights) -> None:
        weights[LAYER] = np.ascontiguousarray(weights[LAYER][:-1])

    with pytest.raises(SourceError, match="another shape"):
        load(damaged(cut))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(damaged: Callable[..., ResolvedModel], value: float) -> None:
    def spoil(weights: Weights) -> None:
        weights[LAYER][0, 0] = value

    with pytest.raises(SourceError, match=f"not finite .*`{LAYER}`"):
        load(damaged(spoil))


def test_flash_attention_in_the_configuration_is_replaced_and_said(damaged: Callable[..., ResolvedModel]) -> None:
    loaded = load(damaged(attn_implementation="flash_attention_2"))

    assert loaded.model.config._attn_implementation == "sdpa"
    assert "attention `flash_attention_2` cannot be exported: replaced by `sdpa`" in loaded.notes


def test_eager_attention_is_used_where_it_is_asked_for(damaged: Callable[..., ResolvedModel]) -> None:
    assert load(damaged(), attention="eager").model.config._attn_implementation == "eager"


def test_a_rotary_base_that_is_read_differently_is_refused(
    damaged: Callable[..., ResolvedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = damaged(rope_theta=500000.0, rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})

    with pytest.raises(SourceError, match=r"`rope_theta` 500000\.0, transformers .* reads 10000\.0"):
        load(model)
