"""Pictures, sounds and series: what is stated of the files, and that nothing that is not stated reaches `parity`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from pipeline import Subject

from hub_exporter.catalogue import BACKENDS
from hub_exporter.export import _tiles
from hub_exporter.inputs import Captured, asked, both_ways, fixed_words
from hub_exporter.loading import Loaded, load, processors
from hub_exporter.records import ExportOutcome, Index, JobResult
from hub_exporter.snippets import render_snippet
from hub_exporter.voices import traceable

pytestmark = pytest.mark.engine

Named = Callable[[str], Subject]


def test_what_the_processor_fixes_is_stated_and_what_it_lets_vary_varies(subject_named: Named) -> None:
    square, any_size = subject_named("vit"), subject_named("detr")

    fixed, _ = square.export("dynamo")
    free, _ = any_size.export("dynamo")

    assert fixed.restrictions == ("pictures of 32 × 32 pixels, as the processor makes them",)
    assert free.restrictions == ()
    (port,) = [port for port in free.components[0].inputs if port.name == "pixel_values"]
    assert [isinstance(size, str) for size in port.shape] == [True, False, True, True]
    sizes = {(case.sizes["height"], case.sizes["width"]) for case in any_size.reference.cases}
    assert len(sizes) >= 4
    assert max(max(size) for size in sizes) > 2 * min(min(size) for size in sizes), "the processor's own size too"


@pytest.mark.parametrize(
    ("free", "inputs", "words"),
    [
        ({"batch_size"}, {"pixel_values": (2, 3, 32, 40)}, "pictures of 40 × 32 pixels, as the processor makes them"),
        ({"batch_size"}, {"input_features": (2, 80, 3000)}, "3000 frames of sound at a time"),
        ({"batch_size"}, {"input_values": (2, 1024, 128)}, "1024 frames of sound at a time"),
        ({"batch_size"}, {"input_values": (2, 16000)}, "16000 samples of sound at a time"),
        ({"batch_size", "sequence_length"}, {"input_features": (2, 500, 80)}, ""),
        ({"batch_size"}, {"past_values": (2, 48, 3)}, "48 numbers of 3 series at a time"),
        (
            {"batch_size", "sequence_length"},
            {"input_features": (2, 128, 3000), "input_ids": (2, 9)},
            "3000 frames of sound at a time",
        ),
        (
            {"text_batch_size", "sequence_length"},
            {"pixel_values": (2, 5, 3, 48, 64), "input_ids": (2, 9)},
            "pictures in tiles of 64 × 48 pixels, as the processor cuts them",
        ),
    ],
)
def test_what_the_processor_fixes_in_words(free: set[str], inputs: dict[str, tuple[int, ...]], words: str) -> None:
    arrays = {name: np.zeros(shape) for name, shape in inputs.items()}

    assert "; ".join(fixed_words(Captured(arrays, frozenset(free)))) == words


def test_what_a_prompt_with_pictures_cannot_do_is_stated() -> None:
    tiles = {"pixel_values": np.zeros((2, 5, 3, 8, 8)), "input_ids": np.zeros((2, 9))}
    kinds = {"pixel_values": np.zeros((2, 3, 8, 8)), "token_type_ids": np.zeros((2, 9))}

    assert _tiles("uncached", tiles) == ["5 tiles of each text's pictures, of zeros where there are fewer"]
    assert _tiles("multimodal", tiles) == _tiles("uncached", kinds) == []
    assert [both_ways(Captured(inputs)) for inputs in (kinds, tiles)] == [True, False]


@pytest.mark.parametrize("kind", ["smolvlm", "qwen2-vl"])
def test_a_processor_that_reads_videos_too_makes_a_turn_of_a_chat_without_torchvision(
    kind: str, subject_named: Named, tmp_path: Path
) -> None:
    model = subject_named(kind).model
    folder = shutil.copytree(model.folder, tmp_path / "model")
    image = "<image>" if kind == "smolvlm" else "<|image_pad|>"
    turn = "{% for part in messages[0].content %}{{ image if part.type == 'image' else part.text }}{% endfor %} So"
    (folder / "chat_template.jinja").write_text(turn.replace("image if", f"'{image}' if"), "utf-8")
    made = processors(msgspec.structs.replace(model, folder=str(folder)), "picture in text", [])

    inputs = asked(Loaded(model=None, notes=(), **made), [(Image.new("RGB", (60, 40)), "What is it?")])

    ids = inputs["input_ids"][0]
    assert (ids == made["tokenizer"].convert_tokens_to_ids(image)).sum() > 1, (
        "the placeholder is as long as the picture"
    )
    assert made["tokenizer"].decode(ids).endswith("is it? So")


def test_an_axis_that_does_not_move_and_is_not_stated_is_a_mismatch(subject_named: Named) -> None:
    subject = subject_named("hubert")
    outcome, files = subject.export("dynamo", dynamic=False)
    silent = msgspec.structs.replace(outcome, fixed={})

    stated, found = subject.verify("dynamo", outcome, files), subject.verify("dynamo", silent, files)

    assert (stated.level, stated.passed) == ("parity", True)
    assert {case.shape for case in stated.cases} == {tuple(outcome.fixed.values())}
    assert (found.level, found.passed) == ("loaded", False)
    assert found.immovable == ("sequence_length",), "the batch would be found the next time"


def test_an_axis_that_is_to_stay_is_captured_long_stated_and_checked_at_its_size(subject_named: Named) -> None:
    subject = subject_named("hubert")
    outcome, files = subject.export("dynamo", static_axes=["sequence_length"])

    found = subject.verify("dynamo", outcome, files)

    length = max(case.sizes["sequence_length"] for case in subject.reference.cases)
    assert outcome.fixed == {"sequence_length": length}
    assert outcome.restrictions == (f"length fixed to {length}",)
    assert (found.level, found.passed) == ("parity", True)
    assert {case.shape for case in found.cases} == {(1, length), (2, length)}


@pytest.mark.parametrize("kind", ["vit", "ast", "clip", "patchtst"])
def test_the_example_runs_as_it_stands_in_the_written_folder(kind: str, subject_named: Named, tmp_path: Path) -> None:
    subject = subject_named(kind)
    outcome, files = subject.export("dynamo")
    result = beside_the_model(subject, outcome, files, tmp_path)

    snippet = render_snippet(Index(tool="test", source=subject.model, capture=None, jobs=(result,)), result)

    assert snippet is not None
    done = subprocess.run(
        [sys.executable, "-I", "-c", snippet], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 1


def beside_the_model(subject: Subject, outcome: ExportOutcome, files: Path, target: Path) -> JobResult:
    """The files and the source's side files, as they are written into a target."""
    folder = BACKENDS["dynamo"].folder
    shutil.copytree(files, target / folder)
    for name in subject.model.side_files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(subject.model.folder) / name, target / name)
    return JobResult(job="x", backend="dynamo", variant="fp32", status="passed", folder=folder, export=outcome)


def test_a_voice_is_loaded_without_its_random_variation_and_that_is_said(subject_named: Named) -> None:
    loaded = load(subject_named("vits").model)
    tokens = torch.arange(9)[None]

    with torch.no_grad():
        same = [loaded.model(tokens).waveform for _ in range(2)]
        loaded.model.noise_scale = 0.667
        others = [loaded.model(tokens).waveform for _ in range(2)]

    assert any("`noise_scale` and `noise_scale_duration` 0" in note for note in loaded.notes)
    assert torch.equal(*same)
    assert not torch.equal(*others)


def test_durations_are_traced_with_the_numbers_of_the_model(subject_named: Named) -> None:
    from transformers.models.vits import modeling_vits

    values = torch.linspace(-9, 9, 60).reshape(2, 1, 30)  # the spline bends what is within -5 and 5
    widths, heights, slopes = (torch.randn(2, 1, 30, bins, generator=torch.manual_seed(bins)) for bins in (10, 10, 9))

    def spline(reverse: bool) -> tuple[torch.Tensor, ...]:
        own = modeling_vits._unconstrained_rational_quadratic_spline
        return tuple(own(values, widths, heights, slopes, reverse=reverse))

    for reverse in (True, False):
        expected = spline(reverse)
        with traceable(load(subject_named("vits").model).model):
            got = spline(reverse)
        assert not torch.equal(expected[0], values)
        torch.testing.assert_close(got, expected)
