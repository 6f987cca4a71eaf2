"""Each job on a machine of its own, and one that publishes: what `export` does in one go, in steps."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec

from hub_exporter import cells
from hub_exporter.catalogue import BACKENDS
from hub_exporter.checks import check_name
from hub_exporter.errors import ExitCode, HubExporterError, SourceError, UsageError
from hub_exporter.folder import check_writable, explained, open_work
from hub_exporter.machine import this_machine
from hub_exporter.pins import digest
from hub_exporter.preflight import written
from hub_exporter.records import Job, JobResult, ModelRequest, ModelSettings, Plan, from_json, to_json
from hub_exporter.report import Report
from hub_exporter.resolve import resolve
from hub_exporter.session import Outcome, Work, exit_code_of, folders, outcome_of, run_jobs
from hub_exporter.targets import Wishes, target_of
from hub_exporter.weights import missing_weights

# ── The plan as a file ────────────────────────────────────────────────────────────────────────────────────────────


def read_plan(path: Path) -> Plan:
    """A plan that was saved. Raises UsageError."""
    hint = "Make it with `hub-exporter plan --save FILE`, by the same version of hub-exporter"
    try:
        return from_json(path.read_bytes(), Plan)
    except OSError as error:
        raise UsageError(f"The plan `{path}` cannot be read: {error.strerror}", hint=hint) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` is not a plan: {error}", hint=hint) from error


def save_plan(path: Path, plan: Plan) -> None:
    """Write a plan for `read_plan`. Raises UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_json(plan))
    except OSError as error:
        raise UsageError(f"--save: `{path}` cannot be written: {error.strerror}", hint="Name another file") from error


def id_of(plan: Plan) -> str:
    """Short digest of a plan: what is made of it carries the id, beside what is made of others."""
    return hashlib.sha256(to_json(plan)).hexdigest()[:12]


# ── One job ───────────────────────────────────────────────────────────────────────────────────────────────────────


def run_job(report: Report, plan: Plan, name: str, root: Path, isolate: bool = False) -> ExitCode:
    """Run one job of a plan, for a publisher elsewhere: what comes of it is below `root`. Raises UsageError for a job
    that is not in the plan, TargetError where nothing can be written."""
    job = next((job for job in plan.jobs if job.name == name), None)
    if job is None:
        check_name(name, [job.name for job in plan.jobs], "The plan has no job")
    assert job is not None
    place = root / name
    with explained(place):
        shutil.rmtree(place, ignore_errors=not place.is_dir())  # what an earlier try left is no result of this one
    stopped, capture = None, None
    with open_work(place) as work:
        try:
            job = _here(job, isolate)
            report.begin(job.model, (job,), str(place))
            check_writable(place, written([job]) + missing_weights(job.model))
            run = run_jobs(report, (job,), work, True, isolate)
            capture, (result,) = run.capture, run.results
        except HubExporterError as error:
            stopped = error
            result = JobResult(
                job=name,
                backend=job.backend,
                variant=job.variant,
                status="failed",
                reason=str(error),
                hint=error.hint,
            )
        cells.write(place, job, result, capture, work)
    report.results([msgspec.structs.replace(result, log=str(place / cells.LOG) if result.log else None)])
    return stopped.exit_code if stopped else exit_code_of([result.status])


def _here(job: Job, isolate: bool) -> Job:
    """The job with its model on this machine. Raises UsageError on a machine of another kind and for other pins than
    were planned, SourceError for a source that is not what was planned."""
    backend, machine = BACKENDS[job.backend], this_machine()
    if not backend.runs_on(machine):
        raise UsageError(
            f"`{job.name}` needs a machine of the kind `{backend.runner}`, this is `{machine}`",
            hint=f"Name the right label for `{backend.runner}` under `runners:` in the recipe",
        )
    if isolate and job.pins != digest(job.backend):
        raise UsageError(
            f"`{job.name}` was planned with other pins of `{job.backend}` than those here",
            hint="Plan and run with the same version of hub-exporter",
        )
    planned = job.model
    source = f"{planned.repo}@{planned.commit}" if planned.repo else planned.source
    settings = ModelSettings(source=source, task=planned.task, trust_remote_code=planned.remote_code)
    found = resolve(ModelRequest(settings=settings))
    if (found.commit, found.files) != (planned.commit, planned.files):
        differing = sorted({file.path for file in {*found.files} ^ {*planned.files}})
        what = f": `{differing[0]}` is another" if differing else ""
        raise SourceError(f"`{planned.source}` is not what was planned{what}", hint="Plan again, and run that plan")
    return msgspec.structs.replace(job, model=msgspec.structs.replace(planned, folder=found.folder))


# ── Publishing ────────────────────────────────────────────────────────────────────────────────────────────────────


def publish_model(report: Report, work: Work, root: Path, wishes: Wishes) -> Outcome:
    """Publish what passed of one model, from the results below `root`. What stops it is reported."""
    results, publication, stopped = work.skipped, None, None
    try:
        if work.jobs:
            run = cells.merged(root, work.jobs, cells.gather(root, work.jobs))
            results = (*run.results, *work.skipped)
            if run.kept:
                target = target_of(work.target, wishes)
                size = sum(artifact.size for result in run.results for artifact in result.artifacts)
                target.prepare(run.model, size, folders(work))
                publication = target.publish(run)
    except HubExporterError as error:
        report.error(error, work.source)
        stopped = error
    return outcome_of(work, results, publication, stopped)
