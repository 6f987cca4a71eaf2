"""all-MiniLM-L6-v2, through the command as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from card_examples import output_of
from real_exports import CPU_BACKENDS, exported, level
from real_models import minilm

pytestmark = pytest.mark.real


def test_it_reaches_parity_on_every_cpu_backend_and_the_cards_examples_agree(tmp_path: Path) -> None:
    index = exported(minilm(), tmp_path / "out")

    assert {job.backend: level(job) for job in index.jobs} == dict.fromkeys(CPU_BACKENDS, "parity")
    assert index.source.sentence_transformers
    for job in index.jobs:
        assert sum(artifact.size for artifact in job.artifacts) < 1.03 * index.source.weight_bytes
        assert job.export is not None
        assert (job.export.components[0].planned_memory or 0) < 500_000_000
    assert len({output_of(index, job, tmp_path / "out") for job in index.jobs}) == 1
