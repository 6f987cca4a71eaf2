"""An encoder-decoder as a closed set of two graphs: from a text to the next token with the written files alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import made_up
import msgspec
import pytest
from card_examples import run_as_a_reader
from pipeline import Subject

from hub_exporter.catalogue import BACKENDS, DEFAULT_BACKENDS
from hub_exporter.records import Artifact, ExportOutcome, Verification
from hub_exporter.snippets import render_snippet

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("backend", DEFAULT_BACKENDS)
def test_the_set_is_closed_and_its_example_translates(
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
