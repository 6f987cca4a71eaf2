"""A real model exported to all CPU backends by the command, and what its index says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from hub_exporter.records import Index, JobResult, ModelReport, from_json

CPU_BACKENDS = ("onnx", "openvino", "executorch-xnnpack", "dynamo")


def exported(source: Path, target: Path, backends: tuple[str, ...] = CPU_BACKENDS) -> Index:
    """Export with the built-in rows and all other defaults; everything must pass."""
    command = [sys.executable, "-m", "hub_exporter", "export", str(source), "--to", str(target)]
    command += ["--backends", ",".join(backends)]
    done = subprocess.run([*command, "--dataset", "builtin", "--json"], stdout=subprocess.PIPE, check=False)
    (report,) = msgspec.json.decode(done.stdout, type=tuple[ModelReport, ...])
    assert done.returncode == 0, [result.reason for result in report.results]
    return from_json((target / "hub-exporter.json").read_bytes(), Index)


def level(job: JobResult) -> str | None:
    """What was proved of a job that passed."""
    return job.verification.level if job.status == "passed" and job.verification else None
