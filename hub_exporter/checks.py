"""What a type cannot say of the settings of a model: unknown names, options that mean nothing, contradictions.

`place` is where something was written, as it appears in front of a message: `hub-exporter.yaml: models[0]`, `--engine`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hub_exporter.catalogue import AXES, BACKENDS, VARIANTS, any_takes, takers
from hub_exporter.errors import UsageError
from hub_exporter.records import EngineOptions, Runner, Setting
from hub_exporter.strict import check, guess, inside
from hub_exporter.tasks import TASKS

MINIMUM_ROWS = 8
"""Of a dataset: two to capture, six held out."""


def check_level(values: Mapping[str, Any], place: str) -> None:
    """Check one level of settings, which has the types of `ModelSettings` already. Raises UsageError."""

    def at(key: str) -> str:
        return place if place.startswith("--") else inside(place, key)  # a flag names its key already

    for key, known, noun in (("backends", BACKENDS, "backend"), ("variants", VARIANTS, "variant")):
        if key in values and not values[key]:
            raise UsageError(f"{at(key)}: names no {noun}")
        for name in values.get(key, ()):
            check_name(name, known, f"{at(key)}: unknown {noun}")
    if not values.get("target", "."):
        raise UsageError(f"{at('target')}: names no folder")
    if values.get("task"):
        check_name(values["task"], TASKS, f"{at('task')}: unknown task")
    check_components((values.get("engine") or {}).get("components", {}), at("engine.components"))
    rows = (values.get("dataset") or {}).get("rows", MINIMUM_ROWS)
    if rows < MINIMUM_ROWS:
        raise UsageError(f"{at('dataset.rows')}: at least {MINIMUM_ROWS} are needed, got {rows}")
    minutes = values.get("time-limit")
    if minutes is not None and minutes < 1:
        raise UsageError(f"{at('time-limit')}: at least 1 minute, got {minutes}")


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Raise UsageError with a guess when `name` is not `known`."""
    names = list(known)
    if name not in names:
        raise UsageError(f"{what} `{name}`{guess(name, names)}", hint=f"Known: {_listed(names)}")


def check_runner(runner: str | tuple[str, ...] | Runner, place: str) -> None:
    """Raise UsageError for a runner that nothing names, or that has less than nothing."""
    label = runner.label if isinstance(runner, Runner) else runner
    named = bool(label) and "" not in ((label,) if isinstance(label, str) else label)
    if not named and not (isinstance(runner, Runner) and runner.group and not label):
        raise UsageError(f"{place}: names no label", hint="Write the label of a runner, or `{label: ..., memory: 64}`")
    for key in ("memory", "disk") if isinstance(runner, Runner) else ():
        size = getattr(runner, key)
        if size is not None and not 0 < size < math.inf:
            raise UsageError(f"{inside(place, key)}: a runner has more than 0 GB, got {size:g}")


def check_components(components: Mapping[str, Any], place: str) -> None:
    """Check the options of each component as `EngineOptions`. Raises UsageError at the first that is none."""
    for name, options in components.items():
        check(options, EngineOptions, inside(place, name))
        if "components" in options:
            raise UsageError(f"{inside(inside(place, name), 'components')}: a component has no components")


def check_applicable(origins: Sequence[Setting], backends: Sequence[str], all_backends: Sequence[str]) -> None:
    """Refuse an engine option that no backend asked for takes.

    One of the recipe's `defaults` may be meant for other models: it is held against the backends of all of them.
    """
    for setting in origins:
        if not setting.key.startswith("engine.") or setting.value is None:
            continue
        parts = setting.key.split(".")
        option = parts[3] if parts[1] == "components" else parts[1]
        asked = all_backends if setting.origin.endswith(": defaults") else backends
        if not any_takes(option, asked):
            raise UsageError(
                f"{place_of(setting)}: means nothing to {_listed(asked)}",
                hint=f"It is for {_listed(takers(option))}: leave it out, or add one of them to the backends",
            )


def check_consistent(engine: EngineOptions, backends: Sequence[str], origins: Sequence[Setting]) -> None:
    """Refuse options that contradict each other, in `engine` and in each of its components."""
    common = msgspec.to_builtins(engine)
    components = common.pop("components")
    for prefix, own in {"engine": {}, **{f"engine.components.{name}": own for name, own in components.items()}}.items():
        merged = msgspec.convert(_overlaid(common, own), EngineOptions)
        for key, problem in _contradictions(merged, backends):
            written = [s for stem in (prefix, "engine") for s in origins if f"{s.key}.".startswith(f"{stem}.{key}.")]
            place = place_of(written[0]) if written else f"{prefix}.{key}"  # an empty `{}` was written nowhere
            raise UsageError(f"{place}: {problem}")


def place_of(setting: Setting) -> str:
    """Where a value was written, down to its key: `hub-exporter.yaml: models[0].engine.optimize`."""
    if setting.origin == "--engine":
        return inside(setting.origin, setting.key.removeprefix("engine."))
    return setting.origin if setting.origin.startswith("--") else inside(setting.origin, setting.key)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _overlaid(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**common, **own}
    nested = {key: value for key, value in common.items() if isinstance(value, dict) and key in own}
    return merged | {key: _overlaid(value, own[key]) for key, value in nested.items()}


def _contradictions(engine: EngineOptions, backends: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Key below `engine` and what is wrong with it."""
    if engine.ort_fusions and engine.optimize is False:
        yield "ort_fusions", "the fusions need `optimize: true`"
    if engine.opset_version is not None and engine.opset_version < 1:
        yield "opset_version", f"must be at least 1, got {engine.opset_version}"
    length = engine.generation.max_cache_len
    if length is not None and length < 1:
        yield "generation.max_cache_len", f"must be at least 1, got {length}"
    executorch = any(BACKENDS[name].format == "executorch" for name in backends)
    if length is not None and engine.generation.cache != "static" and not executorch:
        yield (
            "generation.max_cache_len",
            f"only a static cache has a length on {_listed(backends)}: add `cache: static`",
        )
    yield from _contradictory_bounds(engine)


def _contradictory_bounds(engine: EngineOptions) -> Iterator[tuple[str, str]]:
    for axis, bounds in engine.dynamic_shapes.items():
        key, low, high = f"dynamic_shapes.{axis}", bounds.min, bounds.max
        if engine.dynamic is False and (low, high) != (None, None):
            yield key, "with `dynamic: false` there is no axis to bound"
        if axis not in AXES:
            yield key, f"unknown axis{guess(axis, AXES)} (known: {_listed(AXES)})"
        if any(size is not None and size < 1 for size in (low, high)):
            yield key, "an axis is at least 1 long"
        if low is not None and high is not None and low > high:
            yield key, f"`min` ({low}) is larger than `max` ({high})"
