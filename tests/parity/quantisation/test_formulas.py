"""Float16 and Uint8 as ModelQuantizer stores them, against ONNX Runtime's and numpy's own arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from converters.ort_session import open_session
from parity.emulator.prediction import Throws, Unknown
from parity.emulator.quantise import checked_kind, float16_of, stored_as, uint8_of, uint8_scale
from weights_bridge.errors import UsedWronglyError

RNG = np.random.default_rng(5)
TENSORS = {
    "around 0": RNG.standard_normal((64, 33)),
    "positive": RNG.random((40, 7)) + 3,
    "negative": -RNG.random((40, 7)) - 3,
    "skewed": np.exp(RNG.standard_normal(5000)),
    "one outlier": np.append(RNG.standard_normal(999) * 1e-3, 50.0),
    "tiny": RNG.standard_normal(100) * 1e-30,
    "huge": RNG.standard_normal(100) * 1e30,
    "one number": np.asarray([0.7]),
}


@pytest.fixture(scope="module")
def dynamic() -> object:
    """ONNX' DynamicQuantizeLinear and DequantizeLinear: the same formulas, written by others."""
    text = """<ir_version: 10, opset_import: ["": 18]>
    q (float[N] x) => (float[N] y, float scale, uint8 zero) {
        q, scale, zero = DynamicQuantizeLinear(x)
        y = DequantizeLinear(q, scale, zero)
    }"""
    return open_session(onnx.parser.parse_model(text).SerializeToString(), "off")


@pytest.mark.parametrize("name", TENSORS)
def test_uint8_is_dynamic_quantisation_per_tensor(dynamic: object, name: str) -> None:
    values = TENSORS[name].astype(np.float32).reshape(-1)
    wanted, scale, zero = dynamic.run(None, {"x": values})  # pyright: ignore[reportAttributeAccessIssue]
    found_scale, found_zero = uint8_scale(values)
    assert found_scale == pytest.approx(float(scale), rel=1e-7)
    assert found_zero == zero
    # ONNX Runtime multiplies by the reciprocal: at a tie the integer may be the next one
    apart = np.abs(uint8_of(values) - wanted) / found_scale
    assert apart.max() <= 1.001 and (apart > 0.5).mean() < 0.01
    assert np.abs(uint8_of(values) - values).max() <= 0.5001 * found_scale + 1e-6 * np.abs(values).max()


def test_uint8_rounds_half_to_even_and_adds_the_zero_point_afterwards() -> None:
    values = np.asarray([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -127.0, 128.0], np.float32)  # scale 1, zero point 127
    assert uint8_scale(values) == (1, 127)
    np.testing.assert_array_equal(uint8_of(values), [-2, -2, 0, 0, 2, 2, -127, 128])


def test_zero_is_kept_and_a_tensor_of_zeros_stays_one() -> None:
    assert uint8_of(np.asarray([0, 3, 7], np.float32))[0] == 0
    assert uint8_of(np.asarray([0, -3, -7], np.float32))[0] == 0
    np.testing.assert_array_equal(uint8_of(np.zeros(3, np.float32)), np.zeros(3))


def test_float16_keeps_what_is_a_half_clamps_what_is_beyond_and_flushes_denormals_of_float32() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float32)
    np.testing.assert_array_equal(float16_of(halves), halves)
    np.testing.assert_array_equal(float16_of(np.asarray([1e6, -1e30, 65519], np.float32)), [65504, -65504, 65504])
    assert float16_of(np.asarray([1e-39], np.float32)) == 0
    assert float16_of(np.asarray([1e-7], np.float32)) == np.float32(np.float16(1e-7))  # a half denormal is kept


def test_truncated_halves_are_never_farther_from_zero_and_at_most_one_step_off() -> None:
    values = (RNG.standard_normal(20000) * 10.0 ** RNG.integers(-6, 4, 20000)).astype(np.float32)
    cut, rounded = float16_of(values, truncated=True), float16_of(values)
    assert (np.abs(cut) <= np.abs(values)).all()
    assert (np.abs(values - rounded) <= np.abs(values - cut)).all()
    assert (np.abs(values - cut) <= np.spacing(np.abs(cut).astype(np.float16)).astype(np.float32)).all()


def test_what_modelquantizer_would_throw_at_or_nobody_read_is_not_made_up() -> None:
    with pytest.raises(Throws, match="no element"):
        stored_as(np.zeros((0, 3), np.float32), "uint8")
    with pytest.raises(Unknown, match="not finite"):
        stored_as(np.asarray([1, np.inf], np.float32), "float16")


@pytest.mark.parametrize(("given", "kind"), [("Float16", "float16"), ("fp16", "float16"), ("UINT8", "uint8")])
def test_names_that_mean_the_same_are_taken(given: str, kind: str) -> None:
    assert checked_kind(given) == kind


@pytest.mark.parametrize(
    ("given", "why"),
    [("int8", "no Int8"), ("Int8", "no Int8"), ("awq", "AWQ"), ("4bit", "4 bits"), ("4-bit", "4 bits"),
     ("int4", "4 bits"), ("gptq", "GPTQ"), ("qdq", "not imported"), ("nonsense", "no such kind")],
)  # fmt: skip
def test_what_sentis_does_not_have_is_refused_with_the_reason(given: str, why: str) -> None:
    with pytest.raises(UsedWronglyError, match=why) as told:
        checked_kind(given)
    assert "float16" in told.value.message and "fine-tune first" in told.value.hint
