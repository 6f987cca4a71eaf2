"""Two arrays -> how well they agree. Pure numpy, no runtime, no opinion about where the arrays came from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hub_exporter.records import Figure

TOLERANCE = {"max_rel": 1e-4, "cosine": 0.99999}
"""For fp32 graphs. `max_rel` is the largest difference over the largest absolute value of the reference; runtimes
differ by about 1e-6 of it (other order of additions), a weight that is 1 % off by 1e-3 and more."""

TOLERANCES: dict[str, dict[str, float]] = {
    "fp32": TOLERANCE,
    "fp16": {"agreement": 0.98, "cosine": 0.999},
    "int8": {"agreement": 0.9, "cosine": 0.95},
    "int4": {"agreement": 0.75, "cosine": 0.8},
}
"""Variant -> its bounds. Of less precision `agreement` is the smallest share of places, in a batch and in a decode loop
that is fed the original's tokens, where the original's choice is made; `cosine` holds for outputs without a choice."""


def figure(
    name: str, got: np.ndarray, expected: np.ndarray, where: np.ndarray | None = None, argmax: int | None = None
) -> Figure:
    """Compare one output.

    `got` and `expected` have one shape, (batch, length, ...) or (batch, ...); `where` (batch, length) selects the
    positions that count (real tokens), `argmax` is an axis along which the place of the largest value is also
    compared.
    """
    if got.shape != expected.shape:
        return _incomparable(name, f"shape {tuple(got.shape)} instead of {tuple(expected.shape)}")
    if where is not None and expected.ndim >= 2 and expected.shape[:2] == where.shape:
        got, expected = got[where.astype(bool)], expected[where.astype(bool)]
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(got).all():
        return _incomparable(name, "NaN or infinity")
    difference = float(np.abs(got - expected).max(initial=0.0))
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-6)
    return Figure(
        output=name,
        max_abs=difference,
        max_rel=difference / scale,
        cosine=cosine(got, expected),
        agreement=_argmax_agreement(got, expected, argmax) if argmax is not None else None,
    )


def cosine(got: np.ndarray, expected: np.ndarray) -> float:
    """Smallest cosine over the vectors of the last axis. Of two vectors that are nothing beside the rest of the
    output, or beside 1e-6, the direction is noise: they agree."""
    a, b = np.atleast_2d(got), np.atleast_2d(expected)
    lengths = np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1)
    nothing = np.maximum(*lengths) <= 1e-6 * max(float(np.abs(b).max(initial=0.0)), 1e-6)
    values = np.where(nothing, 1.0, (a * b).sum(axis=-1) / np.maximum(lengths[0] * lengths[1], 1e-30))
    return float(min(values.min(initial=1.0), 1.0))


def passes(measured: Figure, tolerance: Mapping[str, float]) -> bool:
    """Whether an output agrees. At full precision the argmax is not judged: at a near-tie it may differ between right
    answers."""
    if measured.max_rel is None or measured.cosine is None:
        return False
    if "max_rel" not in tolerance:
        chosen = measured.agreement
        return measured.cosine >= tolerance["cosine"] if chosen is None else chosen >= tolerance["agreement"]
    return measured.max_rel <= tolerance["max_rel"] and measured.cosine >= tolerance["cosine"]


def _incomparable(name: str, problem: str) -> Figure:
    return Figure(output=name, max_abs=None, max_rel=None, cosine=None, problem=problem)


def _argmax_agreement(got: np.ndarray, expected: np.ndarray, axis: int) -> float:
    same = got.argmax(axis=axis) == expected.argmax(axis=axis)
    return float(same.mean()) if same.size else 1.0
