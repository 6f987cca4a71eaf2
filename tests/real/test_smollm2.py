"""SmolLM2-135M-Instruct, through the command as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_exports import CPU_BACKENDS, exported, level
from real_models import smollm2

pytestmark = [pytest.mark.real, pytest.mark.timeout(3000)]


def test_it_says_what_the_original_says_on_every_cpu_backend(tmp_path: Path) -> None:
    index = exported(smollm2(), tmp_path / "out")

    assert {job.backend: level(job) for job in index.jobs} == dict.fromkeys(CPU_BACKENDS, "parity")
    for job in index.jobs:
        assert job.verification is not None
        loops = job.verification.decodes
        assert all(loop.agreed == loop.tokens == 32 * loop.prompts for loop in loops)
        assert sum(loop.prompts == 1 and "pieces" not in loop.case for loop in loops) == 3
        if job.backend != "executorch-xnnpack":  # its cache takes one row
            assert any(loop.prompts == 3 for loop in loops)
    ratios = {job.backend: job.size_ratio or 9 for job in index.jobs}
    assert all(ratio <= 1.03 for ratio in ratios.values()), ratios
    assert not list(tmp_path.glob(".*")), "the working folder is gone"
