"""Side files that clients look for, made of the source's own configuration and of what was exported.

Everything else that comes along with a model is the source's own bytes: a tokenizer that transformers 5 saves again
does not load in version 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hub_exporter.catalogue import cache_shape
from hub_exporter.metadata import Json, read_json
from hub_exporter.records import Component, JobResult, ResolvedModel

GENAI = "genai_config.json"
"""What ONNX Runtime GenAI reads; the one file here that a model's own repository gets too."""

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"

ONNX_GRAPHS = ("model", "text_model")
"""The graph that ONNX clients load where they are told nothing; of two encoders the first."""

JS_KEY = "transformers.js_config"

_KEY_PORT = re.compile(r"past_key_values\.(\d+)\.key")

_GENAI_TYPES = {
    *("chatglm", "ernie4_5", "gemma", "gemma2", "gemma3_text", "granite", "internlm2", "llama", "mistral", "nemotron"),
    *("olmo", "phi", "phi3", "phi3small", "phimoe", "qwen2", "qwen3", "smollm3"),
}
"""Model types that ONNX Runtime GenAI 0.18 knows by name and drives like any decoder; `decoder` stands for others."""

_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty")
"""Settings of `generate` that ONNX Runtime GenAI knows under the same names."""


def adapted(model: ResolvedModel, jobs: Iterable[JobResult], *, own: bool) -> dict[str, bytes]:
    """Path in the target -> content of the side files that are not the source's own bytes.

    In the model's `own` repository or folder only what is not there before: its configuration stays as it is.
    """
    passed = [job for job in jobs if job.status == "passed" and job.export is not None]
    made = {GENAI: _genai(model, passed)}
    if not own:
        made |= {CONFIG: _config(model, passed), TOKENIZER_CONFIG: _tokenizer_config(model)}
    return {path: _dumped(values) for path, values in made.items() if values is not None}


def _dumped(values: Json) -> bytes:
    """As transformers writes such files, so that only what was added differs."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _read(model: ResolvedModel, name: str) -> Json:
    return read_json(Path(model.folder), name, model.source) if name in model.side_files else {}


# ── transformers.js ──


def _config(model: ResolvedModel, passed: list[JobResult]) -> Json | None:
    """The configuration with what transformers.js has to be told of the ONNX files; `None` where there are none."""
    files = {artifact.path for job in passed if job.backend == "onnx" for artifact in job.artifacts}
    graph = next((name for name in ONNX_GRAPHS if f"onnx/{name}.onnx" in files), None)
    if graph is None:
        return None
    config = _read(model, CONFIG)
    told = (
        {} if f"onnx/{graph}_quantized.onnx" in files else {"dtype": "fp32"}
    )  # browsers ask for the quantised by default
    outside = {file: 1 for file in _graphs(files) if f"onnx/{file}_data" in files}
    added = told | ({"use_external_data_format": outside} if outside else {})
    given = config.get(JS_KEY)
    merged = added | (given if isinstance(given, dict) else {})
    return {**config, JS_KEY: merged} if added and merged != given else None


def _graphs(files: Iterable[str]) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in files if path.endswith(".onnx"))


def _tokenizer_config(model: ResolvedModel) -> Json | None:
    """The tokenizer's configuration with the chat template inside, where it is only in a file beside it, which
    transformers.js does not read."""
    template = Path(model.folder) / "chat_template.jinja"
    values = _read(model, TOKENIZER_CONFIG)
    if template.name not in model.side_files or not values or values.get("chat_template"):
        return None
    return {**values, "chat_template": template.read_text("utf-8")}


# ── ONNX Runtime GenAI ──


def _genai(model: ResolvedModel, passed: list[JobResult]) -> Json | None:
    """How ONNX Runtime GenAI drives the decoder; `None` where there is no such graph."""
    for job in passed:
        if job.backend == "onnx" and job.export is not None and job.export.layout == "decoder":
            part = job.export.components[0]
            if genai_layers(part):
                return _genai_config(model, part, f"{job.folder}/{part.file}")
    return None


def genai_layers(part: Component) -> int:
    """Layers of a graph whose ports are named as ONNX Runtime GenAI expects them, and that takes nothing else; 0 for
    any other. Every cache has to hold all tokens: GenAI allocates it so."""
    layers = sum(_KEY_PORT.fullmatch(port.name) is not None for port in part.inputs)
    caches = [f"{n}.{kind}" for n in range(layers) for kind in ("key", "value")]
    tokens = {"input_ids", "attention_mask", "position_ids"}
    inputs = {port.name for port in part.inputs} - tokens == {f"past_key_values.{cache}" for cache in caches}
    outputs = {port.name: port.shape for port in part.outputs}
    named = outputs.keys() == {"logits", *(f"present.{cache}" for cache in caches)}
    whole = all(shape[2] == "total_sequence_length" for name, shape in outputs.items() if name.startswith("present."))
    return layers if inputs and named and whole else 0


def _genai_config(model: ResolvedModel, part: Component, file: str) -> Json:
    config = _present(_read(model, CONFIG))
    generation = _present(_read(model, "generation_config.json"))
    told, logits = config | generation, next(port for port in part.outputs if port.name == "logits")
    eos = told.get("eos_token_id")
    first_eos = eos[0] if isinstance(eos, list) and eos else eos
    context = model.context_length or 2048
    described = {
        "bos_token_id": told.get("bos_token_id"),
        "eos_token_id": eos,
        "pad_token_id": told.get("pad_token_id", first_eos),
        "context_length": context,
        "decoder": _present(_genai_decoder(config, part, file)),
        "type": model.model_type if model.model_type in _GENAI_TYPES else "decoder",
        "vocab_size": logits.shape[-1],
    }
    search = {name: generation[name] for name in _SAMPLING if name in generation}
    return {
        "model": _present(described),
        # The graph gives a new cache: it does not write into the one it is given.
        "search": {**search, "max_length": context, "past_present_share_buffer": False},
    }


def _genai_decoder(config: Json, part: Component, file: str) -> Json:
    key = next(port for port in part.inputs if _KEY_PORT.fullmatch(port.name))
    _, heads, _, head_size = cache_shape(part, key)
    tokens = {port.name: port.name for port in part.inputs if not port.name.startswith("past_key_values.")}
    kinds = ("key", "value")
    return {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": file,
        "head_size": head_size,
        "hidden_size": config.get("hidden_size", config.get("n_embd")),
        "inputs": tokens | {f"past_{kind}_names": f"past_key_values.%d.{kind}" for kind in kinds},
        "outputs": {"logits": "logits"} | {f"present_{kind}_names": f"present.%d.{kind}" for kind in kinds},
        "num_attention_heads": config.get("num_attention_heads", config.get("n_head")),
        "num_hidden_layers": genai_layers(part),
        "num_key_value_heads": heads,
    }


def _present(values: Mapping[str, Any]) -> Json:
    return {name: value for name, value in values.items() if value is not None}
