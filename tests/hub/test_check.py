"""`check` on repositories that were changed in one way each, and on many of them; the client is the real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_hub import HERE, TESTS, Hub, serving

from hub_exporter.records import LAYOUT_VERSION

HEAD = """
import pathlib, re, resource, time
import msgspec
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from hub_exporter import check as checking, pins, staleness
from hub_exporter.check import Asked, check
from hub_exporter.records import EngineOptions, ModelRequest, ModelSettings
api = HfApi()

def peak():  # bytes; what `getrusage` says on Linux, a process has from the one that started it
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(re.search("VmHWM:[^0-9]*([0-9]+)", status.read_text())[1])

def target(number):
    return f"lab/m{number}" if number % 5 == 4 else f"org/m{number}-exports"

def put(repo, files):
    add = [CommitOperationAdd(path, text.encode()) for path, text in files.items() if text is not None]
    gone = [CommitOperationDelete(path) for path, text in files.items() if text is None]
    api.create_commit(repo, [*add, *gone], commit_message="by hand")

def request(number, **changes):
    settings = ModelSettings(source=f"lab/m{number}", target=target(number), backends=("onnx", "openvino"),
                             variants=("fp32",), **changes)
    return Asked(target(number), ModelRequest(settings=settings), f"m{number}")

def outline(found):
    words = {f.job: "; ".join(reason.text for reason in f.reasons) or f.note for f in found}
    return {f.job: [f.status, [reason.kind for reason in f.reasons], words[f.job]] for f in found}
"""


def made(folder: Path, count: int) -> Path:
    """The files of a Hub with that many published repositories."""
    path = f"{TESTS.parent}:{TESTS}:{HERE}"
    subprocess.run(
        [sys.executable, str(HERE / "many.py"), str(folder), str(count)],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(made(tmp_path_factory.mktemp("published"), 20)) as found:
        yield found


@pytest.fixture
def published(address: str, tmp_path: Path) -> Hub:
    """Twenty published repositories; each test changes those of its own numbers."""
    hub = Hub(address, tmp_path / "home")
    hub.heal()
    hub.forget()
    return hub


def do(hub: Hub, script: str, *arguments: Any, **options: Any) -> Any:
    return hub.python(HEAD + script, *arguments, **options)


def asked_of(hub: Hub) -> list[str]:
    return [entry["path"].partition("?")[0] for entry in hub.log()]


def test_each_change_makes_the_jobs_stale_that_it_touches_and_no_other(published: Hub) -> None:
    told = do(
        published,
        """
put("lab/m1", {"README.md": "# Better words"})
put("lab/m2", {"model.safetensors": "other weights"})
put("lab/m3", {"config.json": "{}", "chat_template.jinja": "new"})
put("lab/m4", {"model.safetensors": "other weights"})      # its own repository
put(target(5), {"onnx/model.onnx": None})
put(target(6), {"openvino/export.json": "altered"})
put(target(7), {"README.md": "---\\nlicense: mit\\n---\\nby hand"})
put(target(8), {"tokenizer.json": None})
put(target(10), {"hub-exporter.json": None})
put(target(11), {"onnx/mine.txt": "foreign"})
api.delete_repo("lab/m12")
found = check([Asked(target(number)) for number in range(14) if number != 9])
tell(outline(found))
""",
    )

    current = {job: why for job, (status, _, why) in told.items() if status == "current"}
    stale = {job: (kinds, why) for job, (status, kinds, why) in told.items() if status == "stale"}
    unknown = {job: why for job, (status, _, why) in told.items() if status == "unknown"}
    both = ("onnx", "openvino")
    assert set(current) == {f"m{n}.{backend}.fp32" for n in (0, 1, 7, 11, 13) for backend in both} | {
        "m5.openvino.fp32",
        "m6.onnx.fp32",
    }
    assert "lab/m1 moved from" in current["m1.onnx.fp32"]
    assert current["m1.onnx.fp32"].endswith("what the model is made of is the same")
    assert set(stale) == {f"m{n}.{backend}.fp32" for n in (2, 3, 4, 8) for backend in both} | {
        "m5.onnx.fp32",
        "m6.openvino.fp32",
    }
    assert stale["m2.onnx.fp32"][0] == stale["m4.onnx.fp32"][0] == ["source"]
    assert stale["m2.onnx.fp32"][1].endswith("model.safetensors changed")
    assert stale["m3.onnx.fp32"][1].endswith("config.json changed, chat_template.jinja is new")
    assert stale["m5.onnx.fp32"] == (["file"], "onnx/model.onnx is missing")
    assert stale["m6.openvino.fp32"] == (["file"], "openvino/export.json was altered")
    assert stale["m8.onnx.fp32"] == (["file"], "tokenizer.json is missing")
    assert set(unknown) == {"m10-exports.*", "m12-exports.*"}
    assert "holds no exports" in unknown["m10-exports.*"]
    assert "There is no model `lab/m12`" in unknown["m12-exports.*"]
    paths = asked_of(published)
    assert max(paths.count(path) for path in set(paths) if "/resolve/" in path) == 1


def test_the_recipe_the_pins_and_the_layout(published: Hub, tmp_path: Path) -> None:
    locks = tmp_path / "pins"
    shutil.copytree(TESTS.parent / "pins", locks)
    lock = locks / "onnx.txt"
    lock.write_text(lock.read_text().replace("\nonnxruntime==", "\nonnxruntime==9."))
    same, other, pinned, layout, never = do(
        published,
        """
from hub_exporter.records import DatasetSpec
default = {"engine": EngineOptions(), "dataset": DatasetSpec(path="rajpurkar/squad")}
same = check([request(14, **default)])
other = check([request(14, **{**default, "engine": EngineOptions(opset_version=17)}),
               request(15, **{**default, "dataset": DatasetSpec(path="rajpurkar/squad", rows=9)}),
               request(16, **default, trust_remote_code=True, time_limit=7),
               request(17, **default, task="fill-mask")])
import os
os.environ["HUB_EXPORTER_PINS"] = args[0]
checking._lock.cache_clear()
pinned = check([Asked(target(14))])
del os.environ["HUB_EXPORTER_PINS"]
checking._lock.cache_clear()
staleness.LAYOUT_VERSION += 1
layout = check([Asked(target(14))])
never = check([Asked("org/never", request(14).request, "m14")])
tell([outline(found) for found in (same, other, pinned, layout, never)])
""",
        str(locks),
    )

    assert {status for status, _, _ in same.values()} == {"current"}
    stale = {job: (kinds, why) for job, (status, kinds, why) in other.items() if status == "stale"}
    assert stale == {
        "m14.onnx.fp32": (["recipe"], "engine.opset_version unset -> 17"),
        "m15.onnx.fp32": (["recipe"], "dataset.rows unset -> 9"),
        "m15.openvino.fp32": (["recipe"], "dataset.rows unset -> 9"),
        "m17.onnx.fp32": (["recipe"], "task sentence-similarity -> fill-mask"),
        "m17.openvino.fp32": (["recipe"], "task sentence-similarity -> fill-mask"),
    }
    assert pinned["m14.onnx.fp32"][:2] == ["stale", ["pins"]]
    assert "onnxruntime" in pinned["m14.onnx.fp32"][2]
    assert " -> 9." in pinned["m14.onnx.fp32"][2]
    assert pinned["m14.openvino.fp32"][0] == "current"
    assert [why[1:] for why in layout.values()] == [
        [["layout"], f"layout {LAYOUT_VERSION} -> {LAYOUT_VERSION + 1}"]
    ] * 2
    assert {tuple(why[1]) for why in never.values()} == {("unpublished",)}


def test_what_an_open_pull_request_holds_is_not_made_again(published: Hub) -> None:
    main, waiting, moved = do(
        published,
        """
import tempfile
from pathlib import Path
import made_up
from many import model_of, result_of, source_files
from hub_exporter import push
from hub_exporter.records import DatasetSpec, ModelRun
contents, folder = source_files(9), Path(tempfile.mkdtemp())
info = api.model_info("lab/m9", files_metadata=True)
files = {f.rfilename: {"size": f.size, "oid": f.blob_id} | ({"lfs": 1} if f.lfs else {}) for f in info.siblings}
model = msgspec.structs.replace(model_of("lab/m9", info.sha, files, contents), folder=str(folder / "source"))
jobs = [made_up.job(name, model, dataset=made_up.dataset(), pins=pins.digest(name)) for name in ("onnx", "openvino")]
results = tuple(map(result_of, jobs))
for path, data in contents.items():
    made_up.write(folder / "source" / path, data)
for result in results:
    for artifact in result.artifacts:
        made_up.write(folder / "work" / result.job / artifact.path, made_up.content(artifact.path))
run = ModelRun(model=model, work=str(folder / "work"), capture=made_up.capture(), results=results)
api.create_repo("org/waiting")
push.publish("org/waiting", run, create_pr=True)
asked = ModelRequest(settings=ModelSettings(source="lab/m9", target="org/waiting", backends=("onnx", "openvino"),
                     variants=("fp32",), dataset=DatasetSpec(path="rajpurkar/squad")))
main = check([Asked("org/waiting", asked, "m9")])
waiting = check([Asked("org/waiting", asked, "m9", proposed=True)])
put("lab/m9", {"model.safetensors": "other weights"})
moved = check([Asked("org/waiting", asked, "m9", proposed=True)])
tell([outline(found) for found in (main, waiting, moved)])
""",
    )

    assert {tuple(kinds) for _, kinds, _ in main.values()} == {("unpublished",)}
    assert [(status, why) for status, _, why in waiting.values()] == [
        ("current", "pull request 1 has it, and waits to be merged")
    ] * 2
    assert {status for status, _, _ in moved.values()} == {"stale"}


def test_the_command_tells_by_its_exit_code(published: Hub) -> None:
    def command(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "hub_exporter", "check", *words],
            env=published.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    published.python(HEAD + 'put("lab/m18", {"config.json": "{}"})')

    assert command("org/m16-exports")[0] == 0
    code, out = command("org/m16-exports", "org/m18-exports", "--format", "json")
    assert (code, [found["status"] for found in json.loads(out)]) == (9, ["current", "current", "stale", "stale"])
    code, out = command("org/m16-exports", "org/m18-exports", "org/nothing", "--format", "matrix")
    assert (code, [cell["job"] for cell in json.loads(out)["include"]]) == (9, ["m18.onnx.fp32", "m18.openvino.fp32"])
    assert command("org/m16-exports", "org/nothing")[0] == 8
    assert command()[0] == 2


RECIPE = """
defaults: {backends: [onnx, openvino], dataset: {path: rajpurkar/squad}}
models:
  - {source: lab/m13, target: org/m13-exports}
  - {source: lab/m7, target: org/m7-exports}
"""


def test_a_schedule_with_nothing_stale_plans_nothing_and_resolves_nothing(published: Hub, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE, "utf-8")
    output = tmp_path / "output"
    options = ["--recipe", tmp_path / "recipe.yaml", "--save", tmp_path / "plan.json", "--format", "matrix"]
    done = subprocess.run(
        [sys.executable, "-m", "hub_exporter", "plan", "--stale-only", *map(str, options)],
        env=published.environment(GITHUB_OUTPUT=str(output)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"include": []}
    assert "count<<" in output.read_text("utf-8")
    skipped = json.loads((tmp_path / "plan.json").read_text("utf-8"))["skipped"]
    assert {skip["name"]: skip["current"] for skip in skipped} == {
        f"{name}.{backend}.fp32": True for name in ("m13", "m7") for backend in ("onnx", "openvino")
    }
    assert not [path for path in asked_of(published) if path.startswith("/lab/")], "no file of a model was asked for"


def test_five_hundred_repositories(tmp_path: Path) -> None:
    """Every tenth model moved, and the Hub asks for a pause in the middle."""
    with serving(made(tmp_path / "published", 500)) as address:
        hub = Hub(address, tmp_path / "home")
        hub.python(HEAD + 'for n in range(0, 500, 10): put(f"lab/m{n}", {"README.md": "# Moved"})')
        hub.forget()
        hub.fail(
            {"path": "^/api/models/org/m2", "status": 429, "skip": 20, "count": 6, "headers": {"Retry-After": "2"}}
        )
        statuses, seconds, memory = do(
            hub,
            """
began = time.monotonic()
found = check([Asked(target(number)) for number in range(500)])
statuses = [finding.status for finding in found]
tell([statuses, time.monotonic() - began, peak()])
""",
        )
        log = hub.log()

    refused = [entry for entry in log if entry["status"] == 429]
    counts = [entry["path"].partition("?")[0] for entry in log if entry["status"] == 200]
    assert statuses == ["current"] * 1000
    assert len(refused) == 6
    assert len(log) < 1000
    assert max(map(counts.count, set(counts))) <= 2
    assert memory < 200e6
    assert 2 <= seconds < 60
