"""Numbers and foreign text put into words: the one place that rounds, and the one that escapes.

Everything here is pure. Model names, licences, dataset rows, reasons and paths come from other people; they pass
through `one_line`, `inline`, `code` or `fenced` before they reach a terminal or a Markdown file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from hub_exporter.records import CaseResult, Finding, Needs, Publication, RunnerGroup, Verification

CHANGES = ("added", "changed", "unchanged", "deleted")

_BIDI = dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
"""Direction marks: they can make a line read differently from what it is."""

_MARKDOWN = re.compile(
    r"[\\`*\[\]{}<>|~&$#!@]"  # structure, HTML, mathematics, mentions
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis; not the underscore of `last_hidden_state`
    r"|:(?=//)|(?<=www)\."  # links made out of bare addresses
    r"|^(?:[-+=]|\d+(?=[.)](?:\s|$)))"  # lists and underlined headings
)


def one_line(text: str) -> str:
    """`text` without control characters, direction marks and line ends, runs of white space made one space."""
    visible = "".join(" " if unicodedata.category(char) == "Cc" else char for char in text.translate(_BIDI))
    return " ".join(visible.encode("utf-8", "replace").decode("utf-8").split())


def entities(text: str) -> str:
    """Every character that is not a letter, a digit or a space as a numeric HTML entity."""
    return "".join(char if char.isalnum() or char == " " else f"&#{ord(char)};" for char in text)


def inline(text: str) -> str:
    """`text` as Markdown that shows exactly these characters, in a sentence, a list item or a table cell."""
    return _MARKDOWN.sub(lambda found: "".join(f"&#{ord(char)};" for char in found.group()), one_line(text))


def code(text: str) -> str:
    """`text` in fixed width, in a sentence or a table cell; a plain code span wherever that is safe."""
    line = one_line(text)
    if not line:
        return ""
    return f"<code>{entities(line)}</code>" if re.search(r"[`|]|<!--", line) else f"`{line}`"


def prose(text: str) -> str:
    """A message in which literals stand in backticks, as Markdown: the literals as code, the rest as `inline`."""
    pieces = re.split(r"`([^`]+)`", one_line(text))
    return "".join(code(piece) if number % 2 else _spaced(piece) for number, piece in enumerate(pieces))


def _spaced(piece: str) -> str:
    """`inline`, with the spaces towards the neighbours kept."""
    return " " * piece.startswith(" ") + inline(piece) + " " * (piece.endswith(" ") and piece != " ")


def fenced(text: str, language: str) -> str:
    """`text` as a Markdown code block whose fence no line of it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def size(count: int) -> str:
    """Bytes in the decimal units that the Hub shows: `0 B`, `612 B`, `90.9 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.95 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `12 min 05 s`, `1 h 02 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left:02} min" if hours else f"{minutes} min {rest:02} s"


def number(value: float) -> str:
    """Two significant digits for a difference: `0`, `2.4e-07`, `0.013`."""
    return f"{value:.2g}"


def cosine(value: float) -> str:
    """Enough digits to tell 0.9999 from 1: `1.000000`."""
    return f"{value:.6f}"


def plural(count: int, noun: str) -> str:
    """`1 job`, `4 jobs`"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def runner(label: str | tuple[str, ...] | RunnerGroup) -> str:
    """What a job's `runs-on` says: `ubuntu-latest`, `self-hosted + gpu`, `group large: linux`."""
    if isinstance(label, RunnerGroup):
        return f"group {label.group}" + (f": {runner(label.labels)}" if label.labels else "")
    return label if isinstance(label, str) else " + ".join(label)


def needs(needed: Needs | None) -> tuple[str, str, str]:
    """Memory, disk and time that a job is expected to take: `~1.4 GB`, `~3.7 GB`, `~1 min 27 s`."""
    if needed is None:
        return "", "", ""
    return f"~{size(needed.memory)}", f"~{size(needed.disk)}", f"~{duration(needed.seconds)}"


def publication(made: Publication, target: str) -> str:
    """What became of a target, in one line: `5 files, 1.2 MB, written to ./out (5 added)`."""
    kinds = [(sum(change.kind == kind for change in made.files), kind) for kind in CHANGES]
    counts = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
    if made.unchanged:
        return f"unchanged, {target} has it already ({counts})"
    kept = [change for change in made.files if change.kind != "deleted"]
    what = f"{plural(len(kept), 'file')}, {size(sum(change.size for change in kept))}"
    if made.dry_run:
        return f"{what}, would be written to {target} ({counts})"
    if made.pull_request is not None:
        return f"{what}, proposed to {target} as pull request {made.pull_request} ({counts})"
    return f"{what}, written to {target} ({counts})"


def why(finding: Finding) -> str:
    """Why a job is stale, or what there is to say of one that is not."""
    return "; ".join(f"{reason.kind}: {reason.text}" for reason in finding.reasons) or finding.note


def max_difference(verification: Verification) -> float | None:
    """Largest absolute difference of any output in any case or decode loop; `None` where nothing was compared."""
    figures = [figure.max_abs for case in verification.cases for figure in case.figures]
    decodes = [decode.max_abs for decode in verification.decodes]
    return max((value for value in [*figures, *decodes] if value is not None), default=None)


def min_cosine(verification: Verification) -> float | None:
    """Smallest cosine of any output in any case; `None` where nothing was compared."""
    figures = [figure.cosine for case in verification.cases for figure in case.figures]
    return min((value for value in figures if value is not None), default=None)


def tokens(verification: Verification) -> str | None:
    """Greedy tokens equal to the model's own over all decode loops: `96/96`."""
    if not verification.decodes:
        return None
    return f"{sum(d.agreed for d in verification.decodes)}/{sum(d.tokens for d in verification.decodes)}"


def agreement(verification: Verification | None) -> str:
    """The one figure for a table: tokens where there are any (`96/96 tokens`), else `max diff 2.4e-07`."""
    if verification is None:
        return ""
    counted = tokens(verification)
    if counted is not None:
        return f"{counted} tokens"
    difference = max_difference(verification)
    return "" if difference is None else f"max diff {number(difference)}"


AXES = {
    "batch_size": "batch",
    "sequence_length": "length",
    "num_channels": "channels",
    "feature_size": "features",
    "feature_length": "frames",
    "grid_rows": "rows of tokens that a picture becomes",
    "grid_columns": "columns of tokens that a picture becomes",
}


def axis(name: str) -> str:
    """`batch` of `batch_size`, `image batch` of `image_batch_size`"""
    return AXES.get(name) or name.removesuffix("_size").replace("_", " ")


def axes(sizes: Mapping[str, int]) -> str:
    """`batch 2, length 13`"""
    return ", ".join(f"{axis(name)} {size}" for name, size in sizes.items())


def shapes(cases: Iterable[CaseResult]) -> str:
    """Input shapes that were tried, each once: `2×9, 1×5`."""
    return ", ".join(dict.fromkeys("×".join(map(str, case.shape)) for case in cases))
