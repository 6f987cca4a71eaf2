"""What the tests of one module share: a Hub, and the scripts for Node beside their packages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import client_environments
import pytest
from running_hub import Hub, serving


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("clients")
    (root / "home").mkdir()
    with serving(root / "hub") as endpoint:
        yield Hub(endpoint, root / "home")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts for Node, where Node finds the packages that they import."""
    packages = client_environments.node_modules()
    folder = tmp_path_factory.mktemp("node") / "scripts"
    shutil.copytree(client_environments.NODE, folder)
    (folder / "node_modules").symlink_to(packages)
    return folder
