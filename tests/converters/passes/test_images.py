from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph


@pytest.mark.parametrize("size, inputs", [("2,3,4,5", "float[2,2,3] x"), ("1,2,3,4,5", "float[1,3,4] x")])
@pytest.mark.parametrize("align", [0, 1])
def test_an_affine_grid_is_a_product_with_its_points(mended, size, inputs, align):
    body, count = f"y = AffineGrid<align_corners={align}>(x, s)", size.count(",") + 1
    tried = mended("images", graph(body, inputs, 20, init=f"int64[{count}] s = {{{size}}}"))
    assert tried.operators == ["Transpose", "MatMul", "Reshape"]


@pytest.mark.parametrize("image, block, blocks, given", [
    ("5,5", "1,5", 5, ""), ("5,5", "2,2", 16, "<dilations=[1,1]>"), ("6,7", "3,2", 6, "<strides=[2,2]>"),
    ("5,5", "3,3", 25, "<pads=[1,1,1,1]>"), ("5,6", "2,2", 4, "<dilations=[2,3], strides=[2,2]>"), ("8", "3", 6, ""),
])  # fmt: skip
def test_blocks_are_summed_by_a_transposed_convolution(mended, image, block, blocks, given):
    places = int(np.prod([int(one) for one in block.split(",")]))
    count = image.count(",") + 1
    init = f"int64[{count}] i = {{{image}}}, int64[{count}] b = {{{block}}}"
    tried = mended("images", graph(f"y = Col2Im{given}(x, i, b)", f"float[2,{3 * places},{blocks}] x", 18, init=init))
    assert tried.operators == ["Reshape", "ConvTranspose", "Reshape"]


@pytest.mark.parametrize("shape", ["", ", s"])
def test_values_go_back_to_their_places(mended, shape):
    window = "<kernel_shape=[2,2], strides=[2,2]>"
    body = f"v, i = MaxPool{window}(x) y = MaxUnpool{window}(v, i{shape})"
    init = "int64[4] s = {1,2,6,4}" if shape else ""
    tried = mended("images", graph(body, "float[1,2,6,4] x", 16, init=init), 2)
    assert "ScatterElements" in tried.operators and set(tried.before) == {"OPERATOR.UNSUPPORTED", "MAXPOOL.INDICES"}


@pytest.mark.parametrize("given", [
    "kernel_shape=[2,2]", "kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]", "kernel_shape=[2,2], dilations=[2,1]",
])  # fmt: skip
def test_indices_are_the_largest_number_of_a_window(mended, given):
    x = np.random.default_rng(0).permutation(2 * 3 * 7 * 6).reshape(2, 3, 7, 6).astype(np.float32) - 90
    tried = mended(
        "images", graph(f"v, i = MaxPool<{given}>(x) y = Cast<to=1>(i)", "float[2,3,7,6] x", 12), inputs={"x": x}
    )
    assert tried.before == ["MAXPOOL.INDICES"]


@pytest.mark.parametrize("pads", ["0,0,3,0,0,3", "0,0,0,0,0,3", "0,2,4,0,1,9"])
def test_a_long_reflection_is_a_gather(mended, pads):
    body = 'y = Pad<mode="reflect">(x, p)'
    tried = mended("images", graph(body, "float[2,3,3] x", 13, init=f"int64[6] p = {{{pads}}}"))
    assert tried.before == ["PAD.REFLECT_BIG"] and set(tried.operators) == {"Gather"}


@pytest.mark.parametrize("body, inputs, init, reason", [
    ("y = AffineGrid(x, s)", "float[2,2,3] x, int64[4] s", "", "no constant"),
    ('y = Pad<mode="reflect">(x, p)', 'float[2,8] x', "int64[4] p = {0,3,0,3}", ""),
    ("v, y = MaxPool<kernel_shape=[2]>(x)", 'float[2,3,"n"] x', "", "not known"),
    ("y = Col2Im(x, i, b)", 'float[2,"c",5] x', "int64[2] i = {5,5}, int64[2] b = {1,5}", "channels are not known"),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, init, reason):
    assert reason in left("images", graph(body, inputs, 20, init=init))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_indices_of_whole_numbers(mended, kind):
    body = "p, y = MaxPool<kernel_shape=[2,3], strides=[2,2], pads=[0,1,1,1]>(x)"
    x = np.random.default_rng(5).integers(np.iinfo(kind).min, np.iinfo(kind).max, (1, 2, 5, 6)).astype(kind)
    output = f"{kind}[1,2,3,3] p, int64[1,2,3,3] y"
    tried = mended("images", graph(body, f"{kind}[1,2,5,6] x", output=output), inputs={"x": x})
    assert set(tried.levels.values()) == {None} and tried.after == []
