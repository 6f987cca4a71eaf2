"""`hub-exporter.yaml` and the command line -> what is asked of each model, and where each value was written.

Four levels, per key: built-in < `defaults` of the recipe < entry of the model < command line. `engine` and `dataset`
merge by their own keys. The recipe says in YAML what the command line says in flags: both give the same requests.
Paths in a recipe are relative to the working directory, as on the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hub_exporter import strict
from hub_exporter.catalogue import DEFAULT_BACKENDS, RUNNERS
from hub_exporter.checks import check_applicable, check_consistent, check_level, check_name, check_runner, place_of
from hub_exporter.errors import UsageError
from hub_exporter.files import expanded
from hub_exporter.flags import FLAGS, flag_values
from hub_exporter.records import DatasetSpec, ModelRequest, ModelSettings, Recipe, Setting

BUILT_IN: dict[str, Any] = {
    "target": "./out",
    "backends": list(DEFAULT_BACKENDS),
    "variants": [],
    "trust-remote-code": False,
    "time-limit": 60,
}
"""What a model gets where nobody says otherwise; keys that are missing here stay empty."""

_DEFAULTS = {**BUILT_IN, "dataset.split": DatasetSpec().split, "dataset.rows": DatasetSpec().rows}


class RecipeFile(Recipe, frozen=True, kw_only=True):
    """A recipe as it was read, and its text as plain values: they tell an explicit `false` from nothing."""

    path: str
    written: dict[str, Any]


@dataclass(frozen=True)
class _Level:
    origin: str
    values: Mapping[str, Any]


def load_recipe(path: Path) -> RecipeFile:
    """Read and check a recipe. Raises UsageError with the place of whatever is wrong, and a guess."""
    place = str(path)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{place}: {reason}", hint="Name a recipe with `--recipe`, or a model as argument") from error
    written = strict.read_yaml(text, place)
    if written is None:
        written = {}
    recipe = strict.convert(written, Recipe, place)
    _check_recipe(recipe, written, place)
    parts = {name: getattr(recipe, name) for name in recipe.__struct_fields__}
    return RecipeFile(**parts, path=place, written=written)


def requests(
    recipe: RecipeFile | None, sources: Sequence[str] = (), flags: Mapping[str, Any] | None = None
) -> tuple[ModelRequest, ...]:
    """What is asked of each model, all levels merged, in the order of the recipe or the command line.

    `flags` has keys of `flags.FLAGS`; `None` and empty lists mean that the flag was not given. With a recipe,
    `sources` select among its models. Raises UsageError.
    """
    given = {flag: value for flag, value in (flags or {}).items() if value is not None and value not in ((), [])}
    # In the order of the table: `--dataset` starts a dataset, the flags that describe it come after.
    top = [_Level(flag, flag_values(flag, given[flag])) for flag in sorted(given, key=list(FLAGS).index)]
    lower = list(_levels(recipe)) if recipe else [(source, []) for source in sources]
    if not lower or "" in sources:
        raise UsageError("No model was named", hint="Name a folder or a Hub id, or a recipe with `--recipe`")
    made = _with_shared_targets([_request(source, [*levels, *top]) for source, levels in lower])
    if recipe and sources:
        made = _selected(made, sources, recipe.path)
    backends = tuple(dict.fromkeys(name for request in made for name in request.settings.backends))
    for request in made:
        check_applicable(request.origins, request.settings.backends, backends)
        check_consistent(request.settings.engine, request.settings.backends, request.origins)
        _check_dataset(request)
    return tuple(made)


def _check_recipe(recipe: Recipe, written: Mapping[str, Any], place: str) -> None:
    if not recipe.models:
        raise UsageError(f"{place}: models: there is no model", hint="Add `models: [{source: ./folder}]`")
    for kind, runner in recipe.runners.items():
        check_name(kind, RUNNERS, f"{place}: runners: unknown kind of runner")
        check_runner(runner, f"{place}: runners.{kind}")
    for key in ("source", "target"):
        if key in written.get("defaults", {}):
            raise UsageError(f"{place}: defaults.{key}: belongs to a model", hint="Move it to an entry of `models`")
    check_level(written.get("defaults", {}), f"{place}: defaults")
    for index, entry in enumerate(written["models"]):
        if not entry.get("source"):
            raise UsageError(f"{place}: models[{index}].source: missing", hint="Name a folder or a Hub id")
        check_level(entry, f"{place}: models[{index}]")


def _levels(recipe: RecipeFile) -> Iterator[tuple[str, list[_Level]]]:
    """Source of each model of a recipe, and what the recipe says of it, from the weakest on."""
    defaults = _Level(f"{recipe.path}: defaults", recipe.written.get("defaults", {}))
    for index, entry in enumerate(recipe.written["models"]):
        own = {key: value for key, value in entry.items() if key != "source"}
        yield entry["source"], [defaults, _Level(f"{recipe.path}: models[{index}]", own)]


def _selected(made: Sequence[ModelRequest], sources: Sequence[str], place: str) -> list[ModelRequest]:
    known = [request.settings.source for request in made]
    for source in sources:
        check_name(source, known, f"{place}: there is no model with the source")
    return [request for request in made if request.settings.source in sources]


def _request(source: str, levels: Sequence[_Level]) -> ModelRequest:
    values: dict[str, Any] = {}
    origins: dict[str, Setting] = {}
    for level in [_Level("built-in", BUILT_IN), *levels]:
        _restart_dataset(values, level.values, origins)
        _overlay(values, level.values, "", level.origin, origins)
    for key in ("backends", "variants"):
        values[key] = list(dict.fromkeys(values[key]))
    settings = strict.convert({"source": source, **values}, ModelSettings, source)
    return ModelRequest(settings=settings, origins=tuple(filter(_is_told, origins.values())))


def _restart_dataset(values: dict[str, Any], new: Mapping[str, Any], origins: dict[str, Setting]) -> None:
    """Another dataset keeps nothing but `rows` of the one that a lower level named: the rest described that one."""
    old, path = values.get("dataset"), (new.get("dataset") or {}).get("path")
    if old and path and old.get("path") != path:
        values["dataset"] = {key: value for key, value in old.items() if key == "rows"}
        for key in [key for key in origins if key.startswith("dataset.") and key != "dataset.rows"]:
            del origins[key]


def _overlay(
    values: dict[str, Any], new: Mapping[str, Any], prefix: str, origin: str, origins: dict[str, Setting]
) -> None:
    for name, value in new.items():
        key = prefix + name
        if isinstance(value, Mapping):
            if not isinstance(values.get(name), dict):
                values[name] = {}
            _overlay(values[name], value, f"{key}.", origin, origins)
            continue
        values[name] = value
        for replaced in [old for old in origins if old.startswith(f"{key}.")]:
            del origins[replaced]
        origins[key] = Setting(key=key, value=value, origin=origin)


def _is_told(setting: Setting) -> bool:
    """Whether somebody wrote it and it is not what it would be anyway; a target that was written is always told."""
    written = setting.origin != "built-in"
    return written and (setting.key == "target" or bool(setting.value != _DEFAULTS.get(setting.key)))


def _check_dataset(request: ModelRequest) -> None:
    dataset = request.settings.dataset
    if dataset is None or dataset.path:
        return
    for setting in request.origins:
        if setting.key.startswith("dataset.") and setting.key != "dataset.rows":
            raise UsageError(f"{place_of(setting)}: no dataset is named", hint="Add its `path`, or `--dataset`")


def _with_shared_targets(made: Sequence[ModelRequest]) -> list[ModelRequest]:
    """Mark the models that share a target of the command line; one that a recipe names twice is refused."""
    folders = [expanded(request.settings.target).resolve() for request in made]
    shared = {folder for folder, count in Counter(folders).items() if count > 1}
    for folder in shared:
        sharing = [request for request, own in zip(made, folders, strict=True) if own == folder]
        written = [s for request in sharing for s in request.origins if s.key == "target"]
        if any(not setting.origin.startswith("--") for setting in written):
            sources = " and ".join(f"`{request.settings.source}`" for request in sharing)
            raise UsageError(
                f"{place_of(written[-1])}: `{written[-1].value}` is the target of {sources}",
                hint="Give each model a target of its own",
            )
    return [
        msgspec.structs.replace(request, shared_target=folder in shared)
        for request, folder in zip(made, folders, strict=True)
    ]
