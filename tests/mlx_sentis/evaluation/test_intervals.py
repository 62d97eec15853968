"""Intervals and the paired test, against published or hand-computed values."""

from __future__ import annotations

import math

import pytest

from mlx_sentis.evaluation.intervals import exact_mcnemar, wilson_interval


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_equal_newcombes_table(right: int, of: int, low: float, high: float) -> None:
    assert wilson_interval(right, of) == pytest.approx((low, high), abs=5e-5)


def test_nothing_counted_has_no_interval() -> None:
    assert wilson_interval(0, 0) is None


def test_all_right_reaches_exactly_one_and_none_right_exactly_zero() -> None:
    ends = wilson_interval(40, 40), wilson_interval(0, 40)
    assert ends[0] is not None and ends[0][1] == 1.0
    assert ends[1] is not None and ends[1][0] == 0.0


def test_more_right_than_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="found 5 right of 4"):
        wilson_interval(5, 4)


def test_mcnemar_is_twice_the_binomial_tail() -> None:
    assert exact_mcnemar(0, 6) == pytest.approx(2 / 2**6)
    assert exact_mcnemar(1, 7) == pytest.approx(2 * (1 + 8) / 2**8)
    assert exact_mcnemar(7, 1) == exact_mcnemar(1, 7)


def test_no_change_and_an_even_change_have_p_one() -> None:
    assert exact_mcnemar(0, 0) == 1.0
    assert exact_mcnemar(5, 5) == 1.0
    assert math.isfinite(exact_mcnemar(1000, 900))
