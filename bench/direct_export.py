"""The engine called directly, as its documentation shows it: what `export_cost.py` compares hub-exporter with.

    python bench/direct_export.py MODEL BACKEND FOLDER

Nothing is chosen, checked, renamed or described here: two padded sentences in, the engine's own files out.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
from transformers.exporters import AutoExportConfig, AutoHfExporter

SENTENCES = ["The weather was warm and bright.", "Early in the morning they walked from the town to the old mill."]
CONFIGS: dict[str, dict[str, Any]] = {
    "onnx": {"export_format": "onnx"},
    "openvino": {"export_format": "openvino"},
    "executorch-xnnpack": {"export_format": "executorch", "backend": "xnnpack"},
    "dynamo": {"export_format": "dynamo"},
}
LONGEST = 2048


def export_encoder(model: Any, tokenizer: Any, settings: dict[str, Any]) -> Any:
    """One graph. ExecuTorch gets batch 1 and a bounded length: free axes would make it plan 12.9 GB for MiniLM."""
    if settings["export_format"] == "executorch":
        inputs = dict(tokenizer(SENTENCES[:1], return_tensors="pt"))
        length = torch.export.Dim("sequence", min=1, max=min(model.config.max_position_embeddings, LONGEST))
        shapes = {name: {1: length} for name in inputs}
        settings = settings | {"dynamic_shapes": shapes, "prefer_deferred_runtime_asserts_over_guards": True}
    else:
        inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
        settings = settings | {"dynamic": True}
    config = AutoExportConfig.from_dict(settings)
    return AutoHfExporter.from_config(config).export(model, inputs, config)


def export_decoder(model: Any, tokenizer: Any, settings: dict[str, Any]) -> Any:
    """Prefill and decode as components."""
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    inputs = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    config = AutoExportConfig.from_dict(settings | {"dynamic": True})
    return AutoHfExporter.from_config(config).export_for_generation(model, inputs, config)


def main() -> None:
    """Loads, exports, saves."""
    source, backend, folder = sys.argv[1:]
    architectures = AutoConfig.from_pretrained(source).architectures or [""]
    decoder = architectures[0].endswith("ForCausalLM")
    auto_class = AutoModelForCausalLM if decoder else AutoModel
    model = auto_class.from_pretrained(source, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    exported = (export_decoder if decoder else export_encoder)(model, tokenizer, CONFIGS[backend])
    exported.save_pretrained(folder)


if __name__ == "__main__":
    main()
