from __future__ import annotations

import pytest
from scan_cases import graph

IMAGE = "float[2,3,7,8] x"


@pytest.mark.parametrize(
    "body, inputs",
    [
        ("y = LpNormalization<axis=1, p=1>(x)", "float[2,8] x"),
        ("y = LpNormalization<p=2>(x)", "float[2,8] x"),
        ("y = GlobalLpPool(x)", IMAGE),
        ("y = MeanVarianceNormalization(x)", IMAGE),
        ("y = MeanVarianceNormalization<axes=[1,3]>(x)", IMAGE),
        ("y = GlobalLpPool<p=3>(x)", IMAGE),
        ("y = LpPool<kernel_shape=[2,3], strides=[2,1], p=2>(x)", IMAGE),
        ("y = LpPool<kernel_shape=[2,2], pads=[1,0,1,1], p=1>(x)", IMAGE),
        ("e = EyeLike<k=1>(x) y = Add(e, x)", "float[3,4] x"),
        ("y = ReverseSequence<time_axis=0, batch_axis=1>(x, l)", "float[3,2,4] x"),
    ],
)
def test_operators_that_sentis_lacks(mended, body, inputs):
    init = "int64[2] l = {3,3}" if " l)" in body else ""
    mended("norms_and_pools", graph(body, inputs, init=init))


@pytest.mark.parametrize(
    "body, inputs, init, reason",
    [
        ("y = EyeLike(x)", 'float["n",4] x', "", "shape is not known"),
        ("y = ReverseSequence<time_axis=0, batch_axis=1>(x, l)", "float[3,2,4] x", "int64[2] l = {3,2}", "lengths"),
        ("y = LpPool<kernel_shape=[2,2], ceil_mode=1>(x)", IMAGE, "", "ceil_mode"),
        ("y = ReduceL2(x)", IMAGE, "", ""),
    ],
)
def test_it_must_not_fire(left, body, inputs, init, reason):
    assert reason in left("norms_and_pools", graph(body, inputs, 18, init=init))
