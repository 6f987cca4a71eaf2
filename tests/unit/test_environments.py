"""Environments made from pins: once, whole or not at all, and with nothing of the user's in them.

Here a backend's pins name one package, which lies in a folder of wheels: no network, and half a second each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import made_up
import pytest

import hub_exporter
from hub_exporter import environments, installer, pins, run
from hub_exporter.environments import CURRENT, Environment
from hub_exporter.errors import HubExporterError
from hub_exporter.plan import make_plan
from hub_exporter.records import (
    Event,
    ModelRequest,
    ModelRun,
    ModelSettings,
    StageAnswer,
    StageError,
    StageRequest,
    Toolchain,
)
from hub_exporter.run import Ended

Wheel = Callable[[str, str], None]


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """Writes a wheel of one module into the folder of wheels."""

    def write(name: str, version: str) -> None:
        folder = tmp_path / "wheels"
        folder.mkdir(exist_ok=True)
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}.py", f"version = {version!r}\n")
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")

    return write


@pytest.fixture
def own_pins(tmp_path: Path, wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pins of two backends, the wheels that they name, and an empty cache."""
    folder = tmp_path / "own"
    folder.mkdir()
    for backend, version in (("onnx", "1.0"), ("openvino", "2.0")):
        wheel("thing", version)
        (folder / f"{backend}.in").write_text(f"thing=={version}\n", "utf-8")
        (folder / f"{backend}.txt").write_text(f"thing=={version}\n", "utf-8")
    for name in (*installer.AS_IN_PIP, *installer.DECISIVE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("HUB_EXPORTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HUB_EXPORTER_PINS", str(folder))
    return folder


def made(tmp_path: Path) -> list[str]:
    """Names of what is in the cache, but for locks."""
    return sorted(path.name for path in (tmp_path / "cache/environments").iterdir() if path.suffix != ".lock")


def said(environment: Environment, program: str, **variables: str) -> str:
    """What a program prints in an environment."""
    command = [*environment.command(), "-c", program]
    env = environment.variables({**os.environ, **variables})
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_an_environment_is_made_from_the_pins_of_its_backend(own_pins: Path, tmp_path: Path) -> None:
    link = environments.linked(tmp_path)
    found = {name: environments.isolated(name, link) for name in ("onnx", "openvino")}

    assert {name: one.versions() for name, one in found.items()} == {
        "onnx": {"thing": "1.0"},
        "openvino": {"thing": "2.0"},
    }
    assert said(found["onnx"], "import thing; print(thing.version)") == "1.0"
    assert len(made(tmp_path)) == 2


def test_it_is_made_once(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = environments.isolated("onnx", tmp_path)
    monkeypatch.setattr(installer, "find", lambda: pytest.fail("uv is not asked again"))

    assert environments.isolated("onnx", tmp_path) == first


def test_jobs_that_start_together_make_it_once(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, make = [], installer.make_environment
    monkeypatch.setattr(installer, "make_environment", lambda *given: (calls.append(given), make(*given)))
    found: list[Environment] = []
    threads = [threading.Thread(target=lambda: found.append(environments.isolated("onnx", tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(calls), len(found), len(set(found))) == (1, 4, 1)


def test_one_that_was_killed_half_made_is_not_taken_for_ready(own_pins: Path, tmp_path: Path) -> None:
    program = (
        "import time; from pathlib import Path; from hub_exporter import environments, installer\n"
        "def half(folder, direct, lock, cuda):\n"
        "    (folder / 'bin').mkdir(parents=True); (folder / 'bin/python').touch(); print('half', flush=True)\n"
        "    time.sleep(60)\n"
        "installer.make_environment = half\n"
        f"environments.isolated('onnx', Path({str(tmp_path)!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [name.startswith(".making-") for name in made(tmp_path)] == [True]

    assert environments.isolated("onnx", tmp_path).versions() == {"thing": "1.0"}
    assert [name.startswith(".making-") for name in made(tmp_path)] == [False], "and what it left is gone"


def test_one_whose_python_was_removed_is_made_again(own_pins: Path, tmp_path: Path) -> None:
    python = Path(environments.isolated("onnx", tmp_path).python)
    python.unlink()
    python.symlink_to(tmp_path / "gone")

    assert said(environments.isolated("onnx", environments.linked(tmp_path)), "import thing; print('well')") == "well"


def test_its_name_says_what_decides_its_content(own_pins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {environments.name_of("onnx", cuda=False), environments.name_of("openvino", cuda=False)}
    monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
    names.add(environments.name_of("onnx", cuda=False))
    (own_pins / "onnx.txt").write_text("thing==1.0\ndeeper==1.0\n", "utf-8")
    names.add(environments.name_of("onnx", cuda=False))

    assert len(names) == 4
    assert not [name for name in names if "cu130" in name], "an index address may hold a password"


def test_it_runs_this_hub_exporter_and_nothing_that_lies_beside_it(
    own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environments.isolated("onnx", environments.linked(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "here/thing.py").write_text("version = 'of the user'\n", "utf-8")
    monkeypatch.chdir(tmp_path / "here")
    program = "import hub_exporter, sys, thing; print(hub_exporter.__file__, thing.version, *sys.path)"

    file, version, *paths = said(environment, program, PYTHONPATH=str(tmp_path / "here")).split()

    assert (Path(file).resolve(), version) == (Path(hub_exporter.__file__).resolve(), "1.0")
    assert str(Path(hub_exporter.__file__).parents[1]) not in paths
    assert [path.name for path in Path(paths[0]).iterdir()] == ["hub_exporter"]


def test_this_python_is_used_as_it_is() -> None:
    assert CURRENT.command() == [sys.executable]
    assert CURRENT.variables({"PYTHONPATH": "x"}) == {"PYTHONPATH": "x"}
    assert {"msgspec", "pytest"} <= CURRENT.versions().keys()


def test_jobs_are_isolated_on_request_and_always_on_github() -> None:
    assert not environments.wanted(False, {})
    assert environments.wanted(True, {})
    assert environments.wanted(False, {"GITHUB_ACTIONS": "true"})


# ── Where packages come from ──


@pytest.mark.parametrize(
    ("environ", "cuda", "expected"),
    [
        ({}, False, {"UV_TORCH_BACKEND": "cpu"}),
        ({}, True, {}),
        ({"UV_TORCH_BACKEND": "cu130"}, False, {"UV_TORCH_BACKEND": "cu130"}),
        ({"UV_FIND_LINKS": "/wheels"}, False, {"UV_FIND_LINKS": "/wheels"}),
        ({"UV_FIND_LINKS": ""}, False, {"UV_TORCH_BACKEND": "cpu"}),
        ({"PIP_INDEX_URL": "https://mirror/simple"}, False, {"UV_DEFAULT_INDEX": "https://mirror/simple"}),
        ({"PIP_FIND_LINKS": "/a", "UV_FIND_LINKS": "/b"}, False, {"UV_FIND_LINKS": "/b"}),
    ],
)
def test_settings_of_uv_before_those_of_pip_before_cpu_builds(
    environ: dict[str, str], cuda: bool, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")

    assert installer.settings(cuda, environ) == expected


def test_folders_are_named_from_here(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv runs elsewhere, where no settings of a project apply."""
    monkeypatch.chdir(tmp_path)
    for name, folder in (("UV_FIND_LINKS", "wheels"), ("HUB_EXPORTER_CACHE", "cache"), ("HUB_EXPORTER_PINS", "own")):
        monkeypatch.setenv(name, folder)

    assert environments.isolated("onnx", tmp_path).versions() == {"thing": "1.0"}
    assert Path(environments.isolated("onnx", tmp_path).python).is_relative_to(tmp_path / "cache")


def test_other_systems_get_their_builds_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert installer.settings(False, {}) == {}


def test_uv_gets_its_own_credentials_and_no_other_secret(
    own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "uv-spy"
    spy.write_text("#!/bin/sh\nenv\n", "utf-8")
    spy.chmod(0o755)
    monkeypatch.setattr(installer, "find", lambda: str(spy))
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    monkeypatch.setenv("UV_INDEX_OURS_PASSWORD", "for the index")

    seen = installer._uv(["x"], {})

    assert "hf_very_secret" not in seen
    assert "UV_INDEX_OURS_PASSWORD=for the index" in seen


def test_a_stage_gets_no_setting_of_an_installer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://user:word@mirror/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://user:word@mirror/simple")

    assert not [value for value in run.environment(online=True).values() if "user:word" in value]


def test_the_newest_release_is_asked_of_the_users_index(own_pins: Path) -> None:
    assert installer.newest(["thing"]) == {"thing": "2.0"}


# ── What goes wrong ──


def failure(backend: str, link: Path) -> HubExporterError:
    with pytest.raises(HubExporterError) as caught:
        environments.isolated(backend, link)
    assert caught.value.hint
    return caught.value


def test_a_package_that_nobody_has_is_said(own_pins: Path, tmp_path: Path) -> None:
    (own_pins / "onnx.in").write_text("thing==3.0\n", "utf-8")

    assert "environment of `onnx` cannot be made. The packages cannot be found" in str(failure("onnx", tmp_path))
    assert made(tmp_path) == [], "nothing half-made stays"


def test_an_index_that_does_not_answer_is_said(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    assert "The package index cannot be reached" in str(failure("onnx", tmp_path))


def test_a_missing_uv_is_said(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uv

    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(uv, "find_uv_bin", nowhere)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "uv cannot be found" in str(failure("onnx", tmp_path))


def test_a_cache_that_cannot_be_written_is_said(
    own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HUB_EXPORTER_CACHE", str(tmp_path / "file"))

    assert "HUB_EXPORTER_CACHE" in str(failure("onnx", tmp_path).hint)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("error: Failed to install: a.whl\n  cause: No space left on device (os error 28)\n", "The disk is full"),
        ("error: No solution found\n\nhint: the network was disabled\n", "uv was told to work offline"),
        ("error: something new\n", "uv failed: something new"),
        ("", "uv failed: it said nothing"),
    ],
)
def test_what_uv_says_becomes_one_line_and_a_hint(words: str, message: str) -> None:
    error = installer.explained(words)

    assert message in str(error)
    assert error.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_said(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    monkeypatch.setenv("HUB_EXPORTER_CACHE", str(disk))
    try:
        error = failure("onnx", tmp_path)
    finally:
        subprocess.run(["umount", disk], check=True)

    assert "The disk is full" in str(error)
    assert "HUB_EXPORTER_CACHE" in str(error.hint)


# ── What ran ──


def test_the_toolchain_says_what_was_locked_and_what_ran(own_pins: Path, tmp_path: Path) -> None:
    environment = environments.isolated("onnx", environments.linked(tmp_path))

    found = environments.toolchain("onnx", environment)

    assert found == Toolchain(
        pins=pins.digest("onnx"), isolated=True, tested={}, locked={"thing": "1.0"}, ran={"thing": "1.0"}
    )
    assert not environments.toolchain("onnx", CURRENT).isolated


def test_another_version_is_drift_and_another_build_is_not() -> None:
    locked = {"torch": "2.13.0", "onnx": "1.23.2", "openvino": "2026.3.1"}
    found = Toolchain(pins="", isolated=False, tested={}, locked=locked, ran={"torch": "2.13.0+cpu", "onnx": "1.21.0"})

    assert list(environments.drift(found)) == ["onnx 1.21.0 instead of 1.23.2", "no openvino instead of 2026.3.1"]


# ── A run ──


def test_a_job_without_its_environment_fails_and_the_others_go_on(
    own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows and the reference are then made in the first environment that there is."""
    (own_pins / "onnx.in").write_text("thing==3.0\n", "utf-8")
    pythons, result, events = run_of(["onnx", "openvino", "dynamo"], tmp_path, monkeypatch)

    openvino = environments.isolated("openvino", tmp_path).python
    assert [(one.backend, one.status) for one in result.results] == [
        ("onnx", "failed"),
        ("openvino", "failed"),
        ("dynamo", "failed"),
    ]
    lost, ran, unpinned = result.results
    assert "environment of `onnx` cannot be made" in lost.reason
    assert lost.toolchain is None
    assert ran.reason == "it was not to run"
    assert ran.toolchain == environments.toolchain("openvino", environments.isolated("openvino", tmp_path))
    assert "no pins for `dynamo`" in unpinned.reason
    assert pythons == {"sample": openvino, "reference": openvino, "export": openvino}
    assert [event.text for event in events if event.text.startswith("environment")] == [
        "environment of onnx",
        "environment of openvino",
        "environment of dynamo",
    ]


def test_without_any_environment_no_stage_runs(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pythons, result, _ = run_of(["dynamo"], tmp_path, monkeypatch)

    assert (pythons, result.capture, [one.status for one in result.results]) == ({}, None, ["failed"])


def test_drift_is_told_once_for_each_backend(own_pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, result, events = run_of(["onnx", "openvino"], tmp_path, monkeypatch, isolate=False)

    assert [event.text for event in events if event.kind == "note"] == [
        "onnx runs with no thing instead of 1.0; `--isolate` runs it as locked",
        "openvino runs with no thing instead of 2.0; `--isolate` runs it as locked",
    ]
    assert [one.toolchain and one.toolchain.isolated for one in result.results] == [False, False]


def run_of(
    backends: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolate: bool = True
) -> tuple[dict[str, str], ModelRun, list[Event]]:
    """A run of jobs whose stages only say which Python they were started with: the last one for each stage."""
    pythons: dict[str, str] = {}
    events: list[Event] = []

    def stage(request: StageRequest, folder: Path, limit: float, say: object, where: Environment, **_: object) -> Ended:
        pythons[request.stage] = where.python
        error = StageError(kind="HubExporterError", message="it was not to run") if request.stage == "export" else None
        return Ended(StageAnswer(capture=made_up.capture(), error=error), 0)

    monkeypatch.setattr(run, "_run", stage)
    request = ModelRequest(
        settings=ModelSettings(source="x", target="./out", backends=tuple(backends), variants=("fp32",))
    )
    jobs = make_plan([request], [made_up.encoder()], machine="linux-cpu").jobs
    work = tmp_path / "work"
    return pythons, run.run_model(jobs[0].model, jobs, work, events.append, isolate=isolate), events
