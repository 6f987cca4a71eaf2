"""Each job on a runner of its own and one publisher, on one machine: plan, run, publish. Exports are made up."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import made_up
import msgspec
import pytest

from hub_exporter import cells, fanout, session
from hub_exporter.catalogue import BACKENDS
from hub_exporter.cli import app
from hub_exporter.errors import DatasetError, ExitCode, SourceError
from hub_exporter.records import CellResult, Index, ModelReport, Plan, SourceFile, from_json, to_json

pytestmark = pytest.mark.usefixtures("_sigterm")


@pytest.fixture
def _sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Backend -> how its job ends (`passed` if not named), or what its run raises; `commit` of the source."""
    told: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session.hub, "offline", lambda: True)

    def resolve(request):
        name = Path(request.settings.source).name
        if name == "missing":
            raise SourceError("There is no folder `missing`", hint="Check the name")
        model = made_up.run(tmp_path, (), made_up.encoder(name=name, repo=None, source=request.settings.source)).model
        files = tuple(
            SourceFile(path=made.path, size=made.size, sha256=made.sha256)
            for made in (made_up.artifact(path, made_up.content(path)) for path in model.side_files)
        )
        return msgspec.structs.replace(model, files=files, commit=told.get("commit", model.commit))

    def run_model(model, jobs, work, events, verify=True, isolate=False):
        (job,) = jobs
        status = told.get(job.backend, "passed")
        if isinstance(status, BaseException):
            raise status
        made_up.write(work / f"{job.name}.export" / "log.txt", b"the whole log\n")
        result = (
            made_up.passed(job.backend, model.name)
            if status == "passed"
            else made_up.not_passed(job.backend, status, f"{work}/x: it did not", model.name)
        )
        made = made_up.run(tmp_path, (result,), model, work)
        return msgspec.structs.replace(made, model=model)

    monkeypatch.setattr(session, "resolve", resolve)
    monkeypatch.setattr(fanout, "resolve", resolve)
    monkeypatch.setattr(session, "run_model", run_model)
    return told


def hub_exporter(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        app(list(arguments), prog_name="hub-exporter")
    return stopped.value.code


def plan(*arguments: str, to: str = "./out", backends: str = "onnx,dynamo") -> Plan:
    code = hub_exporter("plan", *arguments, "--to", to, "--backends", backends, "--save", "plan.json", "--quiet")
    assert code == ExitCode.OK
    return from_json(Path("plan.json").read_bytes(), Plan)


def run(job: str, to: str = "cells") -> int:
    return hub_exporter("run", job, "--plan", "plan.json", "--to", to, "--quiet")


def publish(*arguments: str, folder: str = "cells") -> int:
    return hub_exporter("publish", folder, "--plan", "plan.json", *arguments)


def reports(capsys) -> list[ModelReport]:
    return msgspec.json.decode(capsys.readouterr().out, type=list[ModelReport])


ONNX, DYNAMO = "model.onnx.fp32", "model.dynamo.fp32"


def all_run() -> None:
    plan("./model")
    run(ONNX)
    run(DYNAMO)


# ── The plan ──


def test_artifacts_may_carry_the_id_of_their_plan(told, capsys):
    """One workflow may run several plans, with jobs of the same name."""
    all_run()
    shutil.move(f"cells/{ONNX}", f"cells/{ONNX}@0123456789ab")

    assert publish() == ExitCode.OK
    assert fanout.id_of(plan("./model")) == fanout.id_of(plan("./model"))
    assert fanout.id_of(plan("./model")) != fanout.id_of(plan("./model", to="./other"))


def test_jobs_are_planned_for_a_runner_each_of_any_kind(told, capsys):
    hub_exporter("plan", "./model", "--backends", "onnx,executorch-mlx", "--format", "matrix", "--quiet")

    entries = json.loads(capsys.readouterr().out)["include"]
    assert entries[0] == {"job": ONNX, "runner": "ubuntu-latest", "python": "3.12", "minutes": 255}


def test_the_matrix_is_an_output_of_the_step_too(told, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_OUTPUT", "outputs")
    hub_exporter("plan", "./model", "--backends", "onnx,dynamo", "--format", "matrix")

    lines = Path("outputs").read_text().splitlines()
    assert lines[1] == capsys.readouterr().out.strip()
    assert lines[0].startswith("matrix<<")
    assert lines[0].removeprefix("matrix<<") == lines[2]
    assert [line.partition("<<")[0] for line in lines[3:4]] + lines[4:5] == ["count", "2"]
    assert [line.partition("<<")[0] for line in lines[6:7]] == ["id"]


def test_a_model_that_cannot_be_planned_stops_no_other_and_is_told_by_the_publisher(told, capsys):
    planned = plan("./missing", "./model", to="./out")
    assert [job.name for job in planned.jobs] == [ONNX, DYNAMO]
    run(ONNX)
    run(DYNAMO)
    capsys.readouterr()

    assert publish("--json") == ExitCode.SOURCE
    out, err = capsys.readouterr()
    assert [(report.source, report.error) for report in msgspec.json.decode(out, type=list[ModelReport])] == [
        ("./missing", "There is no folder `missing`"),
        ("./model", None),
    ]
    assert "error: ./missing: There is no folder `missing`\nhint: Check the name\n" in err


def test_a_plan_of_nothing_but_what_cannot_be_planned_fails(told):
    assert hub_exporter("plan", "./missing", "--save", "plan.json") == ExitCode.SOURCE


def test_how_to_publish_travels_in_the_plan(told):
    Path("recipe.yaml").write_text("models: [{source: ./model}]\npublish: {require: all}\n")

    assert plan("--recipe", "recipe.yaml").publish.require == "all"


def test_only_takes_several_patterns(told):
    planned = plan("./model", "--only", "*.onnx.*", "--only", DYNAMO, backends="onnx,openvino,dynamo")

    assert [job.name for job in planned.jobs] == [ONNX, DYNAMO]


def test_one_part_of_the_models(told):
    planned = plan("./a", "./b", "./c", "--shard", "2/3", backends="onnx")

    assert [job.name for job in planned.jobs] == ["b.onnx.fp32"]
    assert planned.jobs[0].target == "./out/b"


# ── One job ──


def test_what_a_job_leaves(told):
    planned = plan("./model")
    assert run(ONNX) == ExitCode.OK

    place = Path("cells") / ONNX
    cell = from_json((place / "result.json").read_bytes(), CellResult)
    assert sorted(path.name for path in place.iterdir()) == ["files", "log.txt", "result.json", "source"]
    assert {
        path.relative_to(place / "files").as_posix() for path in (place / "files").rglob("*") if path.is_file()
    } == {artifact.path for artifact in cell.result.artifacts}
    assert cell.job.name == planned.jobs[0].name
    assert cell.job.model.folder == ""
    assert "the whole log" in (place / "log.txt").read_text()
    assert sorted(path.name for path in Path("cells").iterdir()) == [ONNX]


def test_the_rows_themselves_stay_on_the_runner(told):
    plan("./model")
    run(ONNX)

    cell = from_json((Path("cells") / ONNX / "result.json").read_bytes(), CellResult)
    assert [row.values for row in (*cell.capture.capture, *cell.capture.held_out)] == [{}] * 8


@pytest.mark.parametrize(
    ("end", "code", "status"),
    [
        ("failed", ExitCode.FAILED, "failed"),
        ("mismatch", ExitCode.MISMATCH, "mismatch"),
        (DatasetError("no rows", hint="name some"), ExitCode.DATASET, "failed"),
    ],
)
def test_a_job_that_does_not_pass_leaves_a_result_too(told, end, code, status):
    told["onnx"] = end
    plan("./model")

    assert run(ONNX) == code
    result = from_json((Path("cells") / ONNX / "result.json").read_bytes(), CellResult).result
    assert (result.status, result.artifacts) == (status, ())
    assert "cells" not in result.reason
    assert not (Path("cells") / ONNX / "files").exists()


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ZeroDivisionError("a bug")])
def test_a_job_that_is_stopped_leaves_none(told, end):
    plan("./model")
    run(ONNX)
    told["onnx"] = end

    assert run(ONNX) in (ExitCode.INTERRUPTED, ExitCode.INTERNAL)
    assert list(Path("cells").iterdir()) == []


def test_a_source_that_changed_since_is_refused(told, capsys):
    plan("./model")
    told["commit"] = "another"

    assert run(ONNX) == ExitCode.SOURCE
    assert "`./model` is not what was planned" in capsys.readouterr().err


def test_a_runner_of_another_kind_is_refused(told, capsys, monkeypatch):
    plan("./model")
    monkeypatch.setitem(BACKENDS, "onnx", dataclasses.replace(BACKENDS["onnx"], runner="macos-arm64"))

    assert run(ONNX) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "needs a machine of the kind `macos-arm64`" in err
    assert "`runners:`" in err


def test_other_pins_than_planned_are_refused_where_they_decide(told, capsys, monkeypatch):
    plan("./model")
    monkeypatch.setattr(fanout, "digest", lambda backend: "other")
    where = ("--plan", "plan.json", "--to", "cells", "--quiet")

    assert hub_exporter("run", ONNX, *where, "--isolate") == ExitCode.USAGE
    assert "planned with other pins of `onnx`" in capsys.readouterr().err
    assert run(ONNX) == ExitCode.OK


def test_a_job_that_is_not_planned_is_a_usage_error(told, capsys):
    plan("./model")

    assert run("model.onx.fp32") == ExitCode.USAGE
    assert "did you mean `model.onnx.fp32`?" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jobs": [{}]}', '{"jobs": [], "unknown": 1}'])
def test_what_is_no_plan_is_refused(told, capsys, text):
    Path("plan.json").write_text(text)

    assert run(ONNX) == ExitCode.USAGE
    assert publish() == ExitCode.USAGE
    assert "`plan.json` is not a plan" in capsys.readouterr().err


# ── Publishing ──


def test_all_results_become_what_one_machine_would_have_written(told, tmp_path, monkeypatch):
    all_run()
    assert publish() == ExitCode.OK
    Path("out").rename("of-runners")

    def run_all(model, jobs, work, events, verify=True, isolate=False):
        made = made_up.run(tmp_path, tuple(made_up.passed(job.backend, model.name) for job in jobs), model, work)
        return msgspec.structs.replace(made, model=model)

    monkeypatch.setattr(session, "run_model", run_all)
    assert hub_exporter("export", "./model", "--backends", "onnx,dynamo", "--to", "./out") == ExitCode.OK
    alone = {path.relative_to("out"): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    together = {
        path.relative_to("of-runners"): path.read_bytes() for path in Path("of-runners").rglob("*") if path.is_file()
    }
    assert together == alone


def test_in_the_models_own_folder_its_side_files_stay_as_they_are(told):
    for path in made_up.SIDE_FILES:
        made_up.write(Path("model") / path, made_up.content(path))
    plan("./model", to="model")
    run(ONNX)

    assert publish() == ExitCode.FAILED  # the other job never ran
    assert Path("model/config.json").read_bytes() == made_up.content("config.json")
    assert Path("model/onnx/model.onnx").exists()


def test_results_stay_and_can_be_published_again(told, capsys):
    all_run()
    assert publish() == ExitCode.OK
    capsys.readouterr()

    assert publish("--json") == ExitCode.OK
    (report,) = reports(capsys)
    assert report.publication.unchanged


def test_results_are_found_within_artifacts_of_their_name(told):
    all_run()
    for job in (ONNX, DYNAMO):
        place = Path("incoming") / job / job
        place.parent.mkdir(parents=True)
        (Path("cells") / job).rename(place)

    assert publish(folder="incoming") == ExitCode.OK


def test_a_job_without_a_result_failed_and_the_others_are_published(told, capsys):
    plan("./model")
    run(ONNX)

    assert publish() == ExitCode.FAILED
    err = capsys.readouterr().err
    assert f"{DYNAMO} failed: its runner never reported (cancelled, killed or out of time)" in err
    assert Path("out/onnx/model.onnx").exists()


def test_with_require_all_nothing_is_published_then(told):
    plan("./model")
    run(ONNX)

    assert publish("--require", "all") == ExitCode.FAILED
    assert not Path("out").exists()


def test_the_failed_job_alone_is_run_again_and_what_was_published_stays(told, capsys):
    told["dynamo"] = "failed"
    all_run()
    assert publish() == ExitCode.FAILED
    del told["dynamo"]
    assert run(DYNAMO) == ExitCode.OK  # as `Re-run failed jobs` does: the artifact of the other is still there
    assert publish() == ExitCode.OK
    first = Path("out/hub-exporter.json").read_bytes()

    shutil.rmtree("cells")
    plan("./model", "--only", DYNAMO)
    run(DYNAMO)
    capsys.readouterr()
    assert publish("--json") == ExitCode.OK  # as a new run for this job does: the other is in the target
    assert reports(capsys)[0].publication.unchanged
    assert Path("out/hub-exporter.json").read_bytes() == first
    assert {job.job for job in from_json(first, Index).jobs} == {ONNX, DYNAMO}


def test_nothing_passed_writes_nothing(told):
    told |= {"onnx": "failed", "dynamo": "mismatch"}
    all_run()

    assert publish() == ExitCode.MISMATCH
    assert not Path("out").exists()


def test_a_log_of_a_failed_job_is_named_where_it_is(told, capsys):
    told["onnx"] = "failed"
    all_run()
    publish()

    assert f"log: cells/{ONNX}/log.txt" in capsys.readouterr().err


def test_outputs_of_the_step(told, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_OUTPUT", "outputs")
    all_run()
    Path("outputs").unlink(missing_ok=True)
    publish()

    lines = Path("outputs").read_text().splitlines()
    result = json.loads(lines[1])
    assert [(one["target"], [job["status"] for job in one["jobs"]]) for one in result] == [
        ("./out", ["passed", "passed"])
    ]
    assert [line.partition("<<")[0] for line in lines if "<<" in line] == ["result", "commit-url", "pull-request-url"]


# ── What must not be trusted ──


def tampered(job: str, change) -> None:
    """Change a result as a hostile runner could."""
    file = Path("cells") / job / "result.json"
    value = json.loads(file.read_bytes())
    change(value)
    file.write_text(json.dumps(value))


def reason(capsys, job: str = ONNX) -> str:
    capsys.readouterr()
    publish("--json", "--dry-run")
    (found,) = [result for result in reports(capsys)[0].results if result.job == job]
    assert found.status == "failed"
    return found.reason


def test_a_file_that_is_not_the_verified_one_is_not_published(told, capsys):
    all_run()
    file = Path("cells") / ONNX / "files/onnx/model.onnx"
    file.write_bytes(file.read_bytes().replace(b"contents", b"Contents"))

    assert publish() == ExitCode.FAILED
    assert not Path("out/onnx").exists()
    assert Path("out/pt2").exists()
    assert "`onnx/model.onnx` is not the file that was verified" in capsys.readouterr().err


def test_a_side_file_that_is_not_the_models_is_not_published(told, capsys):
    all_run()
    (Path("cells") / ONNX / "source/tokenizer.json").write_bytes(b"{}")

    assert "`tokenizer.json` is not the file" in reason(capsys)


def test_a_missing_file_is_told(told, capsys):
    all_run()
    (Path("cells") / ONNX / "files/onnx/model.onnx").unlink()

    assert reason(capsys) == "`onnx/model.onnx` is missing"


@pytest.mark.parametrize(
    "path", ["../../../victim", "/etc/passwd", "README.md", "onnx/../../victim", "pt2/model.pt2", "onnx\\x", "onnx/\0"]
)
def test_a_path_that_leads_elsewhere_is_refused(told, capsys, path):
    all_run()
    Path("victim").write_text("mine")

    def change(value):
        value["result"]["artifacts"][0]["path"] = path

    tampered(ONNX, change)
    assert reason(capsys)


def test_a_graph_that_is_no_file_of_it_is_refused(told, capsys):
    all_run()

    def change(value):
        value["result"]["export"]["components"][0]["file"] = "../../victim"

    tampered(ONNX, change)
    assert reason(capsys) == "its result lists a graph `../../victim`, and no such file"


def test_a_disk_that_is_too_small_is_found_before_the_work(told, monkeypatch):
    plan("./model")
    told["onnx"] = AssertionError("it ran")
    monkeypatch.setattr(fanout, "written", lambda jobs: 10**18)

    assert run(ONNX) == ExitCode.TARGET
    result = from_json((Path("cells") / ONNX / "result.json").read_bytes(), CellResult).result
    assert result.reason.startswith("No space left for `")


def test_a_link_out_of_the_folder_is_refused(told, capsys, tmp_path):
    all_run()
    file = Path("cells") / ONNX / "files/onnx/model.onnx"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")

    assert "is a link that leads out of its folder" in reason(capsys)


def test_a_result_of_another_plan_is_refused(told, capsys):
    all_run()
    plan("./model", "--engine", "strict=true")

    assert reason(capsys) == "its result was made for another plan"


def test_the_same_plan_made_elsewhere_is_the_same(told, capsys):
    all_run()
    planned = from_json(Path("plan.json").read_bytes(), Plan)
    jobs = tuple(
        msgspec.structs.replace(job, model=msgspec.structs.replace(job.model, folder="/elsewhere"))
        for job in planned.jobs
    )
    Path("plan.json").write_bytes(to_json(msgspec.structs.replace(planned, jobs=jobs)))

    assert publish() == ExitCode.OK


def test_two_results_for_one_job_are_refused(told, capsys):
    all_run()
    shutil.copytree(Path("cells") / ONNX, Path("elsewhere"))
    Path("elsewhere").rename(Path("cells") / ONNX / ONNX)

    assert reason(capsys).startswith("two results claim to be its own")


def test_a_job_cannot_answer_for_another(told, capsys):
    """The runner of one job leaves a result in the name of another, whose own never came."""
    all_run()
    own, other = Path("cells") / DYNAMO, Path("cells") / ONNX
    shutil.copytree(other, own / ONNX)
    shutil.rmtree(other)

    assert reason(capsys) == cells.SILENT


def test_a_result_in_the_place_of_another_is_refused(told, capsys):
    all_run()
    shutil.copy(Path("cells") / DYNAMO / "result.json", Path("cells") / ONNX / "result.json")

    assert reason(capsys) == "its result was made for another plan"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("verification", None),
        ("export", None),
        ("artifacts", []),
        ("folder", "elsewhere"),
        ("status", "skipped"),
        ("job", DYNAMO),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(told, capsys, key, value):
    all_run()
    tampered(ONNX, lambda whole: whole["result"].__setitem__(key, value))

    assert reason(capsys)


def test_a_pass_whose_verification_did_not_pass_is_refused(told, capsys):
    all_run()
    tampered(ONNX, lambda whole: whole["result"]["verification"].__setitem__("passed", False))

    assert reason(capsys) == "its result says that it passed, and does not show it"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b'{"tool": 1}', b'{"tool":"x","unknown":1}'])
def test_a_result_that_cannot_be_read_is_told(told, capsys, data):
    all_run()
    (Path("cells") / ONNX / "result.json").write_bytes(data)

    assert reason(capsys).startswith("its result cannot be read")


def test_results_with_other_rows_keep_their_digest(told, capsys):
    all_run()
    tampered(DYNAMO, lambda whole: whole["capture"].__setitem__("digest", "sha256:other"))
    publish()

    index = from_json(Path("out/hub-exporter.json").read_bytes(), Index)
    assert {job.job: job.rows for job in index.jobs} == {ONNX: None, DYNAMO: "sha256:other"}
