from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

LSTM = "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r"


@pytest.mark.parametrize(
    "body, inputs, opset, sentis, finding",
    [
        ("y = Swish<alpha=1.5>(x)", "float[2,8] x", 24, "2.5", "SWISH.ALPHA"),
        ("b = Cast<to=9>(x) y = Cast<to=1>(b)", "float[2,8] x", 15, "2.6", "CAST.TO_BOOL"),
        ("b = Cast<to=9>(x) y = Cast<to=1>(b)", "int64[2,8] x", 15, "2.6", "CAST.TO_BOOL"),
        ("s = Shape(x) f = Cast<to=1>(s) h = Mul(f, c) i = Cast<to=7>(h) k = Slice(x, q, i) y = Neg(k)",
         "float[3,8] x", 15, "2.6", "CAST.FOLD_ROUNDING"),
        ("p = Pow(x, e) y = Cast<to=1>(p)", "int64[2,8] x", 15, "2.6", "POW.INT"),
        ("i = Range(n, o, n) y = Cast<to=1>(i)", "float[2] x", 15, "2.6", "RANGE.RANK1"),
        ("t = Transpose(x) y = Transpose<perm=[1,2,0]>(t)", "float[2,3,4] x", 15, "2.6", "TRANSPOSE.CHAIN_NO_PERM"),
        ("t = Transpose<perm=[1,2,0]>(x) y = Transpose(t)", "float[2,3,4] x", 15, "2.6", "TRANSPOSE.CHAIN_NO_PERM"),
        ("y = DFT(x, , a)", "float[1,8,3,1] x", 20, "2.6", "DFT.NEG_AXIS"),
    ],
)  # fmt: skip
def test_corners_are_written_with_simpler_operators(mended, body, inputs, opset, sentis, finding):
    init = "int64 e = {3}, int64[1] n = {1}, int64[1] o = {6}, int64 a = {-3}, float c = {0.5}, int64[2] q = {0,0}"
    init = ", ".join(one for one in init.split(", ") if f"{one.split()[1]})" in body or f"{one.split()[1]}," in body)
    assert mended("written_out", graph(body, inputs, opset, init=init), sentis=sentis).before == [finding]


def test_asinh_of_small_numbers(mended):
    x = np.array([[-3.0, -0.5, 0.0, 2.0, 50.0, -1e4, 1e4, -0.0]], np.float32)
    mended("written_out", graph("y = Asinh(x)", "float[1,8] x"), inputs={"x": x})


def test_an_lstm_names_its_size(mended):
    from converters.passes import PASSES
    from converters.passes.base import Context

    model = graph("y = LSTM(x, w, r)", LSTM)
    assert PASSES["written_out"].run(model, Context()).changed == 1
    assert model.graph.node[0].attribute[0].i == 2


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y = Transpose<perm=[1,0]>(x)", "float[2,8] x", ""),
        ("y = Pow(x, e)", "int64[2,8] x, int64 e", "not a constant"),
        ("b = Less(x, x) y = Cast<to=9>(b)", "float[2,8] x", ""),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("written_out", graph(body, inputs))


@pytest.mark.parametrize("exponent", [-1, 0.5, -0.5])
def test_a_root_of_integers_is_taken_of_floats(mended, exponent):
    body = "p = Pow(x, e) y = Cast<to=1>(p)"
    x = np.array([[1, 2, 3, 4, 9, 16, 17, 1000]], np.int32)
    made = graph(body, "int32[1,8] x", init=f"float e = {{{exponent}}}")
    assert "POW.INT_EXP_MINUS1" in mended("written_out", made, inputs={"x": x}).before


def test_a_quotient_by_a_known_zero(mended):
    x = np.array([[1, -2, 0, 5], [-1, 3, 0.5, 0]], np.float32)
    made = graph("y = Div(x, z)", "float[2,4] x", init="float[4] z = {0, -0.0, 0, 3}")
    assert mended("written_out", made, inputs={"x": x}).before == ["DIV.CONST_ZERO"]


def test_a_product_with_a_constant_vector(mended):
    made = graph("y = MatMul(x, v)", 'float["b",3,4] x', init="float[4] v = {1, 2, 3, 4}")
    tried = mended("written_out", made)
    assert tried.operators == ["Reshape", "MatMul", "Squeeze"] and tried.before == ["MATMUL.CONST_RANK3_ADD"]
