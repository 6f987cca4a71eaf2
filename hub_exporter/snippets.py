"""Usage examples: results -> code that runs as it stands in the written folder, and the packages it needs. Pure.

One template per format and way of driving the graphs: `templates/snippets/<format>-<layout>.py.j2`, and
`<format>-set.py.j2` for models of several graphs.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jinja2

from hub_exporter import wording
from hub_exporter.catalogue import BACKENDS, cache_shape
from hub_exporter.records import Component, ExportOutcome, Index, JobResult, Port

TITLES = {
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
    "executorch-xnnpack": "ExecuTorch with XNNPACK",
    "executorch-mlx": "ExecuTorch with MLX",
    "executorch-cuda": "ExecuTorch with CUDA",
    "dynamo": "PyTorch (torch.export)",
}
"""Backend -> what people call its runtime."""

_EXECUTORCH = ("executorch", "torch", "numpy")

PACKAGES = {
    "onnx": ("onnxruntime", "numpy"),
    "openvino": ("openvino", "numpy"),
    "executorch-xnnpack": _EXECUTORCH,
    "executorch-mlx": _EXECUTORCH,
    "executorch-cuda": _EXECUTORCH,
    "dynamo": ("torch", "transformers", "numpy"),
}
"""Backend -> the packages that its examples import, and no more."""

HEADS = {
    "feature-extraction": "FeatureExtraction",
    "fill-mask": "MaskedLM",
    "text-classification": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "text-generation": "CausalLM",
}
"""Task -> end of the name of its class in optimum."""

JS_DTYPES = {"fp32": "fp32", "fp16": "fp16", "int8": "q8", "int4": "q4"}
"""Variant -> what transformers.js calls it."""

FEEDS = {
    "texts": ("tokenizers",),
    "pictures": ("transformers", "pillow"),
    "labels": ("transformers", "pillow", "tokenizers"),
    "sounds": ("transformers", "torch"),  # which some feature extractors compute with
    "series": (),
    "sources": ("tokenizers",),
    "speech": ("transformers", "torch", "tokenizers"),
    "questions": ("transformers", "pillow", "tokenizers"),
}
"""What graphs are fed with -> the packages that make their inputs. `labels`: pictures beside texts; `sources` and
`speech`: texts and sounds of which a text is made; `questions`: pictures in texts."""

SETS = {
    "encoder-decoder": {"encoder": "encoder", "decoder": "decode"},
    "multimodal": {"encoder": "image_encoder", "embedding": "embed_tokens", "decoder": "decode"},
}
"""Layout of several graphs -> variable of the templates -> component."""

PLAIN = {
    "speech": {"encoder": {"input_features": 3}, "decode": {"input_ids": 2}},
    "questions": {
        "image_encoder": {"pixel_values": 4},
        "embed_tokens": {"input_ids": 2},
        "decode": {"inputs_embeds": 3, "attention_mask": 2, "position_ids": 2},
    },
}
"""Feed -> component -> the inputs that the templates give beside the caches, with their number of axes."""

_FEED_PORTS = {
    "pixel_values": "pictures",
    "input_values": "sounds",
    "input_features": "sounds",
    "past_values": "series",
}
_PROCESSED = ("pixel_values", "pixel_mask", "input_values", "input_features", "past_values")

ENCODING_FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Graph input -> attribute of a `tokenizers.Encoding`."""

STEP_VALUES = {
    "decoder": {"input_ids": "ids", "attention_mask": "mask", "position_ids": "positions", "beam_idx": "beams"},
    "static-cache": {"input_ids": "ids", "attention_mask": "seen", "position_ids": "positions"},
    "encoder-decoder": {"input_ids": "ids", "attention_mask": "mask"},
}
"""Layout -> graph input -> the variable of the templates that feeds it at each step."""

_CACHE_PORT = re.compile(r"past_key_values\.\d+\.((de|en)coder\.)?(key|value)|cache_\d+")
"""Keys or values of one layer, (batch, heads, tokens, head size): as our ONNX graphs and `torch.export` name them."""


@functools.cache
def environment() -> jinja2.Environment:
    """Templates of the installed package, or of the checkout, in which a missing variable is an error."""
    here = Path(__file__).parent
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here / "templates", here.parent / "templates"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown and Python, not HTML: every foreign value passes a filter below
    )
    env.filters |= {name: getattr(wording, name) for name in ("inline", "prose", "code", "fenced", "size", "duration")}
    env.filters["py"] = _python
    return env


def _python(value: str | list[str]) -> str:
    """Python source of it: like JSON, which for characters beyond the first plane is not Python."""
    return json.dumps(value) if str(value).isascii() else ascii(value)


def install_line(index: Index, result: JobResult) -> str | None:
    """`pip install onnxruntime==1.32.0 ...` with the versions that the files were made and checked with.

    `None` for a backend without an example. Local version parts (`2.13.0+cpu`) are left out: no index has them.
    """
    if result.backend not in PACKAGES or result.export is None:
        return None
    versions = result.export.versions
    chat = ("jinja2",) if _feed(result.export) == "questions" and _chats(index) else ()
    packages = dict.fromkeys((*PACKAGES[result.backend], *FEEDS[_feed(result.export)], *chat))
    pins = [
        f"{package}=={versions[package].partition('+')[0]}" if package in versions else package for package in packages
    ]
    return "pip install " + " ".join(pins)


def render_snippet(index: Index, result: JobResult) -> str | None:
    """Python code that loads the files of `result` and prints what the model makes of a few sentences.

    It expects the written folder as its current directory and nothing but the packages of `install_line`. `None` when
    there is no example for such graphs.
    """
    export = result.export
    if export is None or not _has_example(index, result, export):
        return None
    template = environment().get_template(_template(result, export))
    return template.render(_context(index, result, export)).strip() + "\n"


def render_client(index: Index, result: JobResult, client: str) -> str:
    """Code that loads the files of `result` in another program, from the written folder; a name of `clients.toml`."""
    model, component = index.source, result.export.components[0] if result.export else None
    task = "feature-extraction" if model.task == "sentence-similarity" else model.task
    context = {
        "task": task,
        "backend": result.backend,
        "folder": result.folder,
        "file": f"{result.folder}/{component.file if component else ''}",
        "head": HEADS.get(task, ""),
        "dtype": JS_DTYPES.get(result.variant, "fp32"),
    }
    return environment().get_template(f"clients/{client}.j2").render(context).strip() + "\n"


def _template(result: JobResult, export: ExportOutcome) -> str:
    return f"snippets/{BACKENDS[result.backend].format}-{'set' if export.layout in SETS else export.layout}.py.j2"


def _has_example(index: Index, result: JobResult, export: ExportOutcome) -> bool:
    feed = _feed(export)
    if feed in PLAIN:
        return _template(result, export) in environment().list_templates() and _is_plain(export, PLAIN[feed])
    if feed not in ("texts", "sources"):
        whole = not {"height", "width"} & export.fixed.keys()  # the processor makes pictures of another size
        single = feed == "labels" and result.backend.startswith("executorch")
        at_once = export.layout in ("encoder", "two-encoders")
        return at_once and result.backend in PACKAGES and whole and not single
    known = STEP_VALUES.get(export.layout, ENCODING_FIELDS)
    others = [port for port in export.components[0].inputs if port.name not in known and port.name != "cache_position"]
    if export.layout == "static-cache":
        if False in (export.options.get("alloc_graph_input"), export.options.get("alloc_graph_output")):
            return False  # its memory is the caller's, which Python cannot give it
        others = [port for port in others if port.shape]  # the others count what is in the cache
    return (
        _template(result, export) in environment().list_templates()
        and {"tokenizer.json", "config.json"} <= _side_files(index)
        and (not others or export.layout in ("decoder", "static-cache"))
        and all(_CACHE_PORT.fullmatch(port.name) and len(port.shape) == 4 for port in others)
        and len(_cache_sizes(export.components[0])) <= 1
        and (len(export.components) == 1 or not any((part.data or "").endswith(".ptd") for part in export.components))
    )


def _is_plain(export: ExportOutcome, expected: dict[str, dict[str, int]]) -> bool:
    """Whether the graphs of a set take what is expected, and a cache whose layers are alike."""
    beside = {
        part.name: {port.name: len(port.shape) for port in part.inputs if not _CACHE_PORT.fullmatch(port.name)}
        for part in export.components
    }
    sizes = _cache_sizes(export.components[-1])
    alike = len(sizes) == 1 and all(isinstance(heads, int) and isinstance(size, int) for heads, size, _ in sizes)
    outside = any((part.data or "").endswith(".ptd") for part in export.components)
    return beside == expected and alike and not outside


def _fed(export: ExportOutcome) -> list[Port]:
    """What an example feeds: the inputs of the first graph, of two encoders those of both."""
    parts = export.components if export.layout == "two-encoders" else export.components[:1]
    return [port for part in parts for port in part.inputs]


def _feed(export: ExportOutcome) -> str:
    """What the graphs are fed with."""
    names = [port.name for port in _fed(export)]
    found = next((feed for port, feed in _FEED_PORTS.items() if port in names), "texts")
    if export.layout == "multimodal":
        return "questions"
    if export.layout == "encoder-decoder":
        return "speech" if found == "sounds" else "sources"
    return "labels" if found == "pictures" and "input_ids" in names else found


def _chats(index: Index) -> bool:
    """Whether a question is put as a turn of a chat, for which transformers needs jinja2."""
    return any(name.startswith("chat_template") for name in _side_files(index))


def _side_files(index: Index) -> set[str]:
    """What lies beside the exported files: carried along, or there already in the model's own repository."""
    return {artifact.path for artifact in index.side_files} | set(index.source.side_files)


def _context(index: Index, result: JobResult, export: ExportOutcome) -> dict[str, Any]:
    model, component, decoder = index.source, export.components[0], export.components[-1]
    carried = _side_files(index)
    names = [port.name for port in component.inputs]
    step_values = STEP_VALUES.get(export.layout, {})
    feed, known = _feed(export), (*ENCODING_FIELDS, *_PROCESSED)
    arrays = {port.name: _array(port, feed) for port in _fed(export) if port.name in known}
    return {
        "backend": result.backend,
        "task": model.task,
        "model_type": model.model_type,
        "feed": feed,
        "chat": _chats(index),
        "padding": '"max_length"' if model.model_type.startswith("siglip") else "True",
        "samples": export.fixed.get("sequence_length"),
        "vocabulary": "vocab.json" in carried,
        "sentence_transformers": model.sentence_transformers,
        "pooling_config": "1_Pooling/config.json" if "1_Pooling/config.json" in carried else None,
        "padding_side": model.padding_side,
        "max_length": min(model.context_length, 2048) if model.context_length else None,
        "eos_file": "generation_config.json" if "generation_config.json" in carried else "config.json",
        "folder": result.folder,
        "file": f"{result.folder}/{component.file}",
        "files": [f"{result.folder}/{part.file}" for part in export.components],
        "graphs": SETS.get(export.layout, {}),
        "ports": {part.name: _port_lists(part) for part in export.components},
        "data": f"{result.folder}/{component.data}" if component.data else None,
        "inputs": names,
        "outputs": [port.name for port in component.outputs],
        "arrays": _dict_literal(arrays, indented=True),
        "slots": export.cache_length,
        "constants": export.constants,
        "caches": sum(bool(_CACHE_PORT.fullmatch(port.name) and port.shape) for port in decoder.inputs),
        "step": _dict_literal({name: step_values[name] for name in names if name in step_values}),
        **_cache(decoder),
    }


def _port_lists(part: Component) -> tuple[list[str], list[str]]:
    """The names of a graph's inputs, and of its outputs."""
    return [port.name for port in part.inputs], [port.name for port in part.outputs]


def _array(port: Port, feed: str) -> str:
    """Python source of a batch for one input."""
    if feed not in ("texts", "sources"):
        default = "float32" if port.name in ("pixel_values", "input_values", "input_features") else "int64"
        return f'processed["{port.name}"].astype(np.{_dtype(port.dtype, default)})'
    return f"np.array([e.{ENCODING_FIELDS[port.name]} for e in encodings], dtype=np.{_dtype(port.dtype, 'int64')})"


def _dict_literal(values: dict[str, str], *, indented: bool = False) -> str:
    """Python source of a dict from names to expressions."""
    items = [f'"{name}": {expression}' for name, expression in values.items()]
    if indented:
        return "{\n" + "".join(f"    {item},\n" for item in items) + "}"
    return "{" + ", ".join(items) + "}"


def _cache(component: Component) -> dict[str, Any]:
    """Heads, head size and dtype of the key/value cache: numbers where the graph fixes them, else from config.json."""
    heads, head_dim, dtype = next(iter(_cache_sizes(component)), ("", "", "float32"))
    fixed = isinstance(heads, int) and isinstance(head_dim, int)
    return {
        "cache_sizes_from_config": not fixed,
        "heads": heads if fixed else "heads",
        "head_dim": head_dim if fixed else "head_dim",
        "cache_dtype": _dtype(dtype, "float32"),
    }


def _dtype(name: str, default: str) -> str:
    """`name`, where it can stand behind `np.`."""
    return name if name.isidentifier() else default


def _cache_sizes(component: Component) -> set[tuple[int | str, int | str, str]]:
    """(heads, head size, dtype) of the layers of a text: one, unless they differ."""
    ports = [port for port in component.inputs if _CACHE_PORT.fullmatch(port.name) and len(port.shape) == 4]
    shapes = [(cache_shape(component, port), port.dtype) for port in ports if ".encoder." not in port.name]
    return {(shape[1], shape[3], dtype) for shape, dtype in shapes}
