"""What a model's exports came to, publication after publication -> a small SVG for the card. Pure.

The same history gives the same bytes. It has a background of its own, so that it can be read on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

from hub_exporter import wording
from hub_exporter.records import JobResult

CHART = "hub-exporter.svg"
"""Its path in a target."""

Values = list[float | None]

_LEFT, _CELL, _ROW, _HEAD, _EDGE = 210, 138, 46, 40, 14
_LINE, _HEIGHT = 70, 22
"""Width of a line and height of its scale, in pixels."""

_INK, _PALE, _PAPER, _BORDER, _COLOUR = "#1f2328", "#59636e", "#ffffff", "#d1d9e0", "#0969da"


def chart(jobs: Iterable[JobResult]) -> str | None:
    """The chart of the jobs that were published more than once; `None` where there are none."""
    rows = [job for job in jobs if job.history and job.status == "passed"]
    if not rows:
        return None
    width, height = _LEFT + 4 * _CELL + _EDGE, _HEAD + _ROW * len(rows) + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12">',
        "<title>Figures of the last publications, the newest on the right</title>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{_PAPER}" stroke="{_BORDER}"/>',
        *(_text(_LEFT + number * _CELL, 24, title, _PALE) for number, (title, _, _) in enumerate(_FIGURES)),
    ]
    for number, job in enumerate(rows):
        lines += _job(job, _HEAD + number * _ROW)
    return "\n".join([*lines, "</svg>", ""])


def _job(job: JobResult, top: int) -> Iterable[str]:
    yield f'<line x1="{_EDGE}" x2="{_LEFT + 4 * _CELL}" y1="{top}" y2="{top}" stroke="{_BORDER}"/>'
    yield _text(_EDGE, top + 27, f"{job.backend}, {job.variant}", _INK)
    for number, (_, values_of, shown) in enumerate(_FIGURES):
        yield from _cell(_LEFT + number * _CELL, top + 12, values_of(job), shown)


def _cell(left: int, top: int, values: Values, shown: Callable[[float], str]) -> Iterable[str]:
    """A line on a scale from zero, a dot for the newest value, and that in words."""
    points = _points(left, top, values)
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{_COLOUR}" stroke-width="1.5"/>'
    if values[-1] is not None:
        x, y = points[-1]
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_COLOUR}"/>'
        yield _text(left + _LINE + 8, top + 15, shown(values[-1]), _INK)


def _points(left: int, top: int, values: Values) -> list[tuple[float, float]]:
    known = [value for value in values if value is not None]
    largest = max(known, default=0.0) or 1.0
    step = _LINE / max(len(values) - 1, 1)
    return [
        (left + index * step, top + _HEIGHT * (1 - value / largest))
        for index, value in enumerate(values)
        if value is not None
    ]


def _text(x: float, y: float, text: str, colour: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{escape(wording.one_line(text))}</text>'


def _differences(job: JobResult) -> Values:
    now = wording.max_difference(job.verification) if job.verification else None
    return [*(past.difference for past in job.history), now]


def _sizes(job: JobResult) -> Values:
    return [*(float(past.size) for past in job.history), float(sum(artifact.size for artifact in job.artifacts))]


def _seconds(job: JobResult) -> Values:
    return [*(past.seconds for past in job.history), job.seconds]


def _latencies(job: JobResult) -> Values:
    now = job.verification.latency if job.verification else None
    return [*(past.latency for past in job.history), now]


_FIGURES: Sequence[tuple[str, Callable[[JobResult], Values], Callable[[float], str]]] = (
    ("largest difference", _differences, wording.number),
    ("size", _sizes, lambda value: wording.size(round(value))),
    ("export and check", _seconds, wording.duration),
    ("one run", _latencies, lambda value: f"{value * 1000:.3g} ms"),
)
"""Title, values from the oldest to the newest, and the newest in words."""
