"""Singular bases against numpy's decomposition."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_sentis.training.adapters.svd import singular_bases


@pytest.mark.parametrize(("out", "width", "rank"), [(12, 30, 4), (30, 12, 4), (16, 16, 16), (1, 9, 1), (9, 1, 1)])
def test_bases_are_the_first_singular_vectors_with_a_positive_largest_entry(out: int, width: int, rank: int) -> None:
    weight = np.random.default_rng(out).standard_normal((out, width)).astype(np.float32)
    u, v = singular_bases(weight, rank)
    assert (u.shape, v.shape, u.dtype, v.dtype) == ((out, rank), (width, rank), np.float32, np.float32)
    assert (np.take_along_axis(u, np.abs(u).argmax(axis=0)[None], axis=0) > 0).all()
    values = np.linalg.svd(weight.astype(np.float64), compute_uv=False)[:rank]
    np.testing.assert_allclose(np.einsum("or,oi,ir->r", u, weight, v), values, rtol=2e-6)
    np.testing.assert_allclose(weight @ v, u * values, atol=1e-5 * values[0])


def test_a_weight_of_lower_rank_than_asked_still_has_orthonormal_bases() -> None:
    rng = np.random.default_rng(1)
    weight = (rng.standard_normal((12, 2)) @ rng.standard_normal((2, 20))).astype(np.float32)
    for basis in singular_bases(weight, 5):
        np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-5)


def test_the_same_weight_has_the_same_bases_bit_for_bit() -> None:
    weight = np.random.default_rng(2).standard_normal((48, 32)).astype(np.float32)
    for first, second in zip(singular_bases(weight, 8), singular_bases(weight.copy(), 8), strict=True):
        np.testing.assert_array_equal(first, second)
