"""Which files of a model repository are what: weights, side files to carry along, or none of our business.

Only names are looked at here, so that the same rules hold for a folder and for a listing of the Hub.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from hub_exporter.errors import SourceError

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"

LARGEST_IN_GIT = 10_000_000
"""Bytes of a file that the Hub may still keep in git; it tells git's digest of such a file, and no other."""

_SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab*",
    "merges*",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "chat_templates/*",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "1_pooling/*",
    "[0-9]*_*/config.json",
    "licen[cs]e*",
    "notice*",
)
"""Patterns in lower case, part by part: `*` stays within one folder."""

_WEIGHTS_OR_CODE = re.compile(r".*\.(safetensors|bin|pth?|ckpt|h5|msgpack|ot|pkl|npz|gguf|onnx(_data)?|xml|pte|pt2|py)")

_VARIANTS = ("consolidated*", "*.fp16.*", "*.bf16.*", "adapter_model*", "diffusion_pytorch_model*")
"""safetensors files at the root that transformers does not load."""


def git_name(data: bytes) -> str:
    """What git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def job_name(path: str) -> str:
    """`org/Qwen2.5-0.5B` -> `Qwen2_5-0_5B`: no dot, because the parts of a job's name are joined by dots."""
    last = path.rpartition("/")[2].replace(".", "_")
    return re.sub(r"[^A-Za-z0-9_-]", "-", last) or "model"


def expanded(path: str) -> Path:
    """The path with `~` as the home folder; `~name` stays as it is where there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib raises for an unknown user


def listing(folder: Path) -> tuple[str, ...]:
    """Files of a folder and of its direct subfolders, sorted, with `/`; hidden folders are left out."""
    inside = [entry for entry in folder.iterdir() if not (entry.name.startswith(".") and entry.is_dir())]
    nested = [file for entry in inside if entry.is_dir() for file in entry.iterdir()]
    return tuple(sorted(path.relative_to(folder).as_posix() for path in [*inside, *nested] if path.is_file()))


def side_files(names: Iterable[str]) -> tuple[str, ...]:
    """Tokenizer, processor, chat template, configuration and licence files: never weights, never the card."""
    return tuple(sorted(name for name in names if _is_side_file(name)))


def weight_candidates(names: Iterable[str]) -> tuple[str, ...]:
    """The safetensors files that transformers may load, its index among them: one file, or an index and shards."""
    known = set(names)
    if WEIGHTS in known:
        return (WEIGHTS,)
    root = [name for name in known if name.endswith(".safetensors") and "/" not in name]
    shards = [name for name in root if not any(fnmatchcase(name, pattern) for pattern in _VARIANTS)]
    return tuple(sorted([*shards, WEIGHTS_INDEX])) if WEIGHTS_INDEX in known else ()


def wanted(names: Iterable[str], *, code: bool) -> tuple[str, ...]:
    """What loading a model needs of a repository: weights in one format, side files, the card; `*.py` with consent."""
    known = tuple(names)
    extra = [name for name in known if name == "README.md" or (code and name.endswith(".py"))]
    return tuple(sorted({*weight_candidates(known), *side_files(known), *extra}))


def require_config(names: Iterable[str], source: str) -> None:
    """Raise SourceError when there is no `config.json`, with what the repository seems to be instead."""
    known = set(names)
    if "config.json" in known:
        return
    hint = "Name the repository or folder of a transformers model"
    if "adapter_config.json" in known:
        hint = "It is an adapter: merge it into its base model and export the result"
    elif any(name.endswith(".gguf") for name in known):
        hint = "It holds GGUF files only: name the original checkpoint that they were made from"
    elif "model_index.json" in known:
        hint = "It is a diffusers pipeline, which is not supported"
    raise SourceError(f"`{source}` has no `config.json`", hint=hint)


def require_inside(folder: Path, names: Iterable[str], source: str) -> None:
    """Raise SourceError for a link that leads out of the folder: it would publish a file of this machine."""
    allowed = [folder.resolve()]
    if folder.parent.name == "snapshots":  # in the Hub's cache a snapshot is links into `blobs` beside it
        allowed.append((folder.parent.parent / "blobs").resolve())
    for name in names:
        path = (folder / name).resolve()
        if not any(path.is_relative_to(parent) for parent in allowed):
            raise SourceError(
                f"`{source}`: `{name}` is a link that leads out of the folder", hint="Replace the link by the file"
            )


def _is_side_file(name: str) -> bool:
    path = PurePosixPath(name.lower())
    return not _WEIGHTS_OR_CODE.fullmatch(path.name) and any(_matches(path, pattern) for pattern in _SIDE_FILES)


def _matches(path: PurePosixPath, pattern: str) -> bool:
    parts = pattern.split("/")
    return len(parts) == len(path.parts) and all(map(fnmatchcase, path.parts, parts))
