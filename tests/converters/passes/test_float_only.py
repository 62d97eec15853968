from __future__ import annotations

import pytest
from scan_cases import graph


@pytest.mark.parametrize(
    "body, inputs, opset",
    [
        ("r = Relu(x)", "int32[2,8] x", 14),
        ("r = MatMul(x, z)", "int64[2,8] x, int64[8,3] z", 13),
        ("r = Gemm<alpha=2.0>(x, z, b)", "int32[2,8] x, int32[8,3] z, int32[3] b", 13),
        ("r = ReduceMean<axes=[1]>(x)", "int32[2,8] x", 13),
        ("r = Einsum<equation=\"ij,jk->ik\">(x, z)", "int64[2,8] x, int64[8,3] z", 13),
    ],
)  # fmt: skip
def test_integers_are_cast_and_cast_back(mended, body, inputs, opset):
    tried = mended("float_only", graph(f"n = Neg(x) {body.replace('(x', '(n')} y = Cast<to=1>(r)", inputs, opset))
    assert tried.before and tried.operators[-1] == "Cast" and set(tried.levels.values()) == {None}


def test_pictures_of_bytes_are_resized_in_float(mended):
    body = 'r = Resize<mode="nearest">(x, , s) y = Cast<to=1>(r)'
    tried = mended("float_only", graph(body, "uint8[1,3,4,4] x", 13, init="float[4] s = {1,1,2,2}"))
    assert tried.operators == ["Cast", "Resize", "Cast", "Cast"]


def test_a_pool_of_bytes(mended):
    mended("float_only", graph("r = MaxPool<kernel_shape=[2,2]>(x) y = Cast<to=1>(r)", "uint8[1,3,4,4] x", 13))


@pytest.mark.parametrize("body, reason", [
    ("y = Relu(f)", ""), ("y, i = MaxPool<kernel_shape=[2]>(x) z = Cast<to=1>(i)", "several outputs"),
])  # fmt: skip
def test_it_must_not_fire(left, body, reason):
    assert reason in left("float_only", graph(body, "uint8[1,3,8] x, float[2,8] f", 14))
