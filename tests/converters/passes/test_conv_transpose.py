from __future__ import annotations

import pytest
from scan_cases import graph

INPUTS = "float[1,3,5,6] x, float[3,2,3,4] w, float[2] b"


@pytest.mark.parametrize("shape", ["[12,15]", "[9,12]", "[10,13]", "[11,14]"])
@pytest.mark.parametrize("more", ["", ', auto_pad="SAME_UPPER"', ', auto_pad="SAME_LOWER"', ", dilations=[2,1]"])
def test_the_wanted_shape_becomes_padding(mended, shape, more):
    body = f"y = ConvTranspose<strides=[2,2], output_shape={shape}{more}>(x, w, b)"
    tried = mended("conv_transpose", graph(body, INPUTS))
    assert tried.before == ["CONVTRANSPOSE.OUTPUT_SHAPE"] and tried.operators == ["ConvTranspose"]


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y = ConvTranspose<output_shape=[99,99]>(x, w)", INPUTS, "the whole result has 7, wanted are 99"),
        ("y = ConvTranspose<output_shape=[9,9]>(x, w)", 'float[1,3,"h",6] x, float[3,2,3,4] w', "not known"),
        ("y = ConvTranspose(x, w)", INPUTS, ""),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("conv_transpose", graph(body, inputs))


@pytest.mark.parametrize("pads", ["1,0,1,2,1,0", "1,1,1,0,1,1", "0,0,0,1,0,0"])
def test_a_padded_depth_is_cut_behind(mended, pads):
    body = f"y = ConvTranspose<pads=[{pads}], strides=[2,1,2]>(x, w)"
    tried = mended("conv_transpose", graph(body, "float[1,2,4,5,6] x, float[2,3,3,3,3] w"))
    assert tried.operators == ["ConvTranspose", "Slice"] and tried.before == ["CONVTRANSPOSE.3D_CPU"]
