"""Hidden states in units of their token: a parked peak must not hide a wrong layer."""

from __future__ import annotations

import numpy as np

from parity.a0_compare import in_token_units
from weights_bridge.compare import psnr_db


def test_a_parked_peak_does_not_hide_an_error_in_the_other_tokens() -> None:
    rng = np.random.default_rng(0)
    right = rng.standard_normal((50, 64)).astype(np.float32)
    right[0, 7] = 20000.0
    wrong = right.copy()
    wrong[1:] += 0.1 * rng.standard_normal((49, 64)).astype(np.float32)
    assert psnr_db(right, wrong) > 100  # against the peak it would pass
    assert psnr_db(*in_token_units(right, wrong)) < 40


def test_units_keep_equal_states_exact_and_zero_tokens_finite() -> None:
    states = np.zeros((3, 8), np.float32)
    states[1] = 2.0
    wanted, found = in_token_units(states, states.copy())
    assert np.array_equal(wanted, found) and np.isfinite(wanted).all()
    assert np.allclose(wanted[1], 1.0)
