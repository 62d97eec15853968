from __future__ import annotations

import pytest
from scan_cases import graph

ODD = "float[1,3,9,10] x"
POOL = "kernel_shape=[3,2], strides=[2,3]"


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(
    "given", [POOL, f"{POOL}, pads=[1,0,0,1]", "kernel_shape=[4,4], strides=[4,4]", "kernel_shape=[2,2], strides=[4,3]"]
)
def test_ceil_mode_becomes_padding_at_the_end(mended, op, given):
    tried = mended("pooling", graph(f"y = {op}<{given}, ceil_mode=1>(x)", ODD))
    assert tried.operators == [op] and "ceil_mode" not in {a.name for a in tried.model.graph.node[0].attribute}


def test_ceil_mode_over_a_size_that_is_not_known(mended):
    tried = mended("pooling", graph("y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)",
                                    'float["n",3,"h","w"] x'))  # fmt: skip
    assert list(tried.model.graph.node[0].attribute[1].ints) in ([2, 2], [0, 0, 1, 1])


@pytest.mark.parametrize("more", ["", ", ceil_mode=1", ', auto_pad="SAME_UPPER"', ', auto_pad="SAME_LOWER"'])
def test_counted_padding_becomes_a_pad_node(mended, more):
    pads = "" if "auto_pad" in more else ", pads=[1,0,1,1]"
    tried = mended("pooling", graph(f"y = AveragePool<{POOL}, count_include_pad=1{pads}{more}>(x)", ODD))
    assert tried.operators == ["Pad", "AveragePool"] and "AVGPOOL.COUNT_INCLUDE_PAD" in tried.before


@pytest.mark.parametrize("op, opset", [("MaxPool", 15), ("AveragePool", 19)])
@pytest.mark.parametrize("more", ["", ", pads=[2,1,1,1]", ", strides=[2,1]", ", ceil_mode=1, strides=[2,2]"])
def test_a_dilated_window_becomes_slices(mended, op, opset, more):
    tried = mended("pooling", graph(f"y = {op}<kernel_shape=[2,3], dilations=[2,2]{more}>(x)", ODD, opset))
    assert tried.operators.count("Slice") == 6 and op not in tried.operators


def test_a_last_window_that_starts_in_the_padding_is_none(mended):
    body = "y = AveragePool<kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1], ceil_mode=1, count_include_pad=1>(x)"
    mended("pooling", graph(body, "float[1,3,5,5] x", 19))


def test_dilation_with_counted_padding(mended):
    body = "y = AveragePool<kernel_shape=[2,2], dilations=[2,3], pads=[1,1,1,1], count_include_pad=1>(x)"
    mended("pooling", graph(body, ODD, 19))


@pytest.mark.parametrize("sizes", ["1,3,9", "1,2,5,6,7"])
def test_one_and_three_spatial_axes(mended, sizes):
    count = sizes.count(",") - 1
    twos = ",".join(["2"] * count)
    mended(
        "pooling", graph(f"y = MaxPool<kernel_shape=[{twos}], strides=[{twos}], ceil_mode=1>(x)", f"float[{sizes}] x")
    )


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        (f"y = MaxPool<{POOL}>(x)", ODD, ""),
        ("y = AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)", "float[1,3,8,8] x", ""),
        (f"y, i = MaxPool<{POOL}, ceil_mode=1>(x) z = Identity(i)", ODD, "Indices are read"),
        ("y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)", 'float[1,3,"h",9] x', "sizes, which are not known"),
        ("y = MaxPool<kernel_shape=[12,12], dilations=[2,2]>(x)", "float[1,1,40,40] x", "144 places"),
        ("y = MaxPool<kernel_shape=[2,2], strides=[3,3], ceil_mode=1>(x)", 'float[1,3,"h",9] x', "depends on its size"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("pooling", graph(body, inputs))


def test_a_model_that_may_not_grow_is_left(left):
    model = graph("y = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(x)", ODD, 19)
    assert "bytes of constants" in left("pooling", model, growth=4)
