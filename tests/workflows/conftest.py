"""The repository as others use it, a Hub with a model, and repositories that use it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from running_hub import Hub, serving
from running_workflows import NAME, TINY, USES, Consumer, copy, tracked

from hub_exporter.tasks import TASKS


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository as `uses: org/hub-exporter@v1` gets it, but for the tests.

    act does not know `$/` yet, which names the repository that a workflow is in: it is written out.
    """
    names = [name for name in tracked() if not name.startswith(("tests/", "bench/"))]
    folder = copy(names, tmp_path_factory.mktemp("published"))
    for path in folder.glob(".github/workflows/*.yml"):
        text = USES.sub(
            lambda uses: uses["head"] + re.sub(r"^\$(/.*)", rf"{NAME}\1@v1", uses["action"]), path.read_text()
        )
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Hub with `org/tiny-chat`, for the tests of one module."""
    home = tmp_path_factory.mktemp("hub")
    with serving(home / "data") as endpoint:
        Hub(endpoint, home / "home").python(UPLOAD, "org/tiny-chat", TINY, TASKS["text-generation"].dataset.path)
        yield endpoint


UPLOAD = """
from huggingface_hub import HfApi
api = HfApi()
api.create_repo(args[0])
api.upload_folder(repo_id=args[0], folder_path=args[1])
api.create_repo("org/rows", repo_type="dataset")  # of somebody else; nobody reads a row of it
api.move_repo("org/rows", args[2], repo_type="dataset")
"""


@pytest.fixture
def hub(served: str, tmp_path: Path) -> Hub:
    """The module's Hub, with an empty log."""
    hub = Hub(served, tmp_path / "home")
    hub.forget()
    return hub


@pytest.fixture
def consumer(published: Path, hub: Hub, tmp_path: Path) -> Callable[..., Consumer]:
    """Makes a repository of these files: path -> text."""

    def make(files: Mapping[str, str]) -> Consumer:
        made = Consumer(tmp_path / "repository", published, hub)
        made.folder.mkdir()
        (tmp_path / "home").mkdir(exist_ok=True)
        made.put(files)
        for arguments in (["init", "-q", "-b", "main"], ["remote", "add", "origin", "https://github.com/org/models"]):
            subprocess.run(["git", *arguments], cwd=made.folder, check=True)
        subprocess.run(["git", "add", "-A"], cwd=made.folder, check=True)
        identity = ["-c", "user.email=a@example.org", "-c", "user.name=A"]
        subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=made.folder, check=True)
        return made

    return make
