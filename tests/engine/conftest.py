"""The engine tests share models and exports within a worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pipeline import Subject, subject

# torch logs a warning with the wrong number of arguments when it loads a `.pt2`; pytest makes an error of that.
logging.getLogger("torch._export.serde.serialize").addFilter(lambda record: False)


@pytest.fixture(scope="session")
def subject_named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Subject]:
    """Gives a model of the zoo, made on first use."""
    root = tmp_path_factory.mktemp("zoo")
    return lambda name: subject(name, root)
