"""YAML and values from people, checked against a record; every refusal names the place, and guesses what was meant.

hub-exporter.yaml: models[2].backend: unknown key, did you mean `backends`?
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec
import yaml

from hub_exporter.errors import UsageError

_WORDS = {bool: "`true` or `false`", int: "a whole number", float: "a number", str: "text"}


def guess(word: str, known: Iterable[str]) -> str:
    """`, did you mean `x`?` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f", did you mean `{near[0]}`?" if near else ""


def inside(place: str, key: str) -> str:
    """The place of a key within a place: `hub-exporter.yaml`, `models[0]` -> `hub-exporter.yaml: models[0]`."""
    return f"{place}.{key}" if ": " in place else f"{place}: {key}"


def read_yaml(text: str, place: str) -> Any:
    """The YAML document as plain values. Raises UsageError with line and column, for a key written twice too."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place}:{mark.line + 1}:{mark.column + 1}" if mark else place
        raise UsageError(f"{where}: {error.problem or 'not valid YAML'}", hint="Correct the YAML there") from error
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split()) or "nested too deeply"
        raise UsageError(f"{place}: not valid YAML: {reason}") from error


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key written twice: the first one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                if key_node.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key `{key_node.value}` is written twice", problem_mark=key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def check(value: Any, kind: Any, place: str) -> None:
    """Check `value` against a record or another type, to the leaves. Raises UsageError for the first that is wrong."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        _check_record(value, kind, place)
    elif origin in (typing.Union, types.UnionType):
        if value is not None:
            check(value, _meant(value, [option for option in arguments if option is not types.NoneType]), place)
    elif origin is dict:
        for key, item in _mapping(value, place).items():
            check(item, arguments[1], inside(place, key))
    elif origin is tuple:
        for index, item in enumerate(_list(value, place)):
            check(item, arguments[0], f"{place}[{index}]")
    else:
        _check_leaf(value, kind, place)


def _meant(value: Any, options: list[Any]) -> Any:
    """The option that a value of this form is meant as: a record for keys, a tuple for a list, else the first."""
    records = [option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)]
    lists = [option for option in options if typing.get_origin(option) is tuple]
    return next(
        iter(records if isinstance(value, dict) else lists if isinstance(value, list | tuple) else ()), options[0]
    )


def convert(value: Any, kind: type[_R], place: str) -> _R:
    """`value` as a record, after `check`."""
    check(value, kind, place)
    return msgspec.convert(value, kind)


_R = typing.TypeVar("_R", bound=msgspec.Struct)


def _check_record(value: Any, kind: type[msgspec.Struct], place: str) -> None:
    hints = typing.get_type_hints(kind)
    fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}
    for key, item in _mapping(value, place).items():
        if key not in fields:
            known = ", ".join(f"`{name}`" for name in fields)
            raise UsageError(f"{inside(place, key)}: unknown key{guess(key, fields)}", hint=f"Known here: {known}")
        check(item, fields[key], inside(place, key))


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: expected keys and values, got {_got(value)}")
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{place}: expected a name as key, got {_got(key)}", hint=f'Put it in quotes: `"{key}":`')
    return value


def _list(value: Any, place: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        hint = f"Write `[{value}]`" if isinstance(value, str | int) else None
        raise UsageError(f"{place}: expected a list, got {_got(value)}", hint=hint)
    return value


def _check_leaf(value: Any, kind: Any, place: str) -> None:
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            expected = "one of " + ", ".join(f"`{choice}`" for choice in choices)
            raise UsageError(f"{place}: expected {expected}, got {_got(value)}{guess(str(value), choices)}") from error
        quotable = kind is str and value is not None and not isinstance(value, dict | list)
        hint = f'Put it in quotes: `"{value}"`' if quotable else None
        raise UsageError(f"{place}: expected {_WORDS.get(kind, kind)}, got {_got(value)}", hint=hint) from error


def _got(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"the text `{value}`"
    if isinstance(value, int | float):
        return f"the number `{value}`"
    if isinstance(value, dict):
        return "keys and values"
    return "a list" if isinstance(value, list | tuple) else f"`{value}`"
