"""The locked packages are known to install and to work together: an environment is really made from each lock, and the
tiny chat model is exported in it.

One thing may differ from the lock: the build of torch. The pinned version is what runs, as the CPU build that a wheel
folder or download.pytorch.org has (`2.13.0+cpu`), where PyPI's wheels for Linux carry CUDA.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hub_exporter import pins
from hub_exporter.catalogue import DEFAULT_BACKENDS
from hub_exporter.errors import ExitCode
from hub_exporter.records import JobResult, ModelReport, Toolchain

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache without environments, removed at once: each holds a gigabyte of links into uv's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def jobs(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobResult]:
    """Backend -> its result, of one run of the command."""
    target = tmp_path_factory.mktemp("locked") / "tiny-chat"
    words = ["export", "examples/tiny-chat", "--dataset", "examples/rows.jsonl", "--to", str(target), "--isolate"]
    done = subprocess.run(
        [sys.executable, "-m", "hub_exporter", *words, "--backends", ",".join(DEFAULT_BACKENDS), "--json"],
        cwd=ROOT,
        env={**os.environ, "HUB_EXPORTER_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.OK, done.stderr
    (report,) = msgspec.json.decode(done.stdout, type=tuple[ModelReport, ...])
    return {result.backend: result for result in report.results}


@pytest.fixture(params=DEFAULT_BACKENDS)
def job(request: pytest.FixtureRequest, jobs: dict[str, JobResult]) -> JobResult:
    return jobs[request.param]


def toolchain(job: JobResult) -> Toolchain:
    assert job.toolchain is not None
    return job.toolchain


def test_an_export_in_the_locked_environment_reaches_parity(job: JobResult) -> None:
    assert job.verification is not None
    assert (job.status, job.verification.level) == ("passed", "parity")


def test_it_ran_with_every_locked_version(job: JobResult) -> None:
    made = toolchain(job)

    assert made.isolated
    assert made.pins == pins.digest(job.backend)
    assert made.locked.items() >= pins.direct(job.backend).items()
    assert {name: version.partition("+")[0] for name, version in made.ran.items()} == made.locked


def test_only_torch_may_be_another_build(job: JobResult) -> None:
    made = toolchain(job)
    builds = {name: version for name, version in made.ran.items() if version != made.locked[name]}

    assert set(builds) <= {"torch"}
    assert all(version.endswith("+cpu") for version in builds.values())


def test_the_stages_themselves_ran_there(job: JobResult) -> None:
    """What the export stage saw: nothing of the environment that the tests run in."""
    assert job.export is not None
    assert job.export.versions.keys() <= pins.locked(job.backend).keys()
    others = {"openvino", "executorch", "onnxruntime"} - pins.locked(job.backend).keys()
    assert others
    assert not others & job.export.versions.keys()


def test_each_backend_has_an_environment_of_its_own(jobs: dict[str, JobResult], cache: Path) -> None:
    environments = [path for path in (cache / "environments").iterdir() if path.is_dir()]

    assert len(environments) == len(DEFAULT_BACKENDS)
    assert len({toolchain(job).pins for job in jobs.values()}) == len(DEFAULT_BACKENDS)
