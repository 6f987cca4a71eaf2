"""The metadata block of somebody else's README.md: read, and added to as text, so that every byte of it stays. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

_FRONT_MATTER = re.compile(
    r"\A\ufeff?\s*---[ \t]*\r?\n(?P<block>.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE
)


def line_end(text: str) -> str:
    """What ends the lines of `text`."""
    return "\r\n" if "\r\n" in text else "\n"


def split(text: str) -> tuple[str, str]:
    """The metadata block with its fences, empty where there is none, and the text after it."""
    found = _FRONT_MATTER.match(text)
    return (found.group(), text[found.end() :]) if found else ("", text)


def parse(head: str) -> dict[str, Any] | None:
    """The metadata of a block; `None` where it is not a YAML mapping."""
    found = _FRONT_MATTER.match(head)
    try:
        values = yaml.safe_load(found.group("block")) if found else {}
    except yaml.YAMLError:
        return None
    return {} if values is None else values if isinstance(values, dict) else None


def dump(entries: dict[str, Any]) -> str:
    """A whole new block."""
    return f"---\n{_yaml(entries)}---\n"


def add(head: str, missing: dict[str, Any], tags: Sequence[str]) -> str:
    """The block with keys that it does not have and tags that it lacks; as it was where that cannot be done safely."""
    found, theirs = _FRONT_MATTER.match(head), parse(head)
    if found is None or theirs is None:
        return head
    known = _listed(theirs.get("tags"))
    lacking = [tag for tag in tags if tag not in known]
    expected = {**theirs, **missing}
    block = found.group("block")
    if lacking:
        expected["tags"] = [*known, *lacking]
        block = _with_tags(block, lacking, line_end(head)) if "tags" in theirs else block
        missing = missing if "tags" in theirs else {**missing, "tags": lacking}
    if missing:
        added = _yaml(missing).replace("\n", line_end(head))
        block = f"{block}{line_end(head)}{added.removesuffix(line_end(head))}" if block else added
    start, end = found.span("block")
    made = head[:start] + block + head[end:]
    return made if parse(made) == expected else head


def replaced(head: str, key: str, value: str) -> str:
    """The block with another value for a key of ours, a text on one line; as it was where it does not have the key."""
    line = _yaml({key: value}).rstrip("\n")
    return re.sub(rf"^{re.escape(key)}:[^\r\n]*", lambda found: line, head, count=1, flags=re.MULTILINE)


def _yaml(entries: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def _listed(tags: Any) -> list[Any]:
    return list(tags) if isinstance(tags, list) else [tags] if tags else []


def _with_tags(block: str, lacking: Sequence[str], line: str) -> str:
    """Put tags behind those that are there, in the style that they are written in."""
    root: Any = yaml.compose(block, Loader=yaml.SafeLoader)
    node = next(value for key, value in root.value if key.value == "tags")
    items = [_scalar(tag) for tag in lacking]
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        end = block.find("\n", node.value[-1].end_mark.index)
        at = len(block) if end < 0 else end - 1 if block[end - 1] == "\r" else end
        return block[:at] + "".join(f"{line}{' ' * node.start_mark.column}- {item}" for item in items) + block[at:]
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.SequenceNode):
        before = block[: end - 1].rstrip()
        return before + (", " if node.value else "") + ", ".join(items) + block[end - 1 :]
    written = [block[start:end]] if node.value else []
    gap = "" if block[:start].endswith(" ") else " "
    return f"{block[:start]}{gap}[{', '.join([*written, *items])}]{block[end:]}"


def _scalar(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", text) and yaml.safe_load(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)
