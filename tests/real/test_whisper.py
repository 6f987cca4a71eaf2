"""Whisper-tiny with real weights hears a spoken sentence, and the exported files write what the eager model writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from real_exports import exported, level
from whisper_tiny import SENTENCE, speak, whisper_tiny

from hub_exporter import media

pytestmark = pytest.mark.real

BACKENDS = ("onnx", "dynamo")


def test_a_spoken_sentence_is_transcribed_as_the_model_does(tmp_path: Path) -> None:
    sound = speak(SENTENCE, tmp_path / "sentence.wav")

    index = exported(whisper_tiny(), tmp_path / "out", BACKENDS)

    assert {job.backend: level(job) for job in index.jobs} == dict.fromkeys(BACKENDS, "parity")
    expected = heard(whisper_tiny(), sound)
    assert "morning" in expected
    assert {written(tmp_path / "out", backend, sound) for backend in BACKENDS} == {expected}


def heard(model: Path, sound: Path) -> str:
    """What the eager model writes, greedily."""
    extractor = transformers.AutoFeatureExtractor.from_pretrained(model)
    samples = media.sound(sound.parent, {"file": sound.name}, extractor.sampling_rate)
    features = extractor([samples], sampling_rate=extractor.sampling_rate, return_tensors="pt").input_features
    eager = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(model).eval()
    eager.generation_config = transformers.GenerationConfig(
        max_new_tokens=64, decoder_start_token_id=50257, eos_token_id=50256, pad_token_id=50256
    )
    with torch.no_grad():
        tokens = transformers.GenerationMixin.generate(eager, input_features=features)[0, 1:]
    return str(transformers.AutoTokenizer.from_pretrained(model).decode(tokens, skip_special_tokens=True)).strip()


def written(target: Path, backend: str, sound: Path) -> str:
    """What the exported files write."""
    command = [sys.executable, "-m", "hub_exporter", "generate", target, "--backend", backend, "--audio", sound]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
