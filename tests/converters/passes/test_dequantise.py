from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from scan_cases import graph

RNG = np.random.default_rng(0)


def with_constants(body: str, inputs: str, opset: int = 15, output: str = "float[] y", **arrays) -> onnx.ModelProto:
    model = graph(body, inputs, opset, output=output)
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


def weights(*shape, dtype=np.int8):
    info = np.iinfo(dtype)
    return RNG.integers(info.min // 2, info.max, shape).astype(dtype)


SCALES = {"s": np.float32(0.02), "z": np.uint8(128)}


def worst(tried, probe: str) -> float:
    return min(math.inf if level is None else level for name, level in tried.levels.items() if f" {probe} " in name)


@pytest.mark.parametrize("axis, scale", [(None, np.float32(0.5)), (0, [0.1, 0.2, 0.3]), (1, [0.1, 0.2, 0.3, 0.4])])
@pytest.mark.parametrize("zero", [False, True])
def test_weights_become_what_dequantize_linear_makes_of_them(mended, axis, scale, zero):
    scale = np.asarray(scale, np.float32)
    given = "" if axis is None else f"<axis={axis}>"
    more = {"z": np.full(scale.shape, 3, np.int8)} if zero else {}
    model = with_constants(f"w = DequantizeLinear{given}(q, s{', z' if zero else ''}) y = MatMul(x, w)", "float[2,3] x",
                           q=weights(3, 4), s=scale, **more)  # fmt: skip
    tried = mended("dequantise", model, by_design=True)
    assert tried.operators == ["MatMul"] and set(tried.levels.values()) == {None}
    assert [t.name for t in tried.model.graph.initializer] == ["w"]


def test_a_pair_becomes_the_range_that_it_could_hold(mended):
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Neg(d)"
    tried = mended("dequantise", with_constants(body, "float[2,8] x", **SCALES), by_design=True)
    assert tried.operators == ["Clip", "Neg"] and worst(tried, "spread") > 40
    assert worst(tried, "large") > 100  # both saturate


def test_a_pair_around_a_reshape_is_written_out_exactly(mended):
    body = "q = QuantizeLinear(x, s, z) r = Reshape(q, h) y = DequantizeLinear(r, s, z)"
    model = with_constants(body, "float[2,8] x", h=np.array([4, 4]), **SCALES)
    tried = mended("dequantise", model, 2, by_design=True)
    assert "Round" in tried.operators and all(level is None or level > 100 for level in tried.levels.values())


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_qlinear_convolution(mended, per_channel):
    count = 4 if per_channel else ()
    arrays = {"w": weights(4, 3, 3, 3), "ws": np.full(count, 0.01, np.float32), "wz": np.zeros(count, np.int8)}
    arrays |= {"b": weights(4, dtype=np.int32) // 2**20, "ys": np.float32(0.2), "yz": np.uint8(100), **SCALES}
    body = "q = QuantizeLinear(x, s, z) c = QLinearConv<pads=[1,1,1,1]>(q, s, z, w, ws, wz, ys, yz, b)"
    body += " y = DequantizeLinear(c, ys, yz)"
    tried = mended("dequantise", with_constants(body, "float[1,3,8,8] x", **arrays), 3, by_design=True)
    assert set(tried.operators) == {"Clip", "Conv"} and worst(tried, "spread") > 30


def test_a_qlinear_product(mended):
    arrays = dict(w=weights(8, 4), ws=np.float32(0.01), wz=np.int8(2), ys=np.float32(0.1), yz=np.uint8(120), **SCALES)
    body = "q = QuantizeLinear(x, s, z) c = QLinearMatMul(q, s, z, w, ws, wz, ys, yz) y = DequantizeLinear(c, ys, yz)"
    tried = mended("dequantise", with_constants(body, "float[2,8] x", **arrays), 3, by_design=True)
    assert set(tried.operators) == {"Clip", "MatMul"} and worst(tried, "spread") > 30


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_of_onnx_runtime(mended, op):
    body = (
        f"q = QuantizeLinear(x, s, z) c = com.microsoft.{op}(q, s, z, q, s, z, ys, yz) y = DequantizeLinear(c, ys, yz)"
    )
    model = with_constants(body, "float[2,8] x", ys=np.float32(0.05), yz=np.uint8(128), **SCALES)
    tried = mended("dequantise", model, 3, by_design=True)
    assert tried.operators == ["Clip", op.removeprefix("QLinear"), "Clip"] and worst(tried, "spread") > 30


@pytest.mark.parametrize("call, operators", [
    ("QLinearAveragePool<kernel_shape=[2,2]>(q, s, z, ys, yz)", ["Clip", "AveragePool", "Clip"]),
    ("QLinearWhere(k, q, s, z, q, s, z, ys, yz)", ["Clip", "Where", "Clip"]),
])  # fmt: skip
def test_pools_and_choices_of_onnx_runtime(mended, call, operators):
    body = f"q = QuantizeLinear(x, s, z) c = com.microsoft.{call} y = DequantizeLinear(c, ys, yz)"
    inputs = "float[1,2,4,4] x" + ", bool[4] k" * ("(k" in call)
    model = with_constants(body, inputs, ys=np.float32(0.05), yz=np.uint8(128), **SCALES)
    tried = mended("dequantise", model, 3, by_design=True)
    assert tried.operators == operators and worst(tried, "spread") > 30


DYNAMIC = "q, s, z = DynamicQuantizeLinear(x) "


@pytest.mark.parametrize("zero", ["", ", wz"])
def test_a_dynamic_product_is_the_float_product(mended, zero):
    body = f"{DYNAMIC} i = MatMulInteger(q, w, z{zero}) f = Cast<to=1>(i) t = Mul(s, ws) y = Mul(f, t)"
    more = {"wz": np.uint8(100)} if zero else {}
    dtype = np.uint8 if zero else np.int8
    model = with_constants(body, "float[2,8] x", w=weights(8, 4, dtype=dtype), ws=np.float32(0.01), **more)
    tried = mended("dequantise", model, 2, by_design=True)
    assert tried.operators == ["MatMul", "Cast", "Mul", "Mul"] and worst(tried, "spread") > 35


def test_a_dynamic_convolution_is_the_float_convolution(mended):
    body = f"{DYNAMIC} i = ConvInteger<pads=[1,1,1,1]>(q, w, z) f = Cast<to=1>(i) y = Mul(f, s)"
    tried = mended("dequantise", with_constants(body, "float[1,3,8,8] x", w=weights(4, 3, 3, 3)), 2, by_design=True)
    assert tried.operators == ["Conv", "Cast", "Mul"] and worst(tried, "spread") > 35


def test_a_dynamic_quantisation_that_others_read_is_written_out(mended):
    body = f"{DYNAMIC} f = Cast<to=1>(q) g = Cast<to=1>(z) d = Sub(f, g) y = Mul(d, s)"
    tried = mended("dequantise", with_constants(body, "float[2,8] x"), by_design=True)
    assert "Round" in tried.operators and worst(tried, "spread") > 100


@pytest.mark.parametrize(
    "product",
    ["i = MatMulInteger(q, w) f = Cast<to=1>(i)", "i = MatMulInteger(q, w, z) j = Add(i, i) f = Cast<to=1>(j)"],
)
def test_integers_that_are_not_centred_or_not_cast_at_once_stay_rounded(mended, product):
    model = with_constants(f"{DYNAMIC} {product} y = Mul(f, s)", "float[2,8] x", w=weights(8, 4))
    tried = mended("dequantise", model, 2, by_design=True)
    assert "Round" in tried.operators and worst(tried, "spread") > 100


def test_a_product_of_onnx_runtime_with_dynamic_activations(mended):
    body = "y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, b)"
    arrays = {"w": weights(8, 4), "s": np.float32(0.02), "z": np.int8(3), "b": np.ones(4, np.float32)}
    tried = mended("dequantise", with_constants(body, "float[2,8] x", **arrays), by_design=True)
    assert tried.operators == ["MatMul", "Add"] and worst(tried, "spread") > 35


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y = Cast<to=1>(q)", "uint8[2] q", ""),
        ("y = DequantizeLinear<axis=0, block_size=2>(q, s)", "uint8[4,2] q, float[2,2] s", "in blocks"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("dequantise", graph(body, inputs, 21))
