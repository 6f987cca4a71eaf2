"""The command as a user runs it: real processes, real files, things that go wrong on the way."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import onnx
import onnx.numpy_helper
import pytest
from card_examples import output_of
from safetensors.numpy import load_file, save_file

from hub_exporter import folder
from hub_exporter.card import metadata
from hub_exporter.errors import ExitCode
from hub_exporter.records import Index, ModelReport, from_json

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "tiny-chat"
ROWS = ROOT / "examples" / "rows.jsonl"
FOLDERS = {"onnx": "onnx", "openvino": "openvino", "executorch-xnnpack": "executorch/xnnpack", "dynamo": "pt2"}


def hub_exporter(*arguments: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hub_exporter", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **kwargs)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelReport]:
    """The demo's recipe, exported elsewhere."""
    target = tmp_path_factory.mktemp("demo") / "tiny-chat"
    done = hub_exporter("export", "--recipe", "examples/hub-exporter.yaml", "--to", target, "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    (report,) = msgspec.json.decode(done.stdout, type=tuple[ModelReport, ...])
    return target, report


@pytest.fixture(scope="module")
def index(written: tuple[Path, ModelReport]) -> Index:
    return from_json((written[0] / "hub-exporter.json").read_bytes(), Index)


def test_the_demo_reaches_parity_on_four_backends(written: tuple[Path, ModelReport], index: Index) -> None:
    _, report = written

    assert report.written
    assert {job.backend: job.verification and job.verification.level for job in index.jobs} == dict.fromkeys(
        FOLDERS, "parity"
    )


def test_the_index_lists_every_file_with_its_digest(written: tuple[Path, ModelReport], index: Index) -> None:
    target, _ = written
    listed = {artifact.path: artifact for job in index.jobs for artifact in job.artifacts}
    listed |= {artifact.path: artifact for artifact in index.side_files}
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}

    assert there == {*listed, "hub-exporter.json"}
    assert all((target / path).stat().st_size == artifact.size for path, artifact in listed.items())


def test_the_target_loads_on_its_own_with_the_sources_tokenizer(written: tuple[Path, ModelReport]) -> None:
    target, _ = written

    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (target / name).read_bytes() == (TINY / name).read_bytes()
    config = json.loads((target / "config.json").read_bytes())
    assert config.pop("transformers.js_config") == {"dtype": "fp32"}, "there is no quantised file that it would ask for"
    assert config == json.loads((TINY / "config.json").read_bytes())


def test_the_readmes_question_is_answered_with_the_files_alone(written: tuple[Path, ModelReport]) -> None:
    (line,) = re.findall(r"^hub-exporter (generate .*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    command, _, *rest = shlex.split(line)
    answers = []
    for backend in FOLDERS:
        done = hub_exporter(command, written[0], *(backend if word == "onnx" else word for word in rest))
        assert done.returncode == ExitCode.OK, done.stderr
        answers.append(done.stdout)

    assert answers[0].strip()
    assert len(set(answers)) == 1, "the same text from every backend"


def test_tied_weights_are_stored_once(written: tuple[Path, ModelReport], index: Index) -> None:
    target, _ = written
    weights, allowed = index.source.weight_bytes, 1.03 * index.source.weight_bytes
    graph = onnx.load(target / "onnx" / "model.onnx").graph
    with zipfile.ZipFile(target / "pt2" / "model.pt2") as archive:
        entries = [entry for entry in archive.infolist() if "/data/weights/weight_" in entry.filename]

    assert weights <= sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer) < allowed
    assert weights <= (target / "openvino" / "openvino_model.bin").stat().st_size < allowed
    assert weights <= sum(entry.file_size for entry in entries) < allowed
    ratios = {job.backend: job.size_ratio for job in index.jobs}
    assert all(ratio is not None and ratio > 1 for ratio in ratios.values())
    assert ratios["onnx"] == round((target / "onnx" / "model.onnx").stat().st_size / weights, 4)


def test_every_job_names_the_clients_that_load_it(index: Index) -> None:
    assert {job.backend: set(job.clients) for job in index.jobs} == {
        "onnx": {"transformers", "onnxruntime", "transformers.js", "onnxruntime-genai", "optimum-onnx"},
        "openvino": {"transformers", "openvino", "optimum-intel", "openvino-genai"},
        "executorch-xnnpack": {"transformers", "executorch", "executorch-llm"},
        "dynamo": {"transformers", "torch"},
    }


@pytest.mark.parametrize("folder", FOLDERS.values())
def test_the_engine_loads_every_folder(written: tuple[Path, ModelReport], folder: str) -> None:
    from transformers.exporters import ExportedModel

    exported = ExportedModel.from_pretrained(written[0], subfolder=folder, trust_remote_code=folder == "pt2")

    assert list(exported.components) == ["model"]
    assert exported.config is not None


def test_the_cards_examples_run_as_they_stand_and_say_the_same(written: tuple[Path, ModelReport], index: Index) -> None:
    said = {job.backend: output_of(index, job, written[0]) for job in index.jobs}

    assert set(said) == set(FOLDERS)
    assert len(set(said.values())) == 1, said
    assert len(said["onnx"].split()) > 8, "a continuation of more than a few words"


def test_the_card_says_where_the_files_come_from(written: tuple[Path, ModelReport], index: Index) -> None:
    card = (written[0] / "README.md").read_text("utf-8")

    assert card.startswith("---\n")
    assert metadata(index)["license"] == "apache-2.0"
    assert {"onnx", "openvino", "executorch"} <= set(metadata(index)["tags"])
    assert index.source.commit[:19] in card


# ── What is published, once more ──


AGAIN = ("--source", TINY, "--dataset", ROWS)


def as_installed(folder: Path) -> dict[str, str]:
    """An environment in which the pins are the packages that are installed here, whatever the locks say."""
    folder.mkdir()
    for file in (ROOT / "pins").iterdir():
        lines = file.read_text("utf-8").splitlines()
        (folder / file.name).write_text("\n".join(map(_as_installed, lines)) + "\n", "utf-8")
    return {**os.environ, "HUB_EXPORTER_PINS": str(folder)}


def _as_installed(line: str) -> str:
    name, equals, rest = line.partition("==")
    try:
        version = importlib.metadata.version(name).partition("+")[0]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return line
    return f"{name}=={version}{rest[len(rest.split()[0]) :]}" if equals else line


def test_a_second_export_has_nothing_to_do_until_something_moves(tmp_path: Path) -> None:
    environment, target = as_installed(tmp_path / "pins"), tmp_path / "out"
    command = ["export", TINY, "--dataset", ROWS, "--backends", "onnx", "--to", target, "--json"]
    first = hub_exporter(*command, env=environment)
    before = {path: path.read_bytes() for path in target.rglob("*") if path.is_file()}
    second = hub_exporter(*command, env=environment)
    current = hub_exporter("check", target, env=environment)
    lock = tmp_path / "pins" / "onnx.txt"
    lock.write_text(lock.read_text("utf-8").replace("onnxscript==", "onnxscript==9."), "utf-8")
    moved = hub_exporter("check", target, "--format", "json", env=environment)

    assert first.returncode == second.returncode == current.returncode == ExitCode.OK, first.stderr + second.stderr
    (report,) = msgspec.json.decode(second.stdout, type=tuple[ModelReport, ...])
    assert [result.status for result in report.results] == ["current"]
    assert {path: path.read_bytes() for path in target.rglob("*") if path.is_file()} == before
    assert moved.returncode == ExitCode.STALE
    (found,) = json.loads(moved.stdout)
    assert [reason["kind"] for reason in found["reasons"]] == ["pins"]
    assert "onnxscript" in found["reasons"][0]["text"]


def test_all_formats_come_out_byte_for_byte_the_same(written: tuple[Path, ModelReport]) -> None:
    """In other processes and folders, and with another number of threads."""
    threads = "1" if os.environ.get("OMP_NUM_THREADS") != "1" else "2"
    done = hub_exporter("reproduce", written[0], *AGAIN, env={**os.environ, "OMP_NUM_THREADS": threads})

    assert done.returncode == ExitCode.OK, done.stderr
    assert done.stderr.count("byte for byte the same") == len(FOLDERS)


def test_what_is_published_is_verified_again_and_a_wrong_file_is_found(
    written: tuple[Path, ModelReport], index: Index, tmp_path: Path
) -> None:
    target = tmp_path / "published"
    shutil.copytree(written[0], target)
    good = hub_exporter("verify", target, *AGAIN, "--only", "*.onnx.*")
    graph = target / "onnx" / "model.onnx"
    damaged = bytearray(graph.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 4096] = bytes(4096)
    graph.write_bytes(damaged)
    altered = hub_exporter("verify", target, *AGAIN, "--only", "*.onnx.*")
    text = (target / "hub-exporter.json").read_text("utf-8")
    (old,) = [a.sha256 for job in index.jobs for a in job.artifacts if a.path == "onnx/model.onnx"]
    new = folder.artifact(target, "onnx/model.onnx")
    text = re.sub(r'"blob": "[0-9a-f]{40}"', '"blob": null', text).replace(old, new.sha256)
    (target / "hub-exporter.json").write_text(text, "utf-8")
    wrong = hub_exporter("verify", target, *AGAIN, "--only", "*.onnx.*")
    rebuilt = hub_exporter("reproduce", target, *AGAIN, "--only", "*.onnx.*")

    assert good.returncode == ExitCode.OK, good.stderr
    assert altered.returncode == ExitCode.TARGET
    assert "`onnx/model.onnx`" in altered.stderr
    assert wrong.returncode == ExitCode.MISMATCH, wrong.stderr
    assert rebuilt.returncode == ExitCode.DIFFERENT
    assert re.search(r"onnx/model.onnx byte [\d,]+ \(.*bytes\), in the graph `model`", rebuilt.stderr)


# ── What goes wrong ──


def test_a_killed_export_is_a_failed_job_that_names_memory(tmp_path: Path) -> None:
    process = started(tmp_path / "out", "--backends", "onnx")
    os.kill(stage_process(process, "request.json"), signal.SIGKILL)
    output, errors = process.communicate()

    assert process.returncode == ExitCode.FAILED, errors
    (report,) = msgspec.json.decode(output, type=tuple[ModelReport, ...])
    assert report.results[0].status == "failed"
    assert "was killed, most likely for want of memory" in report.results[0].reason
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path / "out", "--backends", "onnx")
    child = stage_process(process, "request.json")
    process.send_signal(signal.SIGINT)
    process.communicate()

    assert process.returncode == ExitCode.INTERRUPTED
    assert list(tmp_path.iterdir()) == []
    assert not Path(f"/proc/{child}").exists()


def started(target: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hub_exporter", "export", str(TINY), "--dataset", str(ROWS), "--to", str(target)]
    return subprocess.Popen(
        [*command, "--json", "--no-verify", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def stage_process(parent: subprocess.Popen[bytes], sign: str) -> int:
    """The process of the export stage, once it runs."""
    for _ in range(600):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
                family = (path.parent / "stat").read_text().rsplit(")", 1)[1].split()[1]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(family) == parent.pid and any(word.endswith(f".export/{sign}".encode()) for word in words):
                return int(path.parent.name)
        time.sleep(0.05)
    raise AssertionError(f"no export stage started: {parent.communicate()}")


def test_an_unsound_checkpoint_stops_the_model_before_anything_is_traced(tmp_path: Path) -> None:
    source = shutil.copytree(TINY, tmp_path / "damaged")
    weights = load_file(source / "model.safetensors")
    weights.pop(next(name for name in weights if name.endswith("up_proj.weight")))
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})

    done = hub_exporter("export", source, "--dataset", ROWS, "--to", tmp_path / "out")

    assert done.returncode == ExitCode.SOURCE
    assert "lacks weights that LlamaForCausalLM needs" in done.stderr
    assert "trace" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_job_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    from hub_exporter import run
    from hub_exporter.recipe import requests
    from hub_exporter.records import StageRequest
    from hub_exporter.resolve import resolve

    model = resolve(requests(None, [str(TINY)], {"--to": str(tmp_path / "out")})[0])
    ended = run._run(StageRequest(stage="sample", model=model, folder=""), tmp_path / "stage", 0.0, lambda step: None)

    assert ended.answer.error is not None
    assert "took longer than 0 minutes" in ended.answer.error.message


def test_a_stage_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from hub_exporter import run

    secrets = ["HF_TOKEN", "GITHUB_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "AWS_SECRET_ACCESS_KEY", "HF_OIDC_RESOURCE"]
    for name in secrets:
        monkeypatch.setenv(name, "hf_very_secret")

    for online in (False, True):
        assert "hf_very_secret" not in run.environment(online).values()
    assert run.environment(online=False)["HF_HUB_OFFLINE"] == "1"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 700 kB, less than the weights."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_said_and_nothing_is_left(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hub_exporter import session
    from hub_exporter.report import Report
    from hub_exporter.targets import Wishes

    monkeypatch.setattr(session, "written", lambda jobs: 0)  # past the check that would have refused it
    flags = {"--to": str(small_disk / "out"), "--dataset": str(ROWS), "--backends": "onnx"}
    report = Report(quiet=True)
    prepared = session.prepare(report, [str(TINY)], None, flags)

    (work,) = session.works(prepared.plan)
    outcome = session.export_model(report, work, session.Options(Wishes(), verify=False, keep_work=False))

    assert session.exit_code([outcome]) == ExitCode.TARGET
    assert "disk is full" in str(outcome.error) or "disk" in str(outcome.error)
    assert list(small_disk.iterdir()) == []
