"""One run of the command, stage after stage and model after model. A model that fails does not stop the others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter import again, hub, pins, wording
from hub_exporter.again import Published
from hub_exporter.catalogue import BACKENDS, RUNNERS
from hub_exporter.check import Asked, asked_of, check
from hub_exporter.checks import check_name
from hub_exporter.errors import ERRORS_BY_NAME, ExitCode, HubError, HubExporterError, UsageError
from hub_exporter.keys import with_key
from hub_exporter.machine import memory, this_machine
from hub_exporter.matrix import requests_of
from hub_exporter.plan import (
    Label,
    hub_target,
    labels_of,
    make_plan,
    matches,
    names_of,
    pin_datasets,
    without_current,
)
from hub_exporter.preflight import GB, Room, fit, rooms, written
from hub_exporter.progress import Progress
from hub_exporter.recipe import load_recipe, requests
from hub_exporter.records import (
    DatasetSpec,
    Finding,
    Job,
    JobResult,
    ModelReport,
    ModelRequest,
    ModelRun,
    Plan,
    Publication,
    PublishSettings,
    Refusal,
    Reproduction,
    ResolvedModel,
    Skip,
    Status,
)
from hub_exporter.report import Report
from hub_exporter.resolve import resolve
from hub_exporter.rows import commit_of, hub_dataset
from hub_exporter.run import load_again, run_model
from hub_exporter.targets import Wishes, target_of
from hub_exporter.tasks import TASKS, dataset_for
from hub_exporter.weights import fetch_weights, missing_weights


@dataclass(frozen=True)
class Work:
    """One model of the plan."""

    source: str
    target: str
    jobs: tuple[Job, ...]
    skipped: tuple[JobResult, ...]

    @property
    def model(self) -> ResolvedModel:
        """Of its jobs, where it has any."""
        return self.jobs[0].model


@dataclass(frozen=True)
class Outcome:
    """What became of one model, and the error that stopped it."""

    report: ModelReport
    error: HubExporterError | None = None


@dataclass(frozen=True)
class Options:
    """What the command line alone decides."""

    wishes: Wishes
    verify: bool
    keep_work: bool
    isolate: bool = False


# ── Before the work ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Prepared:
    """The plan, and the models in it."""

    plan: Plan
    models: tuple[ResolvedModel, ...]


def prepare(
    report: Report,
    sources: Sequence[str],
    recipe_file: Path | None,
    flags: Mapping[str, Any],
    only: Sequence[str] | None = None,
    *,
    fan_out: bool = False,
    part: tuple[int, int] = (1, 1),
    stale_only: bool = False,
) -> Prepared:
    """Read what is asked for, resolve every model of `part`, and plan. Raises UsageError.

    Planned is for this machine; `fan_out` plans for one runner each, and pins the datasets as well. With `stale_only`
    what is published as it would be made is not planned, and a model of which that is all is not resolved.
    """
    recipe = load_recipe(recipe_file) if recipe_file else None
    asked = requests_of(requests(recipe, sources, flags), part)
    settings = recipe.publish if recipe else PublishSettings()
    proposed = settings.mode == "pull-request"
    current = _current(asked_of(asked, proposed=proposed), only or ()) if stale_only else _Current((), frozenset())
    commits = _Commits() if fan_out else None
    found, refused = [], []
    for number, request in enumerate(asked):
        try:
            if number not in current.whole:
                model = resolve(request)
                if commits:
                    commits.add(dataset_for(TASKS[model.task], request.settings.dataset))
                found.append((request, msgspec.structs.replace(model, name=names_of(asked)[number])))
        except HubExporterError as error:
            report.error(error, request.settings.source)
            refused.append(_refusal(request, error))
    models, runners = tuple(model for _, model in found), recipe.runners if recipe else {}
    machine = None if fan_out else this_machine()
    locks = {backend: pins.digest(backend) for backend in BACKENDS}
    plan = make_plan([request for request, _ in found], models, runners, only if found else None, machine, locks)
    plan = without_current(pin_datasets(plan, commits.by_dataset) if commits else plan, current.findings)
    plan = fit(plan, rooms(runners) if fan_out else dict.fromkeys(RUNNERS, _this_room()), only or ())
    return Prepared(msgspec.structs.replace(plan, refused=tuple(refused), publish=settings), models)


@dataclass(frozen=True)
class _Current:
    """Jobs with nothing to do, and the numbers of the requests that ask for no others."""

    findings: tuple[Finding, ...]
    whole: frozenset[int]


def _current(targets: Sequence[Asked], only: Sequence[str]) -> _Current:
    """What need not be made."""
    findings = [found for found in check(targets) if found.status == "unknown" or matches(found.job, only)]
    left = {found.target for found in findings if found.status != "current"}
    done = {found.target for found in findings} - left
    whole = frozenset(number for number, one in enumerate(targets) if one.target in done)
    return _Current(tuple(found for found in findings if found.status == "current"), whole)


def _this_room() -> Room:
    """Of this machine; the disk is looked at where the target is known."""
    return Room("this machine", memory=round(memory() / GB, 1), advice="run it on a larger one")


class _Commits:
    """The commits of datasets, each asked for once."""

    def __init__(self) -> None:
        self.by_dataset: dict[tuple[str, str | None], str] = {}

    def add(self, dataset: DatasetSpec) -> None:
        """Raises DatasetError. Offline the cache decides, when the rows are drawn."""
        key = (dataset.path, dataset.revision)
        if key not in self.by_dataset and hub_dataset(dataset) and not hub.offline():
            self.by_dataset[key] = commit_of(dataset)


def _refusal(request: ModelRequest, error: HubExporterError) -> Refusal:
    settings, kind = request.settings, type(error).__name__
    return Refusal(source=settings.source, target=settings.target, kind=kind, message=str(error), hint=error.hint)


def refused(plan: Plan) -> tuple[Outcome, ...]:
    """The models that could not be planned."""
    outcomes = []
    for refusal in plan.refused:
        error = ERRORS_BY_NAME[refusal.kind](refusal.message, hint=refusal.hint)
        made = ModelReport(source=refusal.source, target=refusal.target, results=(), written=False, error=str(error))
        outcomes.append(Outcome(made, error))
    return tuple(outcomes)


def works(plan: Plan) -> tuple[Work, ...]:
    """The models of a plan, with the jobs and skips of each."""
    jobs: dict[str, list[Job]] = {}
    skips: dict[str, list[Skip]] = {}
    for job in plan.jobs:
        jobs.setdefault(job.model.name, []).append(job)
    for skip in plan.skipped:
        skips.setdefault(skip.name.rsplit(".", 2)[0], []).append(skip)
    made = []
    for name in dict.fromkeys([*jobs, *skips]):
        own, not_run = tuple(jobs.get(name, ())), tuple(map(_skipped, skips.get(name, ())))
        source, target = (own[0].model.source, own[0].target) if own else (skips[name][0].source, skips[name][0].target)
        made.append(Work(source, target, own, not_run))
    return tuple(made)


def _skipped(skip: Skip) -> JobResult:
    _, backend, variant = skip.name.rsplit(".", 2)
    status: Status = "current" if skip.current else "skipped"
    return JobResult(job=skip.name, backend=backend, variant=variant, status=status, reason=skip.reason)


def wishes(plan: Plan, require: str | None, create_pr: bool, dry_run: bool) -> Wishes:
    """How to publish: the command line before the recipe. Raises UsageError for a pull request to a folder."""
    folders = [job.target for job in plan.jobs if hub_target(job.target) is None]
    if create_pr and folders:
        raise UsageError(
            f"--create-pr: `{folders[0]}` is a folder", hint="Name a repository of the Hub with `--to namespace/name`"
        )
    return Wishes(
        require=require or plan.publish.require,
        create_pr=create_pr or plan.publish.mode == "pull-request",
        dry_run=dry_run,
    )


# ── What is published already ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Checked:
    """What was found, and what a matrix of the stale jobs is made of."""

    findings: tuple[Finding, ...]
    requests: Mapping[str, ModelRequest]
    """By target; none where only targets were named."""
    runners: Mapping[str, Label]


def check_targets(targets: Sequence[str], recipe_file: Path | None) -> Checked:
    """Look at targets, or at those of a recipe: with it, targets select among them. Raises UsageError."""
    if not targets and recipe_file is None:
        raise UsageError("No target was named", hint="Name a repository, a folder, or a recipe with `--recipe`")
    recipe = load_recipe(recipe_file) if recipe_file else None
    proposed = recipe is not None and recipe.publish.mode == "pull-request"
    asked = asked_of(requests(recipe), proposed=proposed) if recipe else tuple(map(Asked, targets))
    if recipe and targets:
        for target in targets:
            check_name(target, [one.target for one in asked], f"{recipe.path}: there is no model with the target")
        asked = tuple(one for one in asked if one.target in targets)
    by_target = {one.target: one.request for one in asked if one.request}
    return Checked(check(asked), by_target, labels_of(recipe.runners if recipe else {}))


def check_code(findings: Sequence[Finding]) -> ExitCode:
    """Stale before unknown: a schedule has something to do."""
    statuses = {finding.status for finding in findings}
    return ExitCode.STALE if "stale" in statuses else ExitCode.HUB if "unknown" in statuses else ExitCode.OK


def verify_target(report: Report, made: Published, isolate: bool) -> ExitCode:
    """Compare published files with their model again. Raises like `run_model`."""
    with open_scratch() as work, _shown(report, made) as progress:
        results = _with_logs_kept(again.verify(made, work, progress.event, isolate))
    report.results(results)
    return exit_code_of([result.status for result in results])


def reproduce_target(report: Report, made: Published, isolate: bool) -> tuple[tuple[Reproduction, ...], ExitCode]:
    """Rebuild published files and compare them byte for byte. Raises like `run_model`."""
    for name in again.other_lock(made):
        report.line(f"{name}: the packages of its backend are not locked as they were then", "yellow")
    with open_scratch() as work, _shown(report, made) as progress:
        found = again.reproduce(made, work, progress.event, isolate)
    report.reproductions(found)
    statuses = {one.status for one in found}
    code = ExitCode.FAILED if "failed" in statuses else ExitCode.DIFFERENT if "different" in statuses else ExitCode.OK
    return found, code


@contextmanager
def open_scratch() -> Iterator[Path]:
    """A folder for work that leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="hub-exporter-") as folder:
        yield Path(folder)


def _shown(report: Report, made: Published) -> AbstractContextManager[Progress]:
    jobs = tuple(job for job, _ in made.jobs)
    report.begin(made.model, jobs, made.target)
    return report.progress([made.model.name, *(job.name for job in jobs)])


# ── All on this machine ───────────────────────────────────────────────────────────────────────────────────────────


def export_model(report: Report, work: Work, options: Options) -> Outcome:
    """Run the jobs of one model and publish what passed. What stops it is reported."""
    results, publication, stopped = work.skipped, None, None
    try:
        if work.jobs:
            target = target_of(work.target, options.wishes)
            target.prepare(work.model, written(work.jobs), folders(work))
            report.begin(work.model, work.jobs, work.target)
            with target.open_work(keep=options.keep_work) as folder:
                run = run_jobs(report, work.jobs, folder, options.verify, options.isolate)
                if options.keep_work:
                    report.line(f"{work.source}: the working folder is {folder}")
                else:
                    run = msgspec.structs.replace(run, results=_with_logs_kept(run.results))
                results = (*run.results, *work.skipped)
                publication = target.publish(run)
                if publication and publication.commit and not publication.unchanged:
                    _load_published(work, run, publication, folder, options.isolate)
    except HubExporterError as error:
        report.error(error, work.source)
        stopped = error
    return outcome_of(work, results, publication, stopped)


def folders(work: Work) -> list[str]:
    """Of the backends, within a target."""
    return [BACKENDS[job.backend].folder for job in work.jobs]


def outcome_of(
    work: Work, results: tuple[JobResult, ...], publication: Publication | None, stopped: HubExporterError | None
) -> Outcome:
    """What became of a model, whose results and publication are as far as it came."""
    made = ModelReport(
        source=work.source,
        target=work.target,
        results=results,
        written=publication is not None and not (publication.dry_run or publication.unchanged),
        error=str(stopped) if stopped else None,
        publication=publication,
    )
    return Outcome(made, stopped)


def _load_published(work: Work, run: ModelRun, made: Publication, folder: Path, isolate: bool) -> None:
    """Load what is on the Hub now from a new cache, as its first user will. Raises HubError."""
    assert made.commit is not None
    paths = [artifact.path for result in run.results for artifact in result.artifacts]
    place = hub.fresh_copy(made.target, made.commit, paths, folder / "cache")
    problem = load_again(work.jobs, run.results, place, folder, isolate)
    if problem:
        raise HubError(
            f"`{made.target}` at `{made.commit}` is whole, and does not load from the Hub's cache: {problem}",
            hint="Report this: it is a bug; the revision before it is in the history, as it was",
        )


def run_jobs(report: Report, jobs: tuple[Job, ...], folder: Path, verify: bool, isolate: bool) -> ModelRun:
    """Fetch the weights and run jobs of one model in `folder`, with their progress."""
    model = jobs[0].model
    absent = missing_weights(model)
    if absent:
        report.line(f"{model.source}: fetching {wording.size(absent)} of weights")
        fetch_weights(model)
    with report.progress([model.name, *(job.name for job in jobs)]) as progress:
        run = run_model(model, jobs, folder, progress.event, verify, isolate)
    return msgspec.structs.replace(run, results=tuple(_with_keys(run, jobs)))


def _with_keys(run: ModelRun, jobs: tuple[Job, ...]) -> Iterator[JobResult]:
    by_name = {job.name: job for job in jobs}
    for result in run.results:
        job = by_name[result.job]
        yield with_key(result, job, run.capture, pins.locked(job.backend)) if run.capture else result


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


# ── How it ended ──────────────────────────────────────────────────────────────────────────────────────────────────


def exit_code(outcomes: Sequence[Outcome]) -> ExitCode:
    """The worst that happened: a wrong file, a job without one, a model that was not worked on, no job at all."""
    statuses = {result.status for outcome in outcomes for result in outcome.report.results}
    errors = [outcome.error for outcome in outcomes if outcome.error]
    lost = statuses & {"mismatch", "failed"}
    return errors[0].exit_code if errors and not lost else exit_code_of(statuses)


def exit_code_of(statuses: Collection[Status]) -> ExitCode:
    """The worst of how jobs ended."""
    if "mismatch" in statuses:
        return ExitCode.MISMATCH
    done = {"passed", "current"} & set(statuses)
    return ExitCode.OK if done and "failed" not in statuses else ExitCode.FAILED
