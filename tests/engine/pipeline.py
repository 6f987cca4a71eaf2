"""One job in the test's own process: what the stage processes do, without starting them."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zoo

from hub_exporter.catalogue import BACKENDS
from hub_exporter.export import export
from hub_exporter.plan import make_plan
from hub_exporter.recipe import requests
from hub_exporter.records import (
    CaptureSpec,
    ExportOutcome,
    Index,
    Job,
    JobResult,
    Reference,
    ResolvedModel,
    Verification,
)
from hub_exporter.reference import make
from hub_exporter.resolve import resolve
from hub_exporter.sample import draw
from hub_exporter.snippets import render_snippet
from hub_exporter.tasks import TASKS
from hub_exporter.verify import read_reference, verify


@dataclass(frozen=True)
class Subject:
    """A model of the zoo, resolved, with its rows and the eager model's answers."""

    model: ResolvedModel
    capture: CaptureSpec
    reference: Reference
    arrays: Mapping[str, np.ndarray]
    folder: Path

    def job(self, backend: str, **engine: Any) -> Job:
        """The job that a recipe with these engine options would give."""
        variant = BACKENDS[backend].variants[0]
        flags = {"--backends": backend, "--variants": variant, "--engine": _flags(engine), "--to": str(self.folder)}
        asked = requests(None, [self.model.folder], {key: value for key, value in flags.items() if value})
        (job,) = make_plan(asked, [self.model], {}, None).jobs
        return job

    def export(self, backend: str, **engine: Any) -> tuple[ExportOutcome, Path]:
        """Export, and say where the files are."""
        return self.export_job(self.job(backend, **engine), "-".join([backend, *engine]))

    def export_job(self, job: Job, name: str = "") -> tuple[ExportOutcome, Path]:
        """Export a job, and say where the files are."""
        files = self.folder / (name or job.backend)
        return export(job, self.capture, self.folder / "rows", files, lambda step: None), files

    def verify(self, backend: str, outcome: ExportOutcome, files: Path) -> Verification:
        variant = BACKENDS[backend].variants[0]
        return verify(backend, outcome, files, self.reference, self.arrays, variant=variant)

    def run_example(self, backend: str, outcome: ExportOutcome, files: Path) -> str:
        """What the card's example prints, in a folder like the published one."""
        folder, place = self.folder / f"{files.name}-example", BACKENDS[backend].folder
        shutil.copytree(files, folder / place)
        for name in self.model.side_files:
            shutil.copyfile(Path(self.model.folder) / name, folder / name)
        result = JobResult(job="a", backend=backend, variant="", status="passed", folder=place, export=outcome)
        snippet = render_snippet(Index(tool="", source=self.model, capture=None, jobs=(result,)), result)
        assert snippet
        command = [sys.executable, "-I", "-c", snippet]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _flags(engine: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in engine.items()]


@functools.cache
def subject(name: str, root: Path) -> Subject:
    """The model `name` of the zoo under `root`, made once per process."""
    folder = root / name
    return subject_of(zoo.write(zoo.BY_NAME[name], folder / "model"), folder)


def subject_of(repository: Path, folder: Path) -> Subject:
    """Any repository, with the zoo's texts as its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in zoo.TEXTS), "utf-8")
    (request,) = requests(None, [str(repository)], {"--dataset": str(rows), "--to": str(folder / "out")})
    model = resolve(request)
    if TASKS[model.task].inputs != "text":
        (request,) = requests(None, [str(repository)], {"--dataset": "builtin", "--to": str(folder / "out")})
    spec = request.settings.dataset
    assert spec is not None
    capture = draw(msgspec.structs.replace(spec, rows=len(zoo.TEXTS)), TASKS[model.task], folder / "rows")
    make(model, capture, folder / "rows", folder / "reference")
    reference, arrays = read_reference(folder / "reference")
    return Subject(model, capture, reference, arrays, folder)
