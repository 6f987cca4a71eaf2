"""The test Hub as a process that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_hub import Hub, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Hub that the tests of one module share."""
    with serving(tmp_path_factory.mktemp("hub")) as endpoint:
        yield endpoint


@pytest.fixture
def hub(served: str, tmp_path: Path) -> Hub:
    """The module's Hub without faults and with an empty log; the repositories of earlier tests stay."""
    hub = Hub(served, tmp_path / "home")
    hub.heal()
    hub.forget()
    return hub
