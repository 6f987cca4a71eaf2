"""Whisper-tiny with real weights hears a spoken sentence, and the exported files write what the eager model writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from real_exports import CPU_BACKENDS, exported, level
from whisper_tiny import SENTENCE, speak, whisper_tiny

from hub_exporter import backends, media
from hub_exporter.decoding import Loop
from hub_exporter.records import Index, JobResult

pytestmark = pytest.mark.real

START, END, MOST = 50257, 50256, 64
"""Tokens of the English Whisper, and how many are written at most."""


@dataclass(frozen=True)
class Heard:
    """The sentence, as a sound and as the eager model's features, and what that one writes."""

    sound: Path
    features: np.ndarray
    tokens: list[int]
    text: str


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    sound = speak(SENTENCE, tmp_path_factory.mktemp("sound") / "sentence.wav")
    extractor = transformers.AutoFeatureExtractor.from_pretrained(whisper_tiny())
    samples = media.sound(sound.parent, {"file": sound.name}, extractor.sampling_rate)
    features = extractor([samples], sampling_rate=extractor.sampling_rate, return_tensors="pt").input_features
    eager = transformers.AutoModelForSpeechSeq2Seq.from_pretrained(whisper_tiny()).eval()
    eager.generation_config = transformers.GenerationConfig(
        max_new_tokens=MOST, decoder_start_token_id=START, eos_token_id=END, pad_token_id=END
    )
    with torch.no_grad():
        tokens = transformers.GenerationMixin.generate(eager, input_features=features)[0, 1:].tolist()
    text = transformers.AutoTokenizer.from_pretrained(whisper_tiny()).decode(tokens, skip_special_tokens=True)
    return Heard(sound, features.numpy(), tokens, str(text).strip())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Index]:
    folder = tmp_path_factory.mktemp("whisper") / "out"
    return folder, exported(whisper_tiny(), folder)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_a_spoken_sentence_is_transcribed_as_the_model_does(
    backend: str, heard: Heard, target: tuple[Path, Index]
) -> None:
    folder, index = target
    (job,) = (job for job in index.jobs if job.backend == backend)

    assert level(job) == "parity"
    assert "morning" in heard.text
    assert heard.tokens[-1] == END
    assert list(chosen(folder, job, heard.features)) == heard.tokens
    assert written(folder, backend, heard.sound) == heard.text


def chosen(folder: Path, job: JobResult, features: np.ndarray) -> Iterator[int]:
    """The tokens that the exported files choose, the last one too."""
    assert job.export
    loop = Loop(backends.get(job.backend).open_runner(folder / job.folder, job.export), START)
    logits = loop.begin({"input_features": features})
    for _ in range(MOST):
        token = int(logits[0].argmax())
        yield token
        if token == END:
            return
        logits = loop.go_on(np.array([[token]]))


def written(target: Path, backend: str, sound: Path) -> str:
    """What `hub-exporter generate` writes."""
    command = [sys.executable, "-m", "hub_exporter", "generate", target, "--backend", backend, "--audio", sound]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
