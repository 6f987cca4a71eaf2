"""Real models, out of packages that carry them, through the command as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import real_models
from card_examples import output_of

from hub_exporter.records import Index, ModelReport, from_json

pytestmark = pytest.mark.real

CPU_BACKENDS = ("onnx", "openvino", "executorch-xnnpack", "dynamo")


def export(source: Path, target: Path, *arguments: str) -> tuple[ModelReport, Index]:
    command = [sys.executable, "-m", "hub_exporter", "export", str(source), "--to", str(target), "--json"]
    done = subprocess.run([*command, "--dataset", "builtin", *arguments], stdout=subprocess.PIPE, check=False)
    (report,) = msgspec.json.decode(done.stdout, type=tuple[ModelReport, ...])
    assert done.returncode == 0, [result.reason for result in report.results]
    return report, from_json((target / "hub-exporter.json").read_bytes(), Index)


@pytest.mark.xdist_group("minilm")
def test_all_minilm_reaches_parity_on_every_cpu_backend(tmp_path: Path) -> None:
    _, index = export(real_models.minilm(), tmp_path / "out", "--backends", ",".join(CPU_BACKENDS))

    assert {job.backend: level(job) for job in index.jobs} == dict.fromkeys(CPU_BACKENDS, "parity")
    assert index.source.sentence_transformers
    for job in index.jobs:
        assert sum(artifact.size for artifact in job.artifacts) < 1.03 * index.source.weight_bytes
        assert job.export is not None
        assert (job.export.components[0].planned_memory or 0) < 500_000_000
    examples = {output_of(index, job, tmp_path / "out") for job in index.jobs}
    assert len(examples) == 1, "the examples of all cards print the same"


@pytest.mark.xdist_group("smollm2")
def test_smollm2_says_what_the_original_says_on_every_cpu_backend(tmp_path: Path) -> None:
    _, index = export(real_models.smollm2(), tmp_path / "out")

    assert {job.backend: level(job) for job in index.jobs} == dict.fromkeys(CPU_BACKENDS, "parity")
    for job in index.jobs:
        assert job.verification is not None
        loops = job.verification.decodes
        assert all(loop.agreed == loop.tokens == 32 * loop.prompts for loop in loops)
        assert sum(loop.prompts == 1 and "pieces" not in loop.case for loop in loops) == 3
        if job.backend != "executorch-xnnpack":  # its cache takes one row
            assert any(loop.prompts == 3 for loop in loops)
    assert not list(tmp_path.glob(".*")), "the working folder is gone"


def level(job: object) -> str | None:
    verification = getattr(job, "verification", None)
    return verification.level if verification and verification.passed else None


def test_the_environment_has_the_weights() -> None:
    """These tests must not be skipped in CI for want of a package."""
    if os.environ.get("CI"):
        assert real_models.minilm().is_dir()
