from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

from converters.fix import fix_model

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
        ('y = LpPool<kernel_shape=[2,3], auto_pad="SAME_UPPER", strides=[2,1]>(x)', IMAGE),
        ('y = LpPool<kernel_shape=[3,2], auto_pad="SAME_LOWER", p=3>(x)', IMAGE),
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
        ("y = ReverseSequence<time_axis=0, batch_axis=1>(x, l)", "float[T,2,4] x, int64[2] l", "", "axis of time"),
        ("y = ReverseSequence<time_axis=0, batch_axis=1>(x, l)", "float[3,N,4] x, int64[N] l", "", "rows"),
        ("y = LpPool<kernel_shape=[2,2], dilations=[2,2]>(x)", IMAGE, "", "opset 19"),
        ("y = LpPool<kernel_shape=[2,2], ceil_mode=1>(x)", IMAGE, "", "ceil_mode"),
        ("y = ReduceL2(x)", IMAGE, "", ""),
    ],
)
def test_it_must_not_fire(left, body, inputs, init, reason):
    assert reason in left("norms_and_pools", graph(body, inputs, 18, init=init))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("time", [0, 1])
def test_sequences_of_other_lengths_are_reversed(mended, time, constant):
    sizes = "3,4,2" if time == 0 else "4,3,2"
    body = f"y = ReverseSequence<time_axis={time}, batch_axis={1 - time}>(x, l)"
    lengths = np.array([3, 1, 2, 3])
    x = np.arange(24, dtype=np.float32).reshape([int(size) for size in sizes.split(",")])
    if constant:
        made, inputs = graph(body, f"float[{sizes}] x", init="int64[4] l = {3,1,2,3}"), {"x": x}
    else:
        made, inputs = graph(body, f"float[{sizes}] x, int64[4] l"), {"x": x, "l": lengths}
    tried = mended("norms_and_pools", made, inputs=inputs)
    assert "GatherND" in tried.operators


def test_a_dilated_pool_of_powers_is_a_dilated_average(tmp_path):
    """Which the pass `pooling` writes out: two passes together leave nothing."""
    source = tmp_path / "in.onnx"
    model = graph("y = LpPool<kernel_shape=[2,2], dilations=[2,3], p=3, pads=[1,0,1,0]>(x)", IMAGE, 22)
    source.write_bytes(model.SerializeToString())
    report = fix_model(source, tmp_path / "out.onnx")
    assert report["findings"]["after"] == [] and {"LpPool"} & set(report["operators"]["before"])
    rows = {row["name"] for row in report["passes"] if row["changed"]}
    assert rows >= {"norms_and_pools", "pooling"}
