from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hub_exporter.checkpoint import Checkpoint, read_checkpoint
from hub_exporter.errors import SourceError

SOUND = save({"a": np.ones((3, 2), np.float32), "b": np.ones(5, np.float16), "c": np.ones((), np.int64)})


def read(content: bytes) -> tuple[Checkpoint | None, bool]:
    """What we make of a file, and whether the safetensors library opens it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        try:
            with safe_open(path, framework="numpy"):
                opens = True
        except (SafetensorError, OSError):
            opens = False
        try:
            return read_checkpoint(Path(folder), [path.name], "model"), opens
        except SourceError:
            return None, opens


@given(st.integers(0, len(SOUND) - 1))
def test_every_truncation_is_refused(length: int) -> None:
    assert read(SOUND[:length]) == (None, False)


@given(st.integers(0, len(SOUND) - 1), st.integers(0, 255))
def test_whatever_we_accept_safetensors_opens(position: int, byte: int) -> None:
    checkpoint, opens = read(SOUND[:position] + bytes([byte]) + SOUND[position + 1 :])

    assert opens or checkpoint is None


tensors = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "I64", "BOOL", "X"]),
        "shape": st.lists(st.integers(-1, 3), max_size=3),
        "data_offsets": st.lists(st.integers(0, 12), min_size=2, max_size=2),
    }
)


@given(st.dictionaries(st.sampled_from("ab"), tensors, max_size=2), st.integers(0, 12))
def test_any_header_is_read_as_safetensors_does_or_refused(header: dict[str, Any], size: int) -> None:
    text = json.dumps(header).encode()
    checkpoint, opens = read(struct.pack("<Q", len(text)) + text + bytes(size))

    assert opens or checkpoint is None


def test_sound_file_is_read() -> None:
    checkpoint, opens = read(SOUND)

    assert opens
    assert checkpoint is not None
    assert (checkpoint.parameters, checkpoint.weight_bytes) == (12, 42)
    assert checkpoint.dtypes == {"F16": 5, "F32": 6, "I64": 1}
