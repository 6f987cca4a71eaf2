"""The flags of the command line as the values that a recipe would have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

from hub_exporter import strict
from hub_exporter.checks import check_components, check_level
from hub_exporter.errors import UsageError
from hub_exporter.records import DatasetSpec, EngineOptions, ModelSettings

FLAGS = {
    "--to": "target",
    "--task": "task",
    "--backends": "backends",
    "--variants": "variants",
    "--dataset": "dataset.path",
    "--dataset-name": "dataset.name",
    "--dataset-split": "dataset.split",
    "--dataset-columns": "dataset.columns",
    "--dataset-rows": "dataset.rows",
    "--dataset-revision": "dataset.revision",
    "--engine": "engine",
    "--trust-remote-code": "trust-remote-code",
    "--time-limit": "time-limit",
}
"""Flag -> key of a model in the recipe."""


def flag_values(flag: str, value: Any) -> dict[str, Any]:
    """One flag as a piece of a model's entry: `--dataset-rows`, 32 -> `{"dataset": {"rows": 32}}`.

    Lists may be one text with commas (`onnx,openvino`) or several; `--engine` and `--dataset-columns` take
    `key=value`. Raises UsageError that begins with the flag.
    """
    if FLAGS[flag] == "engine":
        engine = _engine(flag, [value] if isinstance(value, str) else value)
        strict.check(engine, EngineOptions, flag)
        check_components(engine.get("components", {}), f"{flag}: components")
        return {"engine": engine}
    outer, _, inner = FLAGS[flag].partition(".")
    if outer in ("backends", "variants"):
        value = _split(value)
    elif inner == "columns" and not isinstance(value, Mapping):
        value = dict(_pairs(flag, _split(value)))
    kind = get_type_hints(DatasetSpec if inner else ModelSettings)[(inner or outer).replace("-", "_")]
    strict.check(value, kind, flag)
    values = {outer: {inner: value} if inner else value}
    check_level(values, flag)
    return values


def _split(value: str | Sequence[str]) -> list[str]:
    items = [value] if isinstance(value, str) else value
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def _pairs(flag: str, items: Iterable[str]) -> Iterator[tuple[str, str]]:
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise UsageError(f"{flag}: expected `key=value`, got `{item}`")
        yield key.strip(), value.strip()


def _engine(flag: str, items: Iterable[str]) -> dict[str, Any]:
    """`["generation.cache=static"]` -> `{"generation": {"cache": "static"}}`; the values are YAML."""
    engine: dict[str, Any] = {}
    for key, text in _pairs(flag, items):
        *outer, last = key.split(".")
        inner: Any = engine
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{flag}: {key}: `{part}` has a value already")
        inner[last] = strict.read_yaml(text, f"{flag}: {key}")
    return engine
