"""Commands -> stage calls -> exit code. It decides nothing itself, and imports the stages only when one runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from hub_exporter import __version__
from hub_exporter.errors import ExitCode, HubExporterError

if TYPE_CHECKING:
    from hub_exporter.report import Report
    from hub_exporter.session import Outcome

app = typer.Typer(
    help="Models of the Hugging Face Hub in; verified ONNX, OpenVINO, ExecuTorch and torch.export files out.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the other kind costs more than all the rest
    context_settings={
        "help_option_names": ["-h", "--help"],
        # `HUB_EXPORTER_PLAN_ONLY` is `plan --only`: so the Actions hand on their inputs, and an empty one is none.
        "auto_envvar_prefix": "HUB_EXPORTER",
    },
)

# ── What a user may say; a parameter whose flag is in `flags.FLAGS` can stand in a recipe too ─────────────────────


def _option(text: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, show_envvar=False)


Sources = Annotated[
    list[str] | None,
    typer.Argument(
        help="Folders or Hub ids, with `@revision` if need be",
        metavar="SOURCE",
        envvar="HUB_EXPORTER_SOURCES",
        show_default=False,
        show_envvar=False,
    ),
]
RecipeFile = Annotated[Path | None, _option("A recipe of many models", "--recipe", metavar="FILE")]
To = Annotated[str | None, _option("Folder, or repository on the Hub; `./out` if not given", metavar="TARGET")]
Backends = Annotated[str | None, _option("All that this machine can make if not given", metavar="A,B")]
Variants = Annotated[str | None, _option("`fp32` if not given", metavar="A,B")]
Task = Annotated[str | None, _option("Instead of what the architecture implies", metavar="TASK")]
Engine = Annotated[
    list[str] | None,
    _option("Option of the engine, as in `generation.cache=static`; may be repeated", metavar="KEY=VALUE"),
]
TrustRemoteCode = Annotated[
    bool | None, _option("Run modelling code that the repository brings", "--trust-remote-code")
]
Only = Annotated[
    list[str] | None, _option("Only jobs of this name, as in `*.onnx.*`; may be repeated", metavar="PATTERN")
]
Dataset = Annotated[str | None, _option("A file, a dataset id, or `builtin`", metavar="PATH_OR_ID")]
DatasetName = Annotated[str | None, _option("Configuration of the dataset", metavar="NAME")]
DatasetSplit = Annotated[str | None, _option("`train` if not given", metavar="NAME")]
DatasetColumns = Annotated[
    str | None, _option("Columns for what the task reads, as in `text=sentence`", metavar="A=B,C=D")
]
DatasetRows = Annotated[int | None, _option("How many to draw", "--dataset-rows", "--rows", metavar="N")]
DatasetRevision = Annotated[str | None, _option("Commit, tag or branch of a dataset on the Hub", metavar="REV")]
TimeLimit = Annotated[int | None, _option("For each stage of a job; then it fails", metavar="MINUTES")]
Require = Annotated[
    Literal["any", "all"] | None, _option("Write what passed, or nothing unless all did; `any` if not given")
]
CreatePr = Annotated[bool, _option("Propose the files as a pull request", "--create-pr")]
AsJson = Annotated[bool, _option("The results as JSON on stdout", "--json")]
PlanFile = Annotated[Path, _option("What `plan --save` wrote", "--plan", metavar="FILE")]
Isolate = Annotated[
    bool, _option("Run each job in an environment of its backend's locked packages; always so on GitHub", "--isolate")
]
Quiet = Annotated[bool, _option("Say only what went wrong", "--quiet", "-q")]


@app.command(short_help="Export models, check the files, write a folder")
def export(
    context: typer.Context,
    sources: Sources = None,
    recipe: RecipeFile = None,
    to: To = None,
    backends: Backends = None,
    variants: Variants = None,
    task: Task = None,
    engine: Engine = None,
    trust_remote_code: TrustRemoteCode = None,
    only: Only = None,
    dataset: Dataset = None,
    dataset_name: DatasetName = None,
    dataset_split: DatasetSplit = None,
    dataset_columns: DatasetColumns = None,
    dataset_rows: DatasetRows = None,
    dataset_revision: DatasetRevision = None,
    time_limit: TimeLimit = None,
    require: Require = None,
    create_pr: CreatePr = False,
    dry_run: Annotated[bool, _option("Export, then only say what would be published", "--dry-run")] = False,
    force: Annotated[bool, _option("Export also what is published as it would be made", "--force")] = False,
    no_verify: Annotated[bool, _option("Do not compare with the original model", "--no-verify")] = False,
    isolate: Isolate = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    keep_work: Annotated[bool, _option("Do not delete the working folder", "--keep-work")] = False,
) -> None:
    """Export models to files for each backend, compare every file with its model, and publish them: to a repository
    on the Hub, or to a folder that looks like one."""
    from hub_exporter import environments, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)

    def run() -> ExitCode:
        prepared = session.prepare(report, sources or (), recipe, _flags(context.params), only, stale_only=not force)
        wishes = session.wishes(prepared.plan, require, create_pr, dry_run)
        options = session.Options(wishes, not no_verify, keep_work, environments.wanted(isolate))
        made = [session.export_model(report, work, options) for work in session.works(prepared.plan)]
        return _told(report, [*session.refused(prepared.plan), *made], as_json)

    _end(report, run)


@app.command(short_help="Show what `export` would do")
def plan(
    context: typer.Context,
    sources: Sources = None,
    recipe: RecipeFile = None,
    to: To = None,
    backends: Backends = None,
    variants: Variants = None,
    task: Task = None,
    engine: Engine = None,
    trust_remote_code: TrustRemoteCode = None,
    only: Only = None,
    dataset: Dataset = None,
    dataset_name: DatasetName = None,
    dataset_split: DatasetSplit = None,
    dataset_columns: DatasetColumns = None,
    dataset_rows: DatasetRows = None,
    dataset_revision: DatasetRevision = None,
    time_limit: TimeLimit = None,
    shard: Annotated[
        str | None, _option("One of several parts of the models, for runs of their own, as in `2/5`", metavar="I/N")
    ] = None,
    stale_only: Annotated[
        bool, _option("Leave out what is published as it would be made (see `check`)", "--stale-only")
    ] = False,
    save: Annotated[
        Path | None, _option("Write the plan for `run` and `publish`, each job on its own runner", metavar="FILE")
    ] = None,
    output: Annotated[
        Literal["table", "json", "matrix"],
        _option("On stdout `json`, the plan, or `matrix` for GitHub Actions; `table` if not given", "--format"),
    ] = "table",
    quiet: Quiet = False,
) -> None:
    """Show what `export` would do with the same arguments: tasks, commits, settings with their origin, jobs, skips.
    With `--save` or `--format matrix` jobs are planned for one runner each, of any kind."""
    from hub_exporter import fanout, matrix, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)

    def run() -> ExitCode:
        fan_out, part = save is not None or output == "matrix", matrix.shard(shard) if shard else (1, 1)
        prepared = session.prepare(
            report,
            sources or (),
            recipe,
            _flags(context.params),
            only,
            fan_out=fan_out,
            part=part,
            stale_only=stale_only,
        )
        made = prepared.plan
        text = matrix.matrix(made, part) if output == "matrix" else ""
        if save is not None:
            fanout.save_plan(save, made)
        if output == "json":
            report.data(made)
        else:
            report.plan(made, prepared.models)
        if text:
            report.text(f"{text}\n")
            report.outputs({"matrix": text, "count": str(len(made.jobs)), "id": fanout.id_of(made)})
        lost = made.refused and not (fan_out and made.jobs)  # whoever publishes a plan tells what it lacks
        return session.exit_code(session.refused(made)) if lost else ExitCode.OK

    _end(report, run)


@app.command("run", short_help="Run one job of a plan")
def run_one(
    job: Annotated[str, typer.Argument(help="Its name, as in the plan", metavar="JOB", show_default=False)],
    plan_file: PlanFile,
    to: Annotated[Path, _option("Folder for what comes of it; `JOB` is made in it", metavar="FOLDER")],
    isolate: Isolate = False,
    quiet: Quiet = False,
) -> None:
    """Export and check one job of a plan, on the runner that was planned for it. Its files, or why there are none, are
    left in a folder for `publish`."""
    from hub_exporter import environments, fanout
    from hub_exporter.report import Report

    report, apart = Report(quiet=quiet), environments.wanted(isolate)
    _end(report, lambda: fanout.run_job(report, fanout.read_plan(plan_file), job, to, apart))


@app.command(short_help="Publish what the jobs of a plan left")
def publish(
    folder: Annotated[Path, typer.Argument(help="With a folder for each job", metavar="FOLDER", show_default=False)],
    plan_file: PlanFile,
    require: Require = None,
    create_pr: CreatePr = False,
    dry_run: Annotated[bool, _option("Only say what would be published", "--dry-run")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check what the jobs of a plan left, and publish what passed: one commit or one pull request for each target. A
    job that left nothing counts as failed."""
    from hub_exporter import fanout, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)

    def run() -> ExitCode:
        planned = fanout.read_plan(plan_file)
        wishes = session.wishes(planned, require, create_pr, dry_run)
        refused = session.refused(planned)
        for outcome in refused:
            if outcome.error:
                report.error(outcome.error, outcome.report.source)
        made = [fanout.publish_model(report, work, folder, wishes) for work in session.works(planned)]
        return _told(report, [*refused, *made], as_json)

    _end(report, run)


@app.command(short_help="Show tested, locked and newest packages")
def pins(
    transformers: Annotated[
        str | None, _option("A release of the engine; the installed one if not given", metavar="VERSION")
    ] = None,
    output: Annotated[
        Literal["table", "json"], _option("`json` writes to stdout; `table` if not given", "--format")
    ] = "table",
) -> None:
    """Show for each backend what the engine was tested with, what is locked for `--isolate`, and what is newest."""
    from hub_exporter.report import Report
    from hub_exporter.survey import survey

    report = Report()

    def run() -> ExitCode:
        found = survey(transformers)
        if output == "json":
            report.data(found)
        else:
            report.survey(found)
        return ExitCode.OK

    _end(report, run)


@app.command(short_help="Say which published files are stale, and why")
def check(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Published repositories or folders", metavar="TARGET", show_default=False),
    ] = None,
    recipe: RecipeFile = None,
    output: Annotated[
        Literal["table", "json", "matrix"],
        _option("On stdout `json`, or `matrix` of the stale jobs; `table` if not given", "--format"),
    ] = "table",
    quiet: Quiet = False,
) -> None:
    """Say of every published job whether it is current, and otherwise why not: the model, the recipe, the pins or the
    layout changed, or a file is missing or altered. Nothing is downloaded but what the repositories say of themselves.
    Without a recipe a job is compared with what it was asked to be."""
    from hub_exporter import matrix, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)

    def run() -> ExitCode:
        checked = session.check_targets(targets or (), recipe)
        report.findings(checked.findings)
        if output == "json":
            report.data(checked.findings)
        if output == "matrix":
            text = matrix.matrix_of(checked.findings, checked.requests, checked.runners)
            stale = sum(finding.status == "stale" for finding in checked.findings)
            report.text(f"{text}\n")
            report.outputs({"matrix": text, "count": str(stale)})
        return session.check_code(checked.findings)

    _end(report, run)


Target = Annotated[str, typer.Argument(help="A published repository or folder", metavar="TARGET", show_default=False)]
SourceNow = Annotated[str | None, _option("Where the model is now, if it was a folder", "--source", metavar="FOLDER")]
RowsNow = Annotated[str | None, _option("Where its rows are now, if they were a file", "--dataset", metavar="FILE")]


@app.command(short_help="Compare published files with their model again")
def verify(
    target: Target,
    only: Only = None,
    source: SourceNow = None,
    dataset: RowsNow = None,
    trust_remote_code: TrustRemoteCode = None,
    isolate: Isolate = False,
    quiet: Quiet = False,
) -> None:
    """Download what is published and compare it with the model that it was made of, with the same rows. Nothing is
    exported, and nothing written."""
    from hub_exporter import again, environments, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)
    _end(
        report,
        lambda: session.verify_target(
            report,
            again.published(target, only or (), source, dataset, bool(trust_remote_code)),
            environments.wanted(isolate),
        ),
    )


@app.command(short_help="Rebuild published files and compare them byte for byte")
def reproduce(
    target: Target,
    only: Only = None,
    source: SourceNow = None,
    dataset: RowsNow = None,
    trust_remote_code: TrustRemoteCode = None,
    isolate: Isolate = False,
    output: Annotated[
        Literal["text", "json"], _option("`json` writes to stdout; `text` if not given", "--format")
    ] = "text",
    quiet: Quiet = False,
) -> None:
    """Rebuild from the index what is published, and compare: the model at its commit, the same request, the same rows.
    Where a file is another, its first difference is named."""
    from hub_exporter import again, environments, session
    from hub_exporter.report import Report

    report = Report(quiet=quiet)

    def run() -> ExitCode:
        made = again.published(target, only or (), source, dataset, bool(trust_remote_code))
        found, code = session.reproduce_target(report, made, environments.wanted(isolate))
        if output == "json":
            report.data(found)
        return code

    _end(report, run)


@app.command(short_help="Ask an exported model")
def generate(
    target: Target,
    backend: Annotated[str, _option("Whose files are asked", metavar="NAME")],
    variant: Annotated[str, _option("`fp32` if not given", metavar="NAME")] = "fp32",
    prompt: Annotated[str, _option("The text, or what is asked of the picture", metavar="TEXT")] = "",
    image: Annotated[Path | None, _option("A picture, for models that read one", metavar="FILE")] = None,
    audio: Annotated[Path | None, _option("A sound, for models that hear", metavar="FILE")] = None,
    tokens: Annotated[int, _option("New ones at most; 128 if not given", metavar="N")] = 128,
    isolate: Isolate = False,
) -> None:
    """Run an exported generative model from its files alone, and write the text to stdout as it comes. For trying and
    proving: the loop is that of verification, greedy and on the CPU."""
    from hub_exporter import again, environments, session
    from hub_exporter.records import Ask
    from hub_exporter.report import Report

    report = Report()
    files = {"image": str(image.resolve()) if image else None, "audio": str(audio.resolve()) if audio else None}
    ask = Ask(prompt=prompt, tokens=tokens, **files)

    def run() -> ExitCode:
        with session.open_scratch() as work:
            again.generate(target, backend, variant, ask, work, report.text, environments.wanted(isolate))
        report.text("\n")
        return ExitCode.OK

    _end(report, run)


@app.command()
def schema() -> None:
    """Write the JSON Schema of a recipe to stdout."""
    import json

    from hub_exporter.report import Report
    from hub_exporter.schema import schema as recipe_schema

    report = Report()

    def run() -> ExitCode:
        report.text(json.dumps(recipe_schema(), indent=2, ensure_ascii=False) + "\n")
        return ExitCode.OK

    _end(report, run)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hub-exporter {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit", callback=_version, is_eager=True, show_envvar=False
        ),
    ] = False,
) -> None: ...


def main() -> None:
    """The console script."""
    try:
        code = app(prog_name="hub-exporter", standalone_mode=False)
    except typer.TyperException as error:  # the arguments are wrong
        from hub_exporter.report import Report

        told: Any = error  # the public base class lacks what all that is raised has
        told.show()
        Report().annotate("hub-exporter", told.format_message())
        code = ExitCode.USAGE
    sys.exit(code)


# ── Arguments in, exit code out ───────────────────────────────────────────────────────────────────────────────────


def _flags(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a recipe could have given as well, under the names of their flags."""
    from hub_exporter.flags import FLAGS

    named = {f"--{name.replace('_', '-')}": value for name, value in parameters.items()}
    return {flag: named[flag] for flag in FLAGS}


def _told(report: Report, outcomes: Sequence[Outcome], as_json: bool) -> ExitCode:
    """Tell what became of all models."""
    from hub_exporter import session

    reports = [outcome.report for outcome in outcomes]
    report.finish(reports)
    if as_json:
        report.data(reports)
    return session.exit_code(outcomes)


def _end(report: Report, command: Callable[[], ExitCode]) -> NoReturn:
    """Run a command; whatever happens becomes a message and an exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # how CI cancels: as good as Ctrl-C
    try:
        code = command()
    except HubExporterError as error:
        report.error(error)
        code = error.exit_code
    except KeyboardInterrupt:
        report.line("interrupted")
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost handler: a bug becomes a report instead of a bare trace
        report.crash(error, ["hub-exporter", *sys.argv[1:]])
        code = ExitCode.INTERNAL
    raise typer.Exit(code)
