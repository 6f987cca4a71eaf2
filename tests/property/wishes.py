"""Strategies for what a user may ask for, as a recipe would say it and as flags would."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import strategies as st

from hub_exporter.catalogue import AXES, BACKENDS, VARIANTS
from hub_exporter.tasks import TASKS

words = st.text("abcdefghij-_0123456789", min_size=1, max_size=8).filter(lambda word: word[0].isalpha())


def some(names: Any) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(list(names)), min_size=1, max_size=4, unique=True)


bounds = st.tuples(st.integers(1, 9), st.integers(9, 99)).map(lambda pair: {"min": pair[0], "max": pair[1]})

engines = st.fixed_dictionaries(
    {},
    optional={
        "prefer_deferred_runtime_asserts_over_guards": st.booleans(),
        "strict": st.booleans(),
        "attention": st.sampled_from(["sdpa", "eager"]),
        "multi_token_decode": st.booleans(),
        "separate_encoders": st.booleans(),
        "generation": st.fixed_dictionaries(
            {"cache": st.just("static")}, optional={"max_cache_len": st.integers(1, 99)}
        ),
        "dynamic_shapes": st.dictionaries(st.sampled_from(AXES), bounds, max_size=2),
    },
)
"""Options that every backend takes."""

datasets = st.fixed_dictionaries(
    {"path": words},
    optional={
        "name": words,
        "split": words,
        "columns": st.dictionaries(words, words, min_size=1, max_size=2),
        "rows": st.integers(8, 40),
        "revision": words,
    },
)

settings = st.fixed_dictionaries(
    {},
    optional={
        "task": st.sampled_from(list(TASKS)),
        "backends": some(BACKENDS),
        "variants": some(VARIANTS),
        "dataset": datasets,
        "engine": engines,
        "trust-remote-code": st.booleans(),
        "time-limit": st.integers(1, 600),
    },
)
"""One level of settings; the target is left to each test."""


def as_flags(wishes: dict[str, Any]) -> dict[str, Any]:
    """The flags that say what a level of a recipe says."""
    flags = {f"--{key}": value for key, value in wishes.items() if key not in ("dataset", "engine", "target")}
    if "target" in wishes:
        flags["--to"] = wishes["target"]
    if "engine" in wishes:
        flags["--engine"] = [
            f"{key}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"
            for key, value in wishes["engine"].items()
        ]
    for key, value in wishes.get("dataset", {}).items():
        flags["--dataset" if key == "path" else f"--dataset-{key}"] = value
    return flags
