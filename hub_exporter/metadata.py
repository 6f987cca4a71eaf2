"""What the files of a model say about it: JSON configuration, the front matter of its card, its context length.

All of it was written by strangers: a value of the wrong type is treated as absent, and a file that cannot be read at
all is either refused (JSON) or left out with a warning (the card).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from hub_exporter.errors import SourceError

_log = logging.getLogger(__name__)

Json = dict[str, Any]

_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
_OFFSET_POSITIONS = {
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}
"""Model types whose positions begin behind the index of the padding token: 514 of them serve 512 tokens."""

_PICTURES = "a vision or multimodal"
_OTHER_MODALITIES = {
    "an audio": ("audio_config", "num_mel_bins", "feat_extract_norm", "codec_config", "sampling_rate"),
    _PICTURES: (
        "vision_config",
        "image_size",
        "patch_size",
        "num_channels",
        "image_token_id",
        "image_token_index",
    ),
    "a time series": ("prediction_length", "num_time_features"),
}
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LARGEST_CARD = 2_000_000


def read_json(folder: Path, name: str, source: str) -> Json:
    """A JSON object of the repository, `{}` where there is no such file. Raises SourceError where it is not one."""
    value = _read(folder, name, source)
    if value is not None and not isinstance(value, dict):
        raise SourceError(f"`{source}`: `{name}` is not a JSON object", hint="Save the model again")
    return value or {}


def read_modules(folder: Path, source: str) -> tuple[str, ...]:
    """Class names of the modules of a sentence-transformers repository, empty for any other."""
    value = _read(folder, "modules.json", source)
    if value is None:
        return ()
    modules = value if isinstance(value, list) else []
    types = [str(module.get("type") or "") for module in modules if isinstance(module, dict)]
    if not all(types) or not types:
        raise SourceError(f"`{source}`: `modules.json` is not a list of modules", hint="Save the model again")
    return tuple(kind.rpartition(".")[2] for kind in types)


def _read(folder: Path, name: str, source: str) -> Any:
    path = folder / name
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "not text in UTF-8, or nested too deeply"
        raise SourceError(f"`{source}`: `{name}` is not valid JSON: {reason}", hint="Repair the file") from error


def read_front_matter(folder: Path, source: str) -> Json:
    """The YAML at the top of the card, every scalar as text (`no` is Norwegian); `{}` where there is none."""
    path = folder / "README.md"
    if not path.is_file():
        return {}
    text = path.read_bytes()[:_LARGEST_CARD].decode("utf-8", "replace")
    found = _FRONT_MATTER.match(text)
    try:
        value = yaml.load(found.group(1), Loader=yaml.BaseLoader) if found else {}
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        _log.warning("`%s`: the front matter of its README.md is not valid YAML: licence and tags are left out", source)
        return {}
    return value if isinstance(value, dict) else {}


def text_of(values: Mapping[str, Any], key: str) -> str | None:
    """A text of the front matter; the first where it is a list."""
    found = texts_of(values, key)
    return found[0] if found else None


def texts_of(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts of the front matter; one text is a list of one."""
    value = values.get(key)
    items = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, str) and item)


def other_modality(config: Json) -> str | None:
    """`a vision or multimodal` and so on, for a configuration that is not only text's; `None` where it may be."""
    encoder = config.get("encoder")  # of an encoder-decoder made of two models
    for values in (config, encoder if isinstance(encoder, dict) else {}):
        for modality, keys in _OTHER_MODALITIES.items():
            if any(values.get(key) is not None for key in keys):
                return modality
    return None


def reads_pictures(config: Json) -> bool:
    """Whether the configuration is that of a model of pictures and nothing else."""
    nested = any(key in config for key in ("text_config", "vision_config", "encoder"))
    return other_modality(config) == _PICTURES and not nested and not has_vocabulary(config)


def has_vocabulary(config: Json) -> bool:
    """Whether the configuration is that of a model which reads tokens (CANINE hashes characters instead)."""
    nested = config.get("text_config")
    named = any(key in values for values in (config, nested or {}) for key in ("vocab_size", "n_words"))
    return named or config.get("model_type") == "canine"


def context_length(config: Json, tokenizer_config: Json) -> int | None:
    """Tokens that the model was built for, by its configuration and its tokenizer's; `None` where neither says."""
    limit = tokenizer_config.get("model_max_length")
    lengths = [*_lengths(config), *filter(_is_length, [limit])]
    return int(min(lengths)) if lengths else None


def _lengths(config: Json) -> Iterator[float]:
    nested = config.get("text_config")
    for values in (config, nested if isinstance(nested, dict) else {}):
        found = next((values[key] for key in _LENGTH_KEYS if _is_length(values.get(key))), None)
        if found is None:
            continue
        padding = values.get("pad_token_id", 1)
        offset = padding + 1 if isinstance(padding, int) and values.get("model_type") in _OFFSET_POSITIONS else 0
        yield found - offset if found > offset else found
        return


def _is_length(value: Any) -> TypeGuard[float]:
    # transformers writes 10^30 for "no limit"
    return isinstance(value, int | float) and not isinstance(value, bool) and 2 <= value < 1_000_000_000
