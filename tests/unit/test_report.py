"""What a person sees, in a terminal, in a log, and on GitHub Actions."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import made_up
import pytest
from rich.console import Console

from hub_exporter import github, wording
from hub_exporter.errors import SourceError
from hub_exporter.progress import LiveProgress
from hub_exporter.records import Change, Event, ModelReport, Plan, Publication, Refusal, Skip
from hub_exporter.report import Report

JOBS = ["all-MiniLM-L6-v2.onnx.fp32", "all-MiniLM-L6-v2.dynamo.fp32"]

ON_GITHUB = {"GITHUB_ACTIONS": "true"}


def model_report(*results, written: bool = True) -> ModelReport:
    artifacts = [artifact for result in results for artifact in result.artifacts]
    files = tuple(Change(path=artifact.path, size=artifact.size, kind="added") for artifact in artifacts)
    made = Publication(target="./out", files=files) if written else None
    return ModelReport(source="org/model", target="./out", results=results, written=written, publication=made)


def events(job: str, status: str = "passed") -> list[Event]:
    return [
        Event(job=job, kind="start", text=job),
        Event(job=job, kind="step", text="trace", seconds=0.1),
        Event(job=job, kind="note", text="flash_attention_2 replaced by sdpa", seconds=0.2),
        Event(job=job, kind="end", text="", seconds=41.0, status=status),
    ]


def tell(report: Report, jobs: list[str] = JOBS) -> None:
    with report.progress(jobs) as progress:
        for job in jobs:
            for event in events(job):
                progress.event(event)


# ── Progress ──


def test_a_log_gets_plain_lines_without_times(capsys):
    tell(Report(environ={}), JOBS[:1])

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "all-MiniLM-L6-v2.onnx.fp32: trace",
        "all-MiniLM-L6-v2.onnx.fp32: flash_attention_2 replaced by sdpa",
        "all-MiniLM-L6-v2.onnx.fp32: passed",
    ]


def test_github_folds_each_job(capsys):
    tell(Report(environ=ON_GITHUB))

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "::group::all-MiniLM-L6-v2.onnx.fp32"
    assert [line for line in lines if line.startswith("::")] == [
        "::group::all-MiniLM-L6-v2.onnx.fp32",
        "::endgroup::",
        "::group::all-MiniLM-L6-v2.dynamo.fp32",
        "::endgroup::",
    ]


def test_a_job_that_never_ends_still_closes_its_group(capsys):
    with Report(environ=ON_GITHUB).progress(JOBS) as progress:
        progress.event(events(JOBS[0])[1])

    assert capsys.readouterr().err.splitlines()[-1] == "::endgroup::"


def test_quiet_says_nothing_of_what_goes_well(capsys):
    report = Report(quiet=True, environ={})
    report.begin(made_up.encoder(), (), "./out")
    tell(report)
    report.finish([model_report(made_up.passed("onnx"))])

    assert capsys.readouterr() == ("", "")


def test_quiet_still_says_what_did_not_pass(capsys):
    Report(quiet=True, environ={}).finish([model_report(made_up.not_passed("onnx", "failed", "out of memory"))])

    assert capsys.readouterr().err == "all-MiniLM-L6-v2.onnx.fp32 failed: out of memory\n"


def test_a_terminal_shows_all_jobs_with_what_each_is_doing():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    progress = LiveProgress(console, JOBS)
    progress.event(Event(job=JOBS[0], kind="end", text="", seconds=41.0, status="mismatch"))
    progress.event(Event(job=JOBS[1], kind="step", text="save\x1b[2J", seconds=75.0))
    with console.capture() as shown:
        console.print(progress._table())

    first, second = shown.get().splitlines()
    assert re.fullmatch(r"all-MiniLM-L6-v2\.onnx\.fp32 +mismatch +41 s *", first)
    assert re.fullmatch(r"all-MiniLM-L6-v2\.dynamo\.fp32 +save \[2J +1 min 15 s *", second)


@pytest.mark.parametrize("no_color", [True, False])
def test_a_real_terminal_and_no_color(tmp_path, no_color):
    script = (
        "import made_up, test_report as t\nfrom hub_exporter.report import Report\n"
        "r = Report(environ={})\nt.tell(r)\n"
        "r.finish([t.model_report(made_up.passed('onnx'), made_up.not_passed('dynamo', 'mismatch', 'differs'))])\n"
    )
    here = Path(__file__).parent
    paths = os.pathsep.join(map(str, [here, here.parent, here.parent.parent]))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    env |= {"PYTHONPATH": paths, "TERM": "xterm-256color", "COLUMNS": "120"} | ({"NO_COLOR": "1"} if no_color else {})
    command = ["script", "-qec", f'{sys.executable} -c "{script}"', str(tmp_path / "typescript")]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    assert shown.returncode == 0, shown.stdout
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.stdout)
    assert "waiting" in plain  # the second job, while the first one runs
    assert re.search(r"all-MiniLM-L6-v2\.onnx\.fp32 +passed +parity +399 B +max diff 2\.4e-07 +41 s", plain)
    assert "all-MiniLM-L6-v2.dynamo.fp32 mismatch: differs" in plain
    assert bool(re.search(r"\x1b\[(1;)?3[0-7]m", shown.stdout)) is not no_color


# ── The end ──


def test_the_final_table_has_the_figures_and_the_reasons_follow(capsys):
    failed = made_up.not_passed("dynamo", "failed", "The export stage crashed", hint="Try again", log="/tmp/x.log")

    Report(environ={}).finish([model_report(made_up.passed("onnx"), failed)])

    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert "job outcome level size agreement time" in lines
    assert "all-MiniLM-L6-v2.onnx.fp32 passed parity 399 B max diff 2.4e-07 41 s" in lines
    start = lines.index("all-MiniLM-L6-v2.dynamo.fp32 failed: The export stage crashed")
    assert lines[start + 1 :] == [
        "hint: Try again",
        "log: /tmp/x.log",
        "org/model: 3 files, 399 B, written to ./out (3 added)",
    ]


def test_a_long_name_is_never_cut_in_a_log(capsys):
    name = "a-very-long-model-name-" * 6

    Report(environ={}).finish([model_report(made_up.passed("onnx", name))])

    assert f"{name}.onnx.fp32" in capsys.readouterr().err


def test_github_gets_an_annotation_for_a_job_that_did_not_pass(capsys):
    failed = made_up.not_passed("dynamo", "failed", "100% wrong", hint="Try again")

    Report(environ=ON_GITHUB).finish([model_report(failed)])

    expected = "::error title=all-MiniLM-L6-v2.dynamo.fp32 failed::100%25 wrong%0ATry again"
    assert expected in capsys.readouterr().err.splitlines()


def test_github_shows_the_end_of_the_log_of_a_job_that_did_not_pass(tmp_path, capsys):
    log = tmp_path / "log.txt"
    log.write_text("".join(f"line {number}\n" for number in range(300)) + '  File "x"\x1b[31m\n::set-env name=A::b\n')
    failed = made_up.not_passed("dynamo", "failed", "it did not", log=str(log))

    Report(environ=ON_GITHUB).results([failed])

    lines = capsys.readouterr().err.splitlines()
    start = lines.index("::group::Log of all-MiniLM-L6-v2.dynamo.fp32")
    assert lines[start + 1] == "line 102"
    assert lines[-3:] == ['  File "x" [31m', " : :set-env name=A::b", "::endgroup::"]


def test_github_gets_a_summary_after_what_is_there(tmp_path):
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    lost = made_up.not_passed("dynamo", "mismatch", "a | b\n# c")

    Report(environ={**ON_GITHUB, "GITHUB_STEP_SUMMARY": str(file)}).finish([model_report(made_up.passed("onnx"), lost)])

    text = file.read_text()
    assert text.startswith("before\n")
    assert "| `all-MiniLM-L6-v2.onnx.fp32` | passed | parity | 399 B | max diff 2.4e-07 | 41 s |" in text
    assert f"| `onnx/model.onnx` | 196 B | `{made_up.passed('onnx').artifacts[1].sha256}` |" in text
    assert "- `all-MiniLM-L6-v2.dynamo.fp32` mismatch: a &#124; b &#35; c" in text


HOSTILE = "o/|<script>[x](javascript:y)`\n# h ![z](http://w)"


def test_the_summary_is_markdown_whatever_names_are_in_it(tmp_path):
    """One heading and two tables per model, the cells in their columns, and no markup that came from outside."""
    from markdown_it import MarkdownIt

    artifact = made_up.artifact("onnx/a|b`.onnx", b"x")
    jobs = (
        made_up.passed("onnx", "a|b", artifacts=(artifact,)),
        made_up.not_passed("dynamo", "failed", HOSTILE, hint=HOSTILE),
    )
    made = Publication(target=HOSTILE, files=(), commit="c", url=f"https://hub/{HOSTILE}")
    report = ModelReport(source=HOSTILE, target=HOSTILE, results=jobs, written=True, error=HOSTILE, publication=made)

    html = MarkdownIt("commonmark").enable("table").render(github.summary([report]))

    assert html.count("<h3>") == 1
    assert [row.count("<th>") for row in html.split("<tr>") if "<th>" in row] == [6, 3]
    assert [row.count("<td>") for row in html.split("<tr>") if "<td>" in row] == [6, 6, 3]
    assert re.findall(r"<a href=\"([^\"]*)\"", html) == [f"https://hub/{HOSTILE}".translate(PERCENT)]
    assert set(re.findall(r"</?(\w+)", html)) == {
        *("h3", "p", "a", "table", "thead", "tbody", "tr", "th", "td", "code", "strong", "ul", "li", "br"),
        *("details", "summary"),
    }


def test_the_summary_of_a_plan_says_what_runs_where_and_what_does_not(tmp_path):
    file = tmp_path / "summary.md"
    job = made_up.job("onnx", runner=("self-hosted", "gpu|x"))
    plan = Plan(
        jobs=(job,),
        skipped=(Skip(name="m.executorch-mlx.fp32", reason="needs `macos-arm64`"),),
        refused=(Refusal(source=HOSTILE, target="t", kind="SourceError", message=HOSTILE),),
    )

    Report(environ={**ON_GITHUB, "GITHUB_STEP_SUMMARY": str(file)}).plan(plan, [])

    assert file.read_text().splitlines() == [
        "### 1 job",
        "",
        "| job | runner | target |",
        "| --- | --- | --- |",
        "| `all-MiniLM-L6-v2.onnx.fp32` | <code>self&#45;hosted &#43; gpu&#124;x</code> | `org/exports` |",
        "",
        "- `m.executorch-mlx.fp32` skipped: needs `macos-arm64`",
        f"- {wording.code(HOSTILE)} cannot be exported: {wording.prose(HOSTILE)}",
    ]
    assert github.planned(Plan(jobs=())) == "### Nothing to export\n"


PERCENT = {ord(char): f"%{ord(char):02X}" for char in "|<>[]()`\n !"}


def test_a_summary_that_github_would_drop_is_cut_between_models():
    many = [model_report(made_up.not_passed("onnx", "failed", "x" * 300_000)) for _ in range(5)]

    text = github.summary(many)

    assert len(text.encode()) < 2**20
    assert text.count("### ") == 3
    assert text.endswith("And 2 more models: see the log.\n")


def test_later_steps_read_what_was_published(tmp_path):
    file = tmp_path / "output"
    made = Publication(target="org/b", files=(), commit="c0ffee", pull_request=3, url="https://hub/org/b/discussions/3")
    commit = Publication(target="org/a", files=(), commit="beef", url="https://hub/org/a/commit/beef")
    results = (made_up.passed("onnx"), made_up.not_passed("dynamo", "failed", "a\n::error::b"))
    reports = [
        ModelReport(source=f"org/{one.target}", target=one.target, results=results, written=True, publication=one)
        for one in (commit, made, commit)
    ]

    Report(environ={**ON_GITHUB, "GITHUB_OUTPUT": str(file)}).finish(reports)

    found = {name: value for name, _, value in re.findall(OUTPUT, file.read_text(), re.DOTALL | re.MULTILINE)}
    assert list(found) == ["result", "commit-url", "pull-request-url"]
    assert found["commit-url"] == "https://hub/org/a/commit/beef\nhttps://hub/org/a/commit/beef"
    assert found["pull-request-url"] == "https://hub/org/b/discussions/3"
    first, second, _ = json.loads(found["result"])
    assert (first["commit"], first["pull-request"]) == ("beef", None)
    assert (second["commit"], second["pull-request"]) == ("c0ffee", 3)
    assert second["jobs"][1] == {
        "job": "all-MiniLM-L6-v2.dynamo.fp32",
        "status": "failed",
        "reason": "a\n::error::b",
    }


OUTPUT = r"^([\w-]+)<<(\w+)\n(.*?)\n\2$"


def test_the_data_on_stdout_is_json_and_nothing_else(capsys):
    report = Report(environ={})
    report.finish([model_report(made_up.passed("onnx"))])
    report.data([model_report(made_up.passed("onnx"))])

    data = json.loads(capsys.readouterr().out)
    assert data[0]["results"][0]["job"] == "all-MiniLM-L6-v2.onnx.fp32"


# ── Other people's text ──


@pytest.mark.parametrize("line", ["::set-output name=x::y", "  ::add-mask::a", "x ##[add-mask]y", "\t::error::z"])
def test_no_line_of_a_model_is_a_command_to_github(capsys, line):
    Report(environ=ON_GITHUB).line(line)

    (printed,) = capsys.readouterr().err.splitlines()
    assert not printed.lstrip().startswith("::")
    assert "##[" not in printed


def test_markup_and_escape_codes_are_shown_and_not_obeyed(capsys):
    Report(environ={}).line("[red]x[/red] :smile: \x1b[31my\x07")

    assert capsys.readouterr().err == "[red]x[/red] :smile: [31my\n"


def test_an_annotation_ends_where_it_should():
    assert github.error("a:b,c\n", "x\r\ny%") == "::error title=a%3Ab%2Cc%0A::x%0D%0Ay%25"


# ── Errors and the plan ──


def test_an_error_has_its_hint_on_a_line_of_its_own(capsys):
    Report(environ={}).error(SourceError("There is no folder `./x`", hint="Check the name"), "./y")

    assert capsys.readouterr().err == "error: ./y: There is no folder `./x`\nhint: Check the name\n"


def test_a_bug_gives_a_text_to_paste_without_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    try:
        raise ValueError("unexpected")
    except ValueError as error:
        Report(environ={}).crash(error, ["hub-exporter", "export", "./a b"])

    shown = capsys.readouterr().err
    assert "error: hub-exporter stopped at a bug: ValueError: unexpected" in shown
    assert "\nhub-exporter 0.1.0, Python 3." in shown
    assert "\ncommand: hub-exporter export './a b'\n" in shown
    assert "Traceback (most recent call last):" in shown
    assert "hf_secret" not in shown


def test_the_plan_says_what_and_why_and_what_not(capsys):
    plan = Plan(jobs=(), skipped=(Skip(name="all-MiniLM-L6-v2.executorch-mlx.fp32", reason="needs a Mac"),))

    Report(environ={}).plan(plan, [made_up.encoder()])

    shown = capsys.readouterr().err
    assert "sentence-transformers/all-MiniLM-L6-v2: sentence-similarity (from modules.json), BertModel" in shown
    assert f"commit {made_up.COMMIT}" in shown
    assert "all-MiniLM-L6-v2.executorch-mlx.fp32 skipped: needs a Mac" in shown


def test_a_result_that_is_too_long_for_an_output_loses_its_reasons_then_its_jobs():
    lost = made_up.not_passed("onnx", "failed", "x" * 1000)
    reasons = github.results([model_report(lost)] * 300)["result"]
    jobs = github.results([model_report(*[lost] * 20)] * 300)["result"]

    assert max(len(reasons), len(jobs)) <= github.RESULT_LIMIT
    assert set(json.loads(reasons)[0]["jobs"][0]) == {"job", "status"}
    assert "jobs" not in json.loads(jobs)[0]
    assert len(json.loads(jobs)) == 300
