"""One run of the command, stage after stage and model after model. A model that fails does not stop the others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter import hub, wording
from hub_exporter.catalogue import BACKENDS
from hub_exporter.errors import ExitCode, HubError, HubExporterError, UsageError
from hub_exporter.plan import hub_target, make_plan, unique_names
from hub_exporter.publish import needed_bytes
from hub_exporter.recipe import load_recipe, requests
from hub_exporter.records import (
    Job,
    JobResult,
    ModelReport,
    ModelRequest,
    ModelRun,
    Plan,
    Publication,
    PublishSettings,
    ResolvedModel,
)
from hub_exporter.report import Report
from hub_exporter.resolve import resolve
from hub_exporter.run import load_again, run_model
from hub_exporter.targets import Wishes, target_of
from hub_exporter.weights import fetch_weights, missing_weights


@dataclass(frozen=True)
class Work:
    """One model of the plan."""

    model: ResolvedModel
    target: str
    jobs: tuple[Job, ...]
    skipped: tuple[JobResult, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one model, and the error that stopped it."""

    report: ModelReport
    error: HubExporterError | None = None


@dataclass(frozen=True)
class Prepared:
    """The plan, the work in it, and the models that cannot be worked on."""

    plan: Plan
    work: tuple[Work, ...]
    refused: tuple[Outcome, ...]
    publish: PublishSettings
    """From the recipe."""


@dataclass(frozen=True)
class Options:
    """What the command line alone decides."""

    wishes: Wishes
    verify: bool
    keep_work: bool


def prepare(
    report: Report, sources: Sequence[str], recipe_file: Path | None, flags: Mapping[str, Any], only: str | None
) -> Prepared:
    """Read what is asked for, resolve every model, and plan. Raises UsageError."""
    recipe = load_recipe(recipe_file) if recipe_file else None
    found, refused = [], []
    for request in requests(recipe, sources, flags):
        try:
            found.append((request, resolve(request)))
        except HubExporterError as error:
            report.error(error, request.settings.source)
            refused.append(_refused(request, error))
    models = unique_names([model for _, model in found])
    asked = [request for request, _ in found]
    plan = make_plan(asked, models, recipe.runners if recipe else {}, only if found else None)
    work = tuple(_work(plan, request, model) for request, model in zip(asked, models, strict=True))
    return Prepared(plan, work, tuple(refused), recipe.publish if recipe else PublishSettings())


def _refused(request: ModelRequest, error: HubExporterError) -> Outcome:
    settings = request.settings
    report = ModelReport(source=settings.source, target=settings.target, results=(), written=False, error=str(error))
    return Outcome(report, error)


def _work(plan: Plan, request: ModelRequest, model: ResolvedModel) -> Work:
    jobs = tuple(job for job in plan.jobs if job.model == model)
    skipped = []
    for skip in plan.skipped:
        name, backend, variant = skip.name.rsplit(".", 2)
        if name == model.name:
            result = JobResult(job=skip.name, backend=backend, variant=variant, status="skipped", reason=skip.reason)
            skipped.append(result)
    return Work(model, jobs[0].target if jobs else request.settings.target, jobs, tuple(skipped))


def wishes(prepared: Prepared, require: str | None, create_pr: bool, dry_run: bool) -> Wishes:
    """How to publish: the command line before the recipe. Raises UsageError for a pull request to a folder."""
    folders = [work.target for work in prepared.work if work.jobs and hub_target(work.target) is None]
    if create_pr and folders:
        raise UsageError(
            f"--create-pr: `{folders[0]}` is a folder", hint="Name a repository of the Hub with `--to namespace/name`"
        )
    return Wishes(
        require=require or prepared.publish.require,
        create_pr=create_pr or prepared.publish.mode == "pull-request",
        dry_run=dry_run,
    )


def export_model(report: Report, work: Work, options: Options) -> Outcome:
    """Run the jobs of one model and publish what passed. What stops it is reported."""
    results, publication, stopped = work.skipped, None, None
    try:
        if work.jobs:
            target = target_of(work.target, options.wishes)
            needed = needed_bytes(work.model, len(work.jobs))
            target.prepare(work.model, needed, [BACKENDS[job.backend].folder for job in work.jobs])
            report.begin(work.model, work.jobs, work.target)
            with target.open_work(keep=options.keep_work) as folder:
                run = _run(report, work, folder, options)
                results = (*run.results, *work.skipped)
                publication = target.publish(run)
                if publication and publication.commit and not publication.unchanged:
                    _load_published(work, run, publication, folder)
    except HubExporterError as error:
        report.error(error, work.model.source)
        stopped = error
    made = ModelReport(
        source=work.model.source,
        target=work.target,
        results=results,
        written=publication is not None and not (publication.dry_run or publication.unchanged),
        error=str(stopped) if stopped else None,
        publication=publication,
    )
    return Outcome(made, stopped)


def _load_published(work: Work, run: ModelRun, made: Publication, folder: Path) -> None:
    """Load what is on the Hub now from a new cache, as its first user will. Raises HubError."""
    assert made.commit is not None
    paths = [artifact.path for result in run.results for artifact in result.artifacts]
    place = hub.fresh_copy(made.target, made.commit, paths, folder / "cache")
    problem = load_again(work.jobs, run.results, place, folder)
    if problem:
        raise HubError(
            f"`{made.target}` at `{made.commit}` is whole, and does not load from the Hub's cache: {problem}",
            hint="Report this: it is a bug; the revision before it is in the history, as it was",
        )


def _run(report: Report, work: Work, folder: Path, options: Options) -> ModelRun:
    if options.keep_work:
        report.line(f"{work.model.source}: the working folder is {folder}")
    absent = missing_weights(work.model)
    if absent:
        report.line(f"{work.model.source}: fetching {wording.size(absent)} of weights")
        fetch_weights(work.model)
    with report.progress([work.model.name, *(job.name for job in work.jobs)]) as progress:
        run = run_model(work.model, work.jobs, folder, progress.event, options.verify)
    return run if options.keep_work else msgspec.structs.replace(run, results=_with_logs_kept(run.results))


def _with_logs_kept(results: tuple[JobResult, ...]) -> tuple[JobResult, ...]:
    """The results, the logs of those that did not pass moved to where they outlive the working folder."""
    if not any(result.log for result in results):
        return results
    kept = Path(tempfile.mkdtemp(prefix="hub-exporter-logs-"))
    return tuple(_with_log_in(kept, result) for result in results)


def _with_log_in(folder: Path, result: JobResult) -> JobResult:
    if result.log is None or not Path(result.log).is_file():
        return msgspec.structs.replace(result, log=None)
    log = shutil.copyfile(result.log, folder / f"{result.job}.log")
    return msgspec.structs.replace(result, log=str(log))


def exit_code(outcomes: Sequence[Outcome]) -> ExitCode:
    """The worst that happened: a wrong file, a job without one, a model that was not worked on, no job at all."""
    statuses = {result.status for outcome in outcomes for result in outcome.report.results}
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if "mismatch" in statuses:
        return ExitCode.MISMATCH
    if "failed" in statuses:
        return ExitCode.FAILED
    if errors:
        return errors[0].exit_code
    return ExitCode.OK if "passed" in statuses else ExitCode.FAILED
