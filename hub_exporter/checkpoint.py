"""What the weights of a checkpoint are, read from the headers of its safetensors files without loading them.

A safetensors file is eight bytes with the length of its header, the header in JSON (name -> dtype, shape, first and
last byte), and the data. A header that does not account for every byte of the file is refused.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hub_exporter.errors import SourceError
from hub_exporter.files import WEIGHTS, WEIGHTS_INDEX, weight_candidates

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
_LARGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library."""
_OTHER_FORMATS = {
    "pytorch_model*.bin": "a pickle (`pytorch_model.bin`), which runs code when it is read",
    "*.pt": "a pickle (`.pt`), which runs code when it is read",
    "*.pth": "a pickle (`.pth`), which runs code when it is read",
    "*.ckpt": "a pickle (`.ckpt`), which runs code when it is read",
    "*.gguf": "GGUF",
    "tf_model.h5": "TensorFlow's (`tf_model.h5`)",
    "flax_model.msgpack": "Flax's (`flax_model.msgpack`)",
}
_CONVERT = "Load it where you trust it and save it again with `save_pretrained`, which writes `model.safetensors`"


@dataclass(frozen=True)
class Checkpoint:
    """The files of a checkpoint (the index among them) and what is in them."""

    files: tuple[str, ...]
    parameters: int
    """Numbers in it; those of a tied matrix once, though it be stored twice."""
    weight_bytes: int
    dtypes: dict[str, int]
    """safetensors dtype -> parameters stored in it."""


class Weights(Protocol):
    """Where the weights are: the headers are all that is read of them."""

    def size(self, name: str) -> int | None:
        """Bytes of a file, `None` where there is none."""
        ...

    def head(self, name: str, count: int) -> bytes:
        """The first `count` bytes of a file, or all of it where it has no more."""
        ...


@dataclass(frozen=True)
class LocalWeights:
    """Weights in a folder."""

    folder: Path

    def size(self, name: str) -> int | None:
        """See `Weights`."""
        path = self.folder / name
        return path.stat().st_size if path.is_file() else None

    def head(self, name: str, count: int) -> bytes:
        """See `Weights`."""
        with (self.folder / name).open("rb") as file:
            return file.read(count)


def read_checkpoint(
    folder: Path, names: Sequence[str], source: str, weights: Weights | None = None, *, tied: bool = False
) -> Checkpoint:
    """Read the headers of all weights; `names` lists the files of the repository, `weights` is where they are if not
    in `folder`. `tied` says that the model reads its output matrix from its embeddings.

    Raises SourceError for a checkpoint in another format only, a missing shard, and a truncated or corrupt file.
    """
    found = weight_candidates(names)
    if not found:
        raise _no_weights(names, source)
    weights = weights or LocalWeights(folder)
    shards = {WEIGHTS: None} if found == (WEIGHTS,) else _shards(folder, weights, source)
    tensors: dict[str, dict[str, Any]] = {}
    for shard, expected in shards.items():
        header = _header(weights, shard, source)
        missing = sorted((expected or set()) - header.keys())
        if missing:
            raise SourceError(
                f"`{source}`: `{WEIGHTS_INDEX}` promises `{missing[0]}` in `{shard}`, which does not have it",
                hint="Download or copy the repository again",
            )
        tensors.update(header)
    dtypes: Counter[str] = Counter()
    for tensor in tensors.values():
        dtypes[tensor["dtype"]] += math.prod(tensor["shape"])
    weight_bytes = sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in tensors.values())
    files = (WEIGHTS,) if found == (WEIGHTS,) else (WEIGHTS_INDEX, *shards)
    twice = math.prod(tensors["lm_head.weight"]["shape"]) if tied and _embedded(tensors) else 0
    return Checkpoint(files, dtypes.total() - twice, weight_bytes, dict(sorted(dtypes.items())))


def _embedded(tensors: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the output matrix is stored beside embeddings of its shape."""
    shape = tensors.get("lm_head.weight", {}).get("shape")
    return shape is not None and any(
        re.search(r"emb|wte", name) and tensor["shape"] == shape for name, tensor in tensors.items()
    )


def _no_weights(names: Sequence[str], source: str) -> SourceError:
    if "adapter_config.json" in names:
        hint = "Merge it into its base model and export the result"
        return SourceError(f"`{source}` is an adapter without the weights of its base model", hint=hint)
    for pattern, what in _OTHER_FORMATS.items():
        if any("/" not in name and Path(name).match(pattern) for name in names):
            hint = "Name the original checkpoint that it was made from" if what == "GGUF" else _CONVERT
            return SourceError(f"`{source}` has no safetensors weights: its only format is {what}", hint=hint)
    return SourceError(f"`{source}` has no weights", hint=f"A `{WEIGHTS}` must be beside `config.json`")


def _shards(folder: Path, weights: Weights, source: str) -> dict[str, set[str]]:
    """Shard -> names of the tensors that the index promises in it."""
    broken = SourceError(f"`{source}`: `{WEIGHTS_INDEX}` is not an index of shards", hint="Save the model again")
    try:
        weight_map = json.loads((folder / WEIGHTS_INDEX).read_bytes())["weight_map"]
        pairs = [(str(shard), tensor) for tensor, shard in weight_map.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise broken from error
    if not pairs:
        raise broken
    shards: dict[str, set[str]] = {}
    for shard, tensor in sorted(pairs):
        shards.setdefault(shard, set()).add(tensor)
    for shard in shards:
        if "/" in shard or "\\" in shard or not shard.endswith(".safetensors"):
            raise SourceError(
                f"`{source}`: `{WEIGHTS_INDEX}` names `{shard}`, which is not a shard beside it",
                hint="Save the model again with `save_pretrained`",
            )
        if weights.size(shard) is None:
            raise SourceError(
                f"`{source}`: the shard `{shard}` of `{WEIGHTS_INDEX}` is missing",
                hint="Download or copy the repository again",
            )
    return shards


def _header(weights: Weights, name: str, source: str) -> dict[str, dict[str, Any]]:
    size = weights.size(name) or 0
    start = weights.head(name, 8) if size else b""
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    text = weights.head(name, 8 + length)[8:] if length <= min(_LARGEST_HEADER, size) else b""
    problem = "it is empty or cut off" if size < 10 else None
    if problem is None and (length < 2 or length > _LARGEST_HEADER):
        problem = "it does not begin like a safetensors file"
    if problem is None and 8 + length > size:
        problem = f"it is cut off: the header alone has {length} bytes, the file {size}"
    header: dict[str, dict[str, Any]] = {}
    if problem is None:
        try:
            header = json.loads(text)
            header.pop("__metadata__", None)
            problem = _wrong_extent(header, size - 8 - length)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            problem = "its header is not readable"
    if problem:
        raise SourceError(f"`{source}`: `{name}` is damaged: {problem}", hint="Download or copy the repository again")
    return header


def _wrong_extent(header: dict[str, dict[str, Any]], data: int) -> str | None:
    """How the tensors fail to fill `data` bytes without a gap, in words."""
    position = 0
    for name, tensor in sorted(header.items(), key=lambda item: (*item[1]["data_offsets"], item[0])):
        begin, end = tensor["data_offsets"]
        needed = -(-math.prod(tensor["shape"]) * _BITS[tensor["dtype"]] // 8)
        if begin != position or end - begin != needed or min(tensor["shape"], default=0) < 0:
            return f"`{name}` does not lie where its dtype and shape put it"
        position = end
    if position > data:
        return f"it is cut off: its tensors need {position} bytes, it has {data}"
    return f"{data - position} bytes follow the last tensor" if position < data else None
