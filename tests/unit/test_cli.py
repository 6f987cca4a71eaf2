"""From arguments to an exit code, with models and their runs made up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import made_up
import msgspec
import pytest

from hub_exporter import __version__, session
from hub_exporter.cli import app, main
from hub_exporter.errors import DatasetError, ExitCode, SourceError
from hub_exporter.records import Event, ModelReport, Plan, PublishSettings
from hub_exporter.targets import Wishes

pytestmark = pytest.mark.usefixtures("_sigterm")

TINY = Path(__file__).parents[2] / "examples" / "tiny-chat"


@pytest.fixture
def _sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def outcomes(tmp_path, monkeypatch):
    """Backend -> status of its job (`passed` if not named), or an exception that the run raises.

    Sources named `missing` do not resolve, all others are a made-up model of that name.
    """
    told: dict[str, str | BaseException] = {}
    monkeypatch.chdir(tmp_path)

    def resolve(request):
        name = Path(request.settings.source).name
        if name == "missing":
            raise SourceError("There is no folder `missing`", hint="Check the name")
        model = made_up.encoder(name=name, repo=None, source=request.settings.source)
        return made_up.run(tmp_path, (), model).model

    def run_model(model, jobs, work, events, verify=True, isolate=False):
        if isinstance(told.get("run"), BaseException):
            raise told["run"]
        results = []
        for job in jobs:
            status = told.get(job.backend, "passed")
            events(Event(job=job.name, kind="end", text="", status=status))
            level = "parity" if verify else "exported"
            log = work / f"{job.name}.export" / "log.txt"
            made_up.write(log, b"the whole log")
            results.append(
                made_up.passed(job.backend, model.name, verification=made_up.verification(level=level))
                if status == "passed"
                else made_up.not_passed(job.backend, status, "it did not", model.name, log=str(log))
            )
        run = made_up.run(tmp_path, tuple(results), model, work)
        return msgspec.structs.replace(run, model=model)

    monkeypatch.setattr(session, "resolve", resolve)
    monkeypatch.setattr(session, "run_model", run_model)
    return told


def hub_exporter(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        app(list(arguments), prog_name="hub-exporter")
    return stopped.value.code


def export(*arguments: str) -> int:
    return hub_exporter("export", *arguments)


# ── Exit codes ──


def test_everything_passed(outcomes, tmp_path, capsys):
    assert export("./model", "--backends", "onnx,dynamo", "--to", "./out") == ExitCode.OK

    out, err = capsys.readouterr()
    assert out == ""
    assert "./model: 11 files" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_failed_job_is_told_and_the_rest_is_written(outcomes, tmp_path, capsys):
    outcomes["onnx"] = "failed"

    assert export("./model", "--backends", "onnx,dynamo") == ExitCode.FAILED
    assert "model.onnx.fp32 failed: it did not" in capsys.readouterr().err
    assert (tmp_path / "out/pt2/model.pt2").exists()


def test_a_mismatch_weighs_more_than_a_failure(outcomes):
    outcomes |= {"onnx": "failed", "dynamo": "mismatch"}

    assert export("./model", "--backends", "onnx,dynamo") == ExitCode.MISMATCH


def test_skipped_jobs_alone_do_not_fail(outcomes, capsys):
    assert export("./model", "--backends", "onnx,executorch-mlx") == ExitCode.OK
    assert "model.executorch-mlx.fp32 skipped: " in capsys.readouterr().err


def test_nothing_but_skipped_jobs_is_a_failure(outcomes, tmp_path):
    assert export("./model", "--backends", "executorch-mlx") == ExitCode.FAILED
    assert not (tmp_path / "out").exists()


def test_a_model_that_does_not_resolve_does_not_stop_the_others(outcomes, tmp_path, capsys):
    assert export("./missing", "./model", "--backends", "onnx", "--to", "out") == ExitCode.SOURCE

    assert "error: ./missing: There is no folder `missing`\nhint: Check the name\n" in capsys.readouterr().err
    assert (tmp_path / "out/model/onnx/model.onnx").exists()


def test_rows_that_are_missing_stop_their_model_only(outcomes):
    outcomes["run"] = DatasetError("no rows")

    assert export("./model", "--backends", "onnx") == ExitCode.DATASET


def test_a_target_that_cannot_be_written_is_found_before_the_run(outcomes, tmp_path, capsys):
    outcomes["run"] = AssertionError("it ran")
    (tmp_path / "out").touch()

    assert export("./model", "--backends", "onnx") == ExitCode.TARGET
    assert "is a file" in capsys.readouterr().err


def test_a_wrong_argument_is_a_usage_error(outcomes, capsys):
    assert export("./model", "--backends", "onxx") == ExitCode.USAGE
    assert "onxx" in capsys.readouterr().err
    assert export("./model", "--nonsense") == ExitCode.USAGE
    assert export() == ExitCode.USAGE


def test_an_interruption_leaves_nothing_behind(outcomes, tmp_path):
    outcomes["run"] = KeyboardInterrupt()

    assert export("./model", "--backends", "onnx") == ExitCode.INTERRUPTED
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_bug_is_reported_and_leaves_nothing_behind(outcomes, tmp_path, capsys):
    outcomes["run"] = ZeroDivisionError("division by zero")

    assert export("./model", "--backends", "onnx") == ExitCode.INTERNAL
    assert "stopped at a bug: ZeroDivisionError" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# ── Options ──


def test_json_on_stdout_holds_every_model(outcomes, capsys):
    export("./missing", "./model", "--backends", "onnx", "--to", "out", "--json", "--quiet")

    reports = msgspec.json.decode(capsys.readouterr().out, type=list[ModelReport])
    assert [(report.source, report.written, report.error) for report in reports] == [
        ("./missing", False, "There is no folder `missing`"),
        ("./model", True, None),
    ]


def test_the_log_of_a_job_that_did_not_pass_outlives_the_working_folder(outcomes, capsys):
    outcomes["onnx"] = "failed"
    export("./model", "--backends", "onnx", "--json")

    log = json.loads(capsys.readouterr().out)[0]["results"][0]["log"]
    assert Path(log).read_text() == "the whole log"


def test_require_all_from_the_command_line_and_from_the_recipe(outcomes, tmp_path):
    outcomes["onnx"] = "failed"
    (tmp_path / "recipe.yaml").write_text("models: [{source: ./model}]\npublish: {require: all}\n")

    assert export("./model", "--backends", "onnx,dynamo", "--require", "all") == ExitCode.FAILED
    assert export("--recipe", "recipe.yaml", "--backends", "onnx,dynamo") == ExitCode.FAILED
    assert not (tmp_path / "out").exists()
    assert export("--recipe", "recipe.yaml", "--backends", "onnx,dynamo", "--require", "any") == ExitCode.FAILED
    assert (tmp_path / "out").exists()


def test_without_verification_the_level_says_so(outcomes, tmp_path):
    export("./model", "--backends", "onnx", "--no-verify")

    assert "| `model.onnx.fp32` | exported |" in (tmp_path / "out/README.md").read_text()


def test_keep_work_keeps_it_and_says_where(outcomes, tmp_path, capsys):
    export("./model", "--backends", "onnx", "--keep-work")

    (work,) = tmp_path.glob(".out.hub-exporter-*")
    assert f"the working folder is {work}" in capsys.readouterr().err


def test_only_selects_jobs_by_name(outcomes, tmp_path):
    export("./model", "--backends", "onnx,dynamo", "--only", "*.dynamo.*")

    assert not (tmp_path / "out/onnx").exists()


def test_a_recipe_says_the_same_as_flags(outcomes, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(
        "models:\n- source: ./model\n  target: ./there\n  backends: [onnx]\n  engine: {generation: {cache: static}}\n"
        "  dataset: {path: rows.jsonl, rows: 12, columns: {text: sentence}}\n"
    )
    assert hub_exporter("plan", "--recipe", "recipe.yaml", "--format", "json") == 0
    from_recipe = msgspec.json.decode(capsys.readouterr().out, type=Plan)
    flags = ["--to", "./there", "--backends", "onnx", "--engine", "generation.cache=static", "--dataset", "rows.jsonl"]
    more = ["--dataset-rows", "12", "--dataset-columns", "text=sentence"]
    assert hub_exporter("plan", "./model", *flags, *more, "--format", "json") == 0
    from_flags = msgspec.json.decode(capsys.readouterr().out, type=Plan)

    assert from_flags.jobs == from_recipe.jobs
    assert from_flags.jobs[0].engine.generation.cache == "static"


# ── The other commands ──


def test_the_plan_shows_where_values_come_from(outcomes, capsys):
    assert hub_exporter("plan", "./model", "--backends", "onnx", "--engine", "opset_version=18") == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert "engine.opset_version: 18 (from --engine)" in err
    assert "model.onnx.fp32" in err


def test_a_plan_without_a_model_fails(outcomes):
    assert hub_exporter("plan", "./missing") == ExitCode.SOURCE


def test_the_schema_is_json(capsys):
    assert hub_exporter("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "hub-exporter recipe"


def test_the_version(capsys):
    assert hub_exporter("--version") == 0
    assert capsys.readouterr().out == f"hub-exporter {__version__}\n"


# ── On GitHub Actions ──


def test_the_actions_say_it_with_variables(outcomes, tmp_path, monkeypatch):
    """An input that is not given is an empty variable, and that is none."""
    monkeypatch.setenv("HUB_EXPORTER_SOURCES", "./model\n ./other ")
    monkeypatch.setenv("HUB_EXPORTER_EXPORT_BACKENDS", "onnx,dynamo")
    monkeypatch.setenv("HUB_EXPORTER_EXPORT_ONLY", "*.onnx.*")
    monkeypatch.setenv("HUB_EXPORTER_EXPORT_DRY_RUN", "false")
    for name in ("RECIPE", "TO", "REQUIRE", "CREATE_PR"):
        monkeypatch.setenv(f"HUB_EXPORTER_EXPORT_{name}", "")

    assert export() == ExitCode.OK
    assert {path.parent.name for path in (tmp_path / "out").glob("*/onnx")} == {"model", "other"}
    assert list((tmp_path / "out").glob("*/pt2")) == []


@pytest.mark.parametrize(("name", "value"), [("CREATE_PR", "perhaps"), ("REQUIRE", "some"), ("TIME_LIMIT", "long")])
def test_a_wrong_argument_is_an_annotation_too(monkeypatch, capsys, name, value):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv(f"HUB_EXPORTER_EXPORT_{name}", value)
    monkeypatch.setattr(sys, "argv", ["hub-exporter", "export", "./model"])

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == ExitCode.USAGE
    flag = name.lower().replace("_", "-")
    assert f"::error title=hub-exporter::Invalid value for '--{flag}'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["export", "--help"], ["plan", str(TINY), "--dataset", "builtin"]])
def test_help_and_plan_never_import_what_is_heavy(arguments):
    script = (
        "import sys\nfrom hub_exporter.cli import app\n"
        f"try: app({arguments!r})\nexcept SystemExit as stopped: print('code', stopped.code)\n"
        "heavy = {'torch', 'transformers', 'onnx', 'onnxruntime', 'openvino', 'executorch', 'datasets', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)

    assert shown.stdout.splitlines()[-2:] == ["code 0", "[]"], shown.stderr


# ── Publishing ──


def test_how_to_publish_is_said_by_the_command_line_before_the_recipe():
    settings = PublishSettings(mode="pull-request", require="all")
    prepared, plain = Plan(jobs=(), publish=settings), Plan(jobs=())

    assert session.wishes(prepared, None, create_pr=False, dry_run=False) == Wishes("all", create_pr=True)
    assert session.wishes(prepared, "any", create_pr=False, dry_run=True) == Wishes("any", create_pr=True, dry_run=True)
    assert session.wishes(plain, None, create_pr=False, dry_run=False) == Wishes("any")


def test_a_dry_run_to_a_folder_shows_the_files_and_writes_none(outcomes, tmp_path, capsys):
    assert export("./model", "--backends", "onnx", "--to", "./out", "--dry-run") == ExitCode.OK

    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert any(line.startswith("onnx/model.onnx added ") for line in lines)
    assert any("would be written to ./out (9 added)" in line for line in lines)
    assert not (tmp_path / "out").exists()
