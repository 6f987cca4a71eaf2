"""The JSON Schema of `hub-exporter.yaml`, made from the records: editors complete and check a recipe with it."""

from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import msgspec

from hub_exporter import records
from hub_exporter.catalogue import BACKENDS, RUNNERS, VARIANTS
from hub_exporter.tasks import TASKS

FILE = "recipe.schema.json"
"""Its name beside this module."""


def schema() -> dict[str, Any]:
    """The schema of `Recipe`; the text under each field of the records is its description."""
    made = msgspec.json.schema(records.Recipe)
    documented = _documentation()
    for name, definition in made["$defs"].items():
        fields = {field.name: field.encode_name for field in msgspec.structs.fields(getattr(records, name))}
        for field, text in documented[name].items():
            definition["properties"][fields[field]]["description"] = text
    model = made["$defs"]["ModelSettings"]["properties"]
    model["backends"]["items"]["enum"] = list(BACKENDS)
    model["variants"]["items"]["enum"] = list(VARIANTS)
    model["task"]["anyOf"][0] = {"enum": list(TASKS)}
    made["$defs"]["Recipe"]["properties"]["runners"]["propertyNames"] = {"enum": list(RUNNERS)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hub-exporter recipe",
        "description": "What to export: models, backends and options",
        **made,
    }


def text() -> str:
    """The schema as JSON, as it lies in `FILE`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _documentation() -> dict[str, dict[str, str]]:
    """Class -> field -> the text under it in `records.py`."""
    classes = [node for node in ast.parse(inspect.getsource(records)).body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_texts(node)) for node in classes}


def _texts(node: ast.ClassDef) -> list[tuple[str, str]]:
    return [
        (field.target.id, inspect.cleandoc(text.value.value))
        for field, text in zip(node.body, node.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    ]
