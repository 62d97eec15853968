"""Verdicts on tensors: the formula by hand, and each way of failing with its own reason."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from weights_bridge.compare import GateReport, GateResult, compare, compare_sets, psnr_db

REFERENCE = np.array([1.0, -10.0, 2.0, 3.0], np.float32)


def with_value(index: int, value: float) -> Any:
    changed = REFERENCE.copy()
    changed[index] = value
    return changed


def test_psnr_is_peak_over_mean_square_error_in_db() -> None:
    # peak 10, one error of 0.25 among four: mse 1/64 → 20·log10(10) + 10·log10(64)
    assert psnr_db(REFERENCE, with_value(3, 3.25)) == pytest.approx(20 + 10 * math.log10(64), abs=1e-12)
    # peak 10, every value off by 0.5: mse 1/4 → 20 + 10·log10(4)
    assert psnr_db(REFERENCE, REFERENCE + np.float32(0.5)) == pytest.approx(26.0206, abs=1e-4)


def test_the_peak_is_the_references_and_not_the_candidates() -> None:
    assert psnr_db(np.array([1.0, 0.0]), np.array([100.0, 0.0])) == pytest.approx(-10 * math.log10(99**2 / 2))


def test_a_verdict_carries_its_figures() -> None:
    result = compare("logits", REFERENCE, with_value(3, 3.25), 38.0, where="layer 7")
    assert (result.passed, result.reason, result.where) == (True, "within budget", "layer 7")
    assert (result.max_abs, result.max_rel, result.would_pass_at) == (0.25, 0.025, 38)
    assert result.psnr_db == pytest.approx(38.0618, abs=1e-4)


def test_the_budget_decides() -> None:
    result = compare("logits", REFERENCE, with_value(3, 3.25), 38.1)
    assert (result.passed, result.reason, result.would_pass_at) == (False, "below budget", 38)


def test_equal_tensors_are_exact_and_have_no_db() -> None:
    result = compare("logits", REFERENCE, REFERENCE.copy(), 500.0)
    assert (result.passed, result.reason, result.psnr_db, result.max_abs) == (True, "exact", None, 0.0)
    zeros = np.zeros(3, np.float32)
    assert compare("zeros", zeros, zeros.copy(), 90.0).reason == "exact"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_fails_with_its_position(value: float) -> None:
    for reference, candidate, side in [
        (REFERENCE, with_value(2, value), "one side"),
        (with_value(2, value), REFERENCE, "one side"),
        (with_value(2, value), with_value(2, value), "both sides"),  # equal NaN are no agreement
    ]:
        result = compare("logits", reference, candidate, -1000.0)
        assert (result.passed, result.reason) == (False, "nan")
        assert result.detail == f"1 values are not finite on {side}, the first at (2,)"


def test_the_position_of_the_first_nan_is_an_index_into_the_shape() -> None:
    reference = np.zeros((2, 3, 4), np.float32)
    candidate = reference.copy()
    candidate[1, 2, 3] = candidate[1, 0, 1] = math.nan
    assert "2 values" in compare("x", reference, candidate, 0.0).detail
    assert "first at (1, 0, 1)" in compare("x", reference, candidate, 0.0).detail


def test_shape_dtype_and_emptiness_each_fail_with_their_own_reason() -> None:
    shape = compare("x", REFERENCE, REFERENCE.reshape(2, 2), 0.0)
    assert (shape.passed, shape.reason, shape.detail) == (False, "shape", "found (2, 2), wanted (4,)")
    dtype = compare("x", REFERENCE, REFERENCE.astype(np.float64), 0.0)
    assert (dtype.passed, dtype.reason, dtype.detail) == (False, "dtype", "found float64, wanted float32")
    empty = compare("x", REFERENCE[:0], REFERENCE[:0], 0.0)
    assert (empty.passed, empty.reason) == (False, "nothing compared")


def test_integers_are_compared_in_float64() -> None:
    # in int8 the difference 100 − (−100) wraps to −56; in uint8 3 − 5 is 254
    assert compare("x", np.array([100], np.int8), np.array([-100], np.int8), 0.0).max_abs == 200.0
    assert compare("x", np.array([3], np.uint8), np.array([5], np.uint8), 0.0).max_abs == 2.0
    # in int32 the square of 70000 overflows
    far = compare("x", np.array([70000], np.int32), np.array([0], np.int32), 1.0)
    assert (far.passed, far.psnr_db) == (False, pytest.approx(0.0))


def test_half_precision_is_compared_in_float64() -> None:
    # 300² overflows fp16; the peak over the error is 1
    result = compare("x", np.array([300], np.float16), np.array([0], np.float16), 90.0)
    assert (result.passed, result.psnr_db, result.max_abs) == (False, pytest.approx(0.0), 300.0)


def test_a_zero_reference_fails_unless_all_is_zero() -> None:
    result = compare("x", np.zeros(4, np.float32), with_value(0, 0.0), -1000.0)
    assert (result.passed, result.reason, result.psnr_db, result.max_rel) == (False, "reference is zero", None, None)


def test_numbers_whose_squares_leave_float64_still_have_a_level() -> None:
    for size in (1e200, 1e-200):
        result = compare("x", np.array([size, size]), np.array([size, 0.9 * size]), 10.0)
        assert (result.passed, result.psnr_db) == (True, pytest.approx(20 + 10 * math.log10(2)))


def test_missing_and_extra_names_fail_by_themselves() -> None:
    found = compare_sets({"a": REFERENCE, "b": REFERENCE}, {"a": REFERENCE, "c": REFERENCE}, 90.0, prefix="row 0 / ")
    assert [(r.tensor, r.passed, r.reason, r.where) for r in found] == [
        ("row 0 / a", True, "exact", "a"),
        ("row 0 / b", False, "missing", "b"),
        ("row 0 / c", False, "extra", "c"),
    ]


def test_each_name_has_its_own_budget_and_an_extra_name_needs_none() -> None:
    candidate = {"a": with_value(3, 3.25), "b": with_value(3, 3.25), "c": REFERENCE}
    found = compare_sets({"a": REFERENCE, "b": REFERENCE}, candidate, {"a": 30.0, "b": 40.0})
    assert [(r.tensor, r.reason, r.budget) for r in found] == [
        ("a", "within budget", 30.0),
        ("b", "below budget", 40.0),
        ("c", "extra", None),
    ]


def test_two_empty_sets_do_not_pass() -> None:
    (result,) = compare_sets({}, {}, 90.0)
    assert (result.passed, result.reason) == (False, "nothing compared")


def test_a_report_passes_when_it_holds_results_and_all_pass() -> None:
    good, bad = compare("a", REFERENCE, REFERENCE, 90.0), compare("b", REFERENCE, with_value(0, 2.0), 90.0)
    assert not GateReport("a0").passed
    assert GateReport("a0", [good]).passed
    report = GateReport("a0", [good, bad])
    assert (report.passed, report.failures) == (False, [bad])


def test_the_worst_level_ignores_exact_ones_and_can_be_asked_for_a_group() -> None:
    results = [
        GateResult("forward / a", True, "within budget", psnr_db=120.0),
        GateResult("forward / b", True, "exact"),
        GateResult("backward / a", True, "within budget", psnr_db=95.0),
    ]
    report = GateReport("a0", results)
    assert (report.worst_db(), report.worst_db("forward"), report.worst_db("forward / b")) == (95.0, 120.0, None)


def test_every_verdict_survives_strict_json() -> None:
    tensors = [REFERENCE, with_value(0, math.nan), with_value(0, 5.0), np.zeros(4, np.float32), REFERENCE[:2]]
    results = [compare("x", reference, candidate, 90.0) for reference in tensors for candidate in tensors]
    document = GateReport("a", results).as_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["schema"], document["passed"]) == ("mlx-sentis/a/1", False)


def test_a_verdict_reads_as_one_line() -> None:
    line = str(compare("row 3 / logits", REFERENCE, with_value(3, 3.25), 90.0, where="layer 7"))
    assert line == "FAIL row 3 / logits: 38.1 dB (budget 90 dB), below budget · layer 7"
