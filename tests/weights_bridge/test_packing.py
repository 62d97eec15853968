"""The numpy packer against MLX's own, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from weights_bridge.compare import Array
from weights_bridge.packing import packed
from weights_bridge.quantisation import Packing, dequantised

CASES = [(bits, group) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]


def awkward(bits: int) -> Array:
    """Return weights of ordinary size, and groups of zeros, of one value, of one sign and of extremes."""
    weight = np.random.default_rng(bits).standard_normal((41, 256)).astype(np.float32) / 20
    weight[1] = 0.0
    weight[2] = -0.25
    weight[3] = np.abs(weight[3])
    weight[4] = -np.abs(weight[4]) - 1
    weight[5] *= 1e-12
    weight[6] *= 1e12
    weight[7, 64:] = 0.0
    return weight


@pytest.mark.parametrize(("bits", "group"), CASES)
def test_words_scales_and_biases_are_mlxs_bit_by_bit(bits: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx.core as mx

    monkeypatch.setattr("weights_bridge.packing.ROWS_AT_ONCE", 1000)  # several pieces
    weight, packing = awkward(bits), Packing(group, bits, "affine")
    wanted = [np.array(part) for part in mx.quantize(mx.array(weight), group_size=group, bits=bits)]
    found = packed(weight, packing)
    assert [part.dtype for part in found] == [part.dtype for part in wanted]
    assert [part.tobytes() for part in found] == [part.tobytes() for part in wanted]
    assert found[0].shape == packing.packed_shape(weight.shape)


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_packed_reads_back_within_half_a_step(bits: int) -> None:
    weight, packing = awkward(bits)[8:], Packing(64, bits, "affine")
    words, scales, biases = packed(weight, packing)
    steps = np.repeat(np.abs(scales), 64, axis=1)
    error = np.abs(dequantised(words, scales, biases, packing) - weight)
    assert (error <= 0.51 * steps).mean() > 0.98  # the end of a group that is not on the grid may be cut
    assert (error <= 1.01 * steps).all()
