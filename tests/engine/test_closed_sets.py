"""Models of several graphs as closed sets: from a text, a sound or a picture to the next token with the files alone."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import made_up
import msgspec
import numpy as np
import pytest
import soundfile
import torch
import transformers
import zoo
from card_examples import run_as_a_reader
from PIL import Image
from pipeline import Subject

from hub_exporter import media
from hub_exporter.catalogue import BACKENDS, DEFAULT_BACKENDS
from hub_exporter.errors import UsageError
from hub_exporter.generate import generate
from hub_exporter.inputs import asked, features
from hub_exporter.loading import Loaded, generation_config, load
from hub_exporter.records import Artifact, Ask, ExportOutcome, Verification
from hub_exporter.snippets import render_snippet

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("backend", DEFAULT_BACKENDS)
def test_an_encoder_decoder_is_closed_and_its_example_translates(
    backend: str, subject_named: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_named("t5")

    outcome, files = subject.export(backend)
    found = subject.verify(backend, outcome, files)

    assert [part.name for part in outcome.components] == ["encoder", "decode"]
    assert found.level == "parity", found.reason
    assert all(decode.agreed == decode.tokens for decode in found.decodes)
    spoken = example(subject, backend, outcome, files, found, tmp_path)
    rows = 1 if backend.startswith("executorch") else 2
    assert spoken.count(" -> ") == rows, spoken


FIRST_THREE = ("onnx", "openvino", "dynamo")
"""Real Whisper runs on ExecuTorch too, and docs/coverage.md has been there with LLaVA: a minute each is saved here."""


@pytest.mark.parametrize("backend", FIRST_THREE)
def test_a_model_that_reads_pictures_answers_as_generate_does(
    backend: str, subject_named: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_named("llava")
    file = picture_of(subject)

    outcome, files = subject.export(backend)
    found = subject.verify(backend, outcome, files)
    spoken = answer(subject, backend, outcome, files, Ask(prompt="What is it?", image=str(file), tokens=12))

    assert [part.name for part in outcome.components] == ["image_encoder", "embed_tokens", "decode"]
    assert found.level == "parity", found.reason
    assert {decode.batch for decode in subject.reference.decodes} == {1, 3}
    model = load(subject.model)
    eager = asked(model, [(Image.open(file).convert("RGB"), "What is it?")])
    assert spoken == said(model, eager, model.tokenizer, 12)
    shown = Image.radial_gradient("L").resize((320, 240)).convert("RGB")
    shown.save(tmp_path / "shown.png")
    ask = Ask(prompt="What do you see?", image=str(tmp_path / "shown.png"), tokens=64)
    printed = example(subject, backend, outcome, files, found, tmp_path / "target")
    assert printed == answer(subject, backend, outcome, files, ask) + "\n"


@pytest.mark.parametrize(("kind", "backend"), [("qwen2.5-vl", "onnx"), ("qwen2-audio", "dynamo")])
def test_a_question_about_a_picture_of_any_size_or_a_sound_is_answered_as_by_generate(
    kind: str, backend: str, subject_named: Callable[[str], Subject]
) -> None:
    subject = subject_named(kind)
    file, sense = picture_of(subject), "audio" if kind == "qwen2-audio" else "image"
    model = load(subject.model)
    rate = getattr(model.processor, "feature_extractor", None) and model.processor.feature_extractor.sampling_rate
    item = media.sound(file.parent, {"file": file.name}, rate) if rate else Image.open(file).convert("RGB")

    outcome, files = subject.export(backend)
    ask = Ask(prompt="What is it?", tokens=12, **{sense: str(file)})
    spoken = answer(subject, backend, outcome, files, ask)

    assert [part.name for part in outcome.components] == [f"{sense}_encoder", "embed_tokens", "decode"]
    assert set(outcome.placeholders) == {f"{sense}_encoder"}
    assert spoken == said(model, asked(model, [(item, "What is it?")]), model.processor.tokenizer, 12)


@pytest.mark.parametrize("backend", FIRST_THREE)
def test_a_model_that_hears_answers_as_generate_does(
    backend: str, subject_named: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_named("whisper")
    file = picture_of(subject)  # a sound, here

    outcome, files = subject.export(backend)
    found = subject.verify(backend, outcome, files)
    spoken = answer(subject, backend, outcome, files, Ask(audio=str(file), tokens=12))

    assert "200 frames of sound at a time" in outcome.restrictions
    assert found.level == "parity", found.reason
    model = load(subject.model)
    sound = media.sound(file.parent, {"file": file.name}, model.feature_extractor.sampling_rate)
    assert spoken == said(model, features(model, [sound]), zoo.tokenizer(special=False), 12)
    if backend == "dynamo":
        held = torch.export.load(files / "encoder.pt2").state_dict
        read = {name.split(".")[-2] for name in held if ".decoder." in name}
        assert read <= {"k_proj", "v_proj", "embed_positions"}, "the encoder reads no more of the decoder"
    soundfile.write(tmp_path / "tone.wav", np.sin(2 * np.pi * 440 * np.arange(32000) / 16000), 16000, "DOUBLE")
    printed = example(subject, backend, outcome, files, found, tmp_path / "target")
    assert printed == answer(subject, backend, outcome, files, Ask(audio=str(tmp_path / "tone.wav"))) + "\n"


@pytest.mark.parametrize("backend", ["onnx", "dynamo"])
@pytest.mark.parametrize(
    ("kind", "outputs"), [("clip", ["text_embeds", "image_embeds"]), ("siglip", ["pooler_output"] * 2)]
)
def test_two_encoders_apart_give_the_scores_with_the_constants_that_travel_along(
    kind: str, outputs: list[str], backend: str, subject_named: Callable[[str], Subject], tmp_path: Path
) -> None:
    subject = subject_named(kind)

    outcome, files = subject.export(backend, separate_encoders=True)
    found = subject.verify(backend, outcome, files)
    louder = {name: 1.001 * value for name, value in outcome.constants.items()}
    wrong = subject.verify(backend, msgspec.structs.replace(outcome, constants=louder), files)

    assert [(part.name, len(part.outputs)) for part in outcome.components] == [("text_model", 1), ("vision_model", 1)]
    assert (outcome.layout, found.level) == ("two-encoders", "parity"), found.reason
    spoken = example(subject, backend, outcome, files, found, tmp_path)
    assert len(spoken.splitlines()) == 2, "a line of scores for each picture"
    compared = {figure.output for case in found.cases for figure in case.figures}
    alone = {f"{side}_{what}" for side in ("text", "image") for what in ("embeds", "features")}
    assert compared == alone | {"logits_per_image", "logits_per_text"}
    assert (wrong.passed, "logits_per_" in wrong.reason) == (False, True)
    assert all(part.data is None for part in outcome.components), "neither fetches the weights of the other"
    if backend == "onnx":
        assert [part.outputs[0].name for part in outcome.components] == outputs
        sizes = [(files / part.file).stat().st_size for part in outcome.components]
        assert sum(sizes) < 1.5 * subject.model.weight_bytes, "each has its own weights alone"


def test_what_is_asked_of_the_wrong_model_is_refused(subject_named: Callable[[str], Subject], tmp_path: Path) -> None:
    subject = subject_named("llava")
    job = subject.job("onnx")
    outcome = made_up.outcome("onnx")

    with pytest.raises(UsageError, match="reads a picture"):
        generate(job, outcome, tmp_path, Ask(prompt="What is it?"), print)
    with pytest.raises(UsageError, match="cannot be read"):
        generate(job, outcome, tmp_path, Ask(prompt="What?", image=str(tmp_path / "none.png")), print)


def picture_of(subject: Subject) -> Path:
    """The file of a held-out row."""
    (value,) = (value for value in subject.capture.held_out[0].values.values() if isinstance(value, dict))
    return subject.folder / "rows" / value["file"]


def answer(subject: Subject, backend: str, outcome: ExportOutcome, files: Path, ask: Ask) -> str:
    pieces: list[str] = []
    generate(subject.job(backend), outcome, files, ask, pieces.append)
    return "".join(map(json.loads, pieces))


def said(model: Loaded, inputs: dict[str, np.ndarray], tokenizer: object, tokens: int) -> str:
    """What the eager model generates greedily, as text."""
    model.model.generation_config = generation_config(model.model, max_new_tokens=tokens)
    given = {name: torch.from_numpy(value) for name, value in inputs.items()}
    with torch.no_grad():
        answer = transformers.GenerationMixin.generate(model.model, **given)[0]
    begun = inputs["input_ids"].shape[1] if "input_ids" in inputs else 1
    return tokenizer.decode(answer[begun:], skip_special_tokens=True)  # type: ignore[attr-defined, no-any-return]


def example(
    subject: Subject, backend: str, outcome: ExportOutcome, files: Path, found: Verification, folder: Path
) -> str:
    """What the card's example prints in a folder laid out like the target."""
    shutil.copytree(files, folder / BACKENDS[backend].folder)
    for name in subject.model.side_files:
        shutil.copyfile(Path(subject.model.folder) / name, folder / name)
    job = made_up.passed(backend, export=outcome, verification=found, folder=BACKENDS[backend].folder)
    index = made_up.index(subject.model, (job,))
    sides = tuple(Artifact(path=name, size=0, sha256="") for name in subject.model.side_files)
    snippet = render_snippet(msgspec.structs.replace(index, side_files=sides), job)
    assert snippet
    return run_as_a_reader([sys.executable, "-I", "-c", snippet], folder)
