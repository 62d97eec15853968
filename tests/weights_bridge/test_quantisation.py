"""The numpy dequantisers against MLX's own, bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.quantisation import Packing, dequantised, packing_of

AFFINE = [(bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]


def numpy_of(array: Any) -> Array:
    """Return an MLX array's bytes in numpy; bfloat16 as itself."""
    import mlx.core as mx

    if array.dtype == mx.bfloat16:
        return np.array(array.view(mx.uint16)).view(ml_dtypes.bfloat16)
    return np.array(array)


def packed(weight: Array, packing: Packing, dtype: str) -> tuple[list[Array], Array]:
    """Return MLX's packed parts and its own dequantised weights in fp32."""
    import mlx.core as mx

    how = {"group_size": packing.group_size, "bits": packing.bits, "mode": packing.mode}
    parts = mx.quantize(mx.array(weight).astype(getattr(mx, dtype)), **how)
    wanted = mx.dequantize(*parts, **how, **({} if packing.mode == "affine" else {"dtype": mx.float32}))
    return [numpy_of(part) for part in parts], numpy_of(wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("bits", "group"), AFFINE)
def test_affine_weights_are_mlxs_bit_by_bit(bits: int, group: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights_bridge.quantisation.ROWS_AT_ONCE", 1000)  # several pieces
    weight = np.random.default_rng(bits).standard_normal((37, 256)).astype(np.float32)
    packing = Packing(group, bits, "affine")
    (words, scales, biases), wanted = packed(weight, packing, dtype)
    found = dequantised(words, scales, biases, packing)
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    assert np.abs(found.astype(np.float32) - weight).max() < 8 / 2 ** min(bits, 7)
    assert words.shape == packing.packed_shape(weight.shape)
    assert packing.part_shapes(weight.shape) == {"scales": scales.shape, "biases": scales.shape}


@pytest.mark.parametrize(("mode", "group", "bits"), [("mxfp4", 32, 4), ("mxfp8", 32, 8), ("nvfp4", 16, 4)])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_the_float_modes_are_mlxs_bit_by_bit(mode: str, group: int, bits: int, size: float) -> None:
    weight = (np.random.default_rng(bits).standard_normal((2, 17, 256)) * size).astype(np.float32)
    packing = Packing(group, bits, mode)
    (words, scales), wanted = packed(weight, packing, "float32")
    found = dequantised(words, scales, None, packing)
    assert found.tobytes() == wanted.tobytes()
    assert packing.part_shapes(weight.shape) == {"scales": scales.shape}


def test_every_code_and_every_scale_of_the_float_modes_has_mlxs_value() -> None:
    import mlx.core as mx

    codes = np.arange(256, dtype=np.uint8)
    for mode, group in (("mxfp4", 32), ("mxfp8", 32), ("nvfp4", 16)):
        packing = Packing(group, 8 if mode == "mxfp8" else 4, mode)
        words = np.tile(codes.view(np.uint32), (256, 1))  # all codes under each of the scales
        width = words.shape[1] * 32 // packing.bits
        scales = np.repeat(codes[:, None], width // group, axis=1)
        how = {"group_size": group, "bits": packing.bits, "mode": mode, "dtype": mx.float32}
        wanted = np.array(mx.dequantize(mx.array(words), mx.array(scales), **how))
        found = dequantised(words, scales, None, packing)
        np.testing.assert_array_equal(found, wanted)


def test_settings_of_one_module_go_before_those_of_all() -> None:
    config = {"quantization": {"group_size": 64, "bits": 4, "a.b": {"bits": 8}, "a.c": False, "a.d": True}}
    assert packing_of(config) == packing_of(config, "a.x") == packing_of(config, "a.d") == Packing(64, 4, "affine")
    assert packing_of(config, "a.b") == Packing(64, 8, "affine")
    assert packing_of(config, "a.c") is None and packing_of({}) is None
    assert packing_of({"quantization": {"mode": "nvfp4"}}) == Packing(16, 4, "nvfp4")
    copy = {"quantization_config": {"group_size": 32, "bits": 3}}
    assert packing_of(copy) == Packing(32, 3, "affine")
    assert packing_of({"quantization_config": {"quant_method": "gptq", "group_size": 32, "bits": 4}}) is None


@pytest.mark.parametrize(
    "settings", [{"bits": 7}, {"group_size": 48}, {"mode": "mxfp4", "bits": 8}, {"mode": "nvfp4", "group_size": 32}]
)
def test_sizes_that_mlx_does_not_have_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(StageError, match="is not read"):
        packing_of({"quantization": settings})


def test_an_unknown_mode_and_missing_biases_are_refused() -> None:
    with pytest.raises(StageError, match="mode 'gguf' is not read") as caught:
        packing_of({"quantization": {"mode": "gguf"}})
    assert "mxfp4" in caught.value.hint
    with pytest.raises(StageError, match="without biases"):
        dequantised(np.zeros((1, 4), np.uint32), np.ones((1, 1), np.float32), None, Packing(32, 4, "affine"))
