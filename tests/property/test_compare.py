"""The comparison: what agrees passes, what does not never does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hub_exporter.compare import TOLERANCE, TOLERANCES, cosine, figure, passes
from hub_exporter.records import Figure

VALUES = st.floats(-1e3, 1e3, width=32)
OUTPUTS = arrays(np.float32, array_shapes(min_dims=2, max_dims=3, max_side=6), elements=VALUES)


@given(OUTPUTS)
def test_an_output_agrees_with_itself(output: np.ndarray) -> None:
    measured = figure("x", output, output, argmax=-1)

    assert passes(measured, TOLERANCE)
    assert (measured.max_abs, measured.max_rel, measured.agreement) == (0, 0, 1)


@given(OUTPUTS, st.sampled_from([np.nan, np.inf, -np.inf]), st.data())
def test_one_value_that_is_not_finite_never_passes(output: np.ndarray, value: float, data: st.DataObject) -> None:
    spoilt = output.copy()
    spoilt.flat[data.draw(st.integers(0, output.size - 1))] = value

    measured = figure("x", spoilt, output)

    assert not passes(measured, TOLERANCE)
    assert measured.problem == "NaN or infinity"


@given(OUTPUTS, st.data())
def test_one_value_that_is_off_by_a_thousandth_of_the_largest_never_passes(
    output: np.ndarray, data: st.DataObject
) -> None:
    scale = max(float(np.abs(output).max()), 1.0)
    wrong = output.astype(np.float64)
    wrong.flat[data.draw(st.integers(0, output.size - 1))] += scale * 1e-3

    assert not passes(figure("x", wrong, output), TOLERANCE)


@given(OUTPUTS)
def test_noise_of_a_runtime_is_measured_as_what_it_is(output: np.ndarray) -> None:
    scale = float(np.abs(output).max())
    assume(scale > 1e-3)
    noisy = output + scale * 1e-6 * np.sign(output)

    measured = figure("x", noisy, output)

    assert measured.max_rel is not None
    assert measured.max_rel <= 2e-6


@given(OUTPUTS)
def test_another_shape_never_passes(output: np.ndarray) -> None:
    measured = figure("x", output[..., :-1], output)

    assert not passes(measured, TOLERANCE)
    assert "instead of" in (measured.problem or "")


def test_only_real_positions_count() -> None:
    expected = np.ones((1, 3, 2), np.float32)
    got = expected.copy()
    got[0, 0] = np.nan
    mask = np.array([[0, 1, 1]])

    assert passes(figure("x", got, expected, where=mask), TOLERANCE)
    assert not passes(figure("x", got, expected), TOLERANCE)


def test_the_cosine_is_that_of_the_worst_vector() -> None:
    a = np.array([[1.0, 0.0], [1.0, 0.0]])
    b = np.array([[1.0, 0.0], [0.0, 1.0]])

    assert cosine(a, b) == pytest.approx(0)
    assert cosine(np.zeros((2, 2)), np.zeros((2, 2))) == 1
    assert cosine(np.zeros((2, 2)), np.ones((2, 2))) == 0


def test_agreement_is_the_share_of_equal_choices() -> None:
    a, b = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    b[0] = b[0, ::-1]

    assert figure("x", a, b, argmax=-1).agreement == 0.75


def measured(cosine: float, agreement: float | None, max_rel: float = 0.2) -> Figure:
    return Figure(output="logits", max_abs=max_rel, max_rel=max_rel, cosine=cosine, agreement=agreement)


@pytest.mark.parametrize("variant", ["fp16", "int8", "int4"])
def test_a_variant_is_judged_by_its_choices_and_where_it_makes_none_by_its_direction(variant: str) -> None:
    bounds = TOLERANCES[variant]
    cosine, agreement = bounds["cosine"], bounds["agreement"]

    assert passes(measured(0.1, agreement), bounds)
    assert not passes(measured(1.0, agreement - 0.01), bounds)
    assert passes(measured(cosine, None), bounds)
    assert not passes(measured(cosine - 0.01, None), bounds)
    assert not passes(measured(1.0, None), TOLERANCES["fp32"]), "full precision is judged by every difference"


def test_less_precision_has_wider_bounds() -> None:
    for key in ("cosine", "agreement"):
        bounds = [TOLERANCES[variant][key] for variant in ("fp16", "int8", "int4")]
        assert bounds == sorted(bounds, reverse=True)
