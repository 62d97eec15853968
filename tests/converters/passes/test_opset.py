from __future__ import annotations

import numpy as np
import pytest
from scan_cases import IMAGE, ROWS, graph


@pytest.mark.parametrize(
    "body, inputs, opset, init",
    [
        ("y = ReduceMean<keepdims=0>(x, a)", ROWS, 18, "int64[1] a = {-1}"),
        ("y = ReduceMax(x)", ROWS, 20, ""),
        ("y = ReduceSum(x, a)", ROWS, 18, "int64[1] a = {-1}"),
        ("p, q, r = Split<num_outputs=3, axis=1>(x) y = Concat<axis=1>(r, p)", ROWS, 18, ""),
        ("y = Pad(x, p, , a)", ROWS, 18, "int64[2] p = {1,2}, int64[1] a = {-1}"),
        ("y = Pad(x, p, v, a)", ROWS, 21, "int64[4] p = {1,0,0,2}, float v = {3}, int64[2] a = {1,0}"),
        ('y = Pad<mode="wrap">(x, p)', ROWS, 19, "int64[4] p = {1,2,0,1}"),
        ('y = Pad<mode="wrap">(x, p, , a)', ROWS, 19, "int64[2] p = {3,0}, int64[1] a = {-1}"),
        (
            "s = Shape(x) h = Div(s, k) p = Concat<axis=0>(h, h) y = Pad(x, p, , a)",
            ROWS, 18, "int64[2] k = {2,4}, int64[2] a = {0,1}",
        ),
        ("h = Swish(x) y = Swish<alpha=1.5>(h)", ROWS, 24, ""),
        ("y = LayerNormalization(x, s, s)", f"{ROWS}, float[8] s", 17, ""),
        ("y = Gelu(x)", ROWS, 20, ""),
        ('y = Gelu<approximate="tanh">(x)', ROWS, 20, ""),
        ("y = Mish(x)", ROWS, 18, ""),
        ('y = Resize<mode="linear", axes=[2,3]>(x, , s)', IMAGE, 18, "float[2] s = {2,2}"),
        ('y = Resize<mode="linear", axes=[3,2]>(x, , , s)', IMAGE, 19, "int64[2] s = {16,4}"),
        ("i = Cast<to=6, saturate=1>(x) y = Cast<to=1>(i)", ROWS, 19, ""),
        ("y = AveragePool<kernel_shape=[2,2], dilations=[1,1]>(x)", IMAGE, 19, ""),
        ("s = Shape(x) y = Reshape(x, s)", ROWS, 23, ""),
        ('y = ScatterElements<reduction="none">(x, i, x)', f"{ROWS}, int64[2,8] i", 18, ""),
    ],
)  # fmt: skip
def test_a_graph_comes_down_to_opset_15(mended, body, inputs, opset, init):
    tried = mended("opset", graph(body, inputs, opset, init=init), sentis="2.4")
    assert tried.model.opset_import[0].version == 15 and tried.before == ["OPSET.WINDOW"]
    assert "OPSET.WINDOW" not in tried.after


@pytest.mark.parametrize("sentis, opset, wanted", [("2.6", 26, 25), ("2.6", 6, 7), ("2.4", 6, 7)])
def test_what_onnx_converts_is_left_to_onnx(mended, sentis, opset, wanted):
    tried = mended("opset", graph("h = Relu(x) y = Sigmoid(h)", opset=opset), sentis=sentis)
    assert tried.model.opset_import[0].version == wanted


@pytest.mark.parametrize(
    "body, inputs, opset, reason",
    [
        ("y = Relu(x)", ROWS, 15, ""),
        ("y = CenterCropPad(x, i)", f"{ROWS}, int64[2] i", 18, "CenterCropPad: not in opset 15"),
        ("y = ReduceMean(x, a)", f"{ROWS}, int64[1] a", 18, "axes are not constant"),
        ('y = Pad<mode="wrap">(x, p)', f"{ROWS}, int64[4] p", 19, "Pad: its pads or its rank are not known"),
        ("y = Pad(x, p, , a)", f"{ROWS}, int64[2] p, int64[1] a", 18, "Pad: its pads, axes or rank are not known"),
        ("p, q = Split<num_outputs=2>(x) y = Relu(p)", 'float["n",8] x', 18, "size of its axis is not known"),
        ("y = GridSample(x, g)", 'float[1,3,"h",8] x, float[1,4,4,2] g', 16, "GridSample: volumes, or a picture whose"),
        ("b = BitwiseNot(i) y = Cast<to=1>(b)", "uint32[2] i", 18, "BitwiseNot: its type is not known, or holds"),
        ('y = ScatterElements<reduction="add">(x, i, x)', f"{ROWS}, int64[2,8] i", 18, "reduction = add"),
    ],
)
def test_all_or_nothing_is_converted(left, body, inputs, opset, reason):
    assert reason in left("opset", graph(f"z = Gelu(x) {body}" if opset >= 20 else body, inputs, opset), sentis="2.4")


def test_several_reasons_are_all_told(left):
    told = left("opset", graph("a = BitwiseNot(i) y = BitwiseAnd(a, i)", "uint32[2] i", 18), sentis="2.4")
    assert "BitwiseNot" in told and "BitwiseAnd" in told


def test_large_inputs_do_not_part_the_two_forms(mended):
    x = np.array([[-1e4, -50, -3, -0.0, 0.0, 3, 50, 1e4]], np.float32)
    mended("opset", graph("y = Gelu(x)", "float[1,8] x", 20), sentis="2.4", inputs={"x": x})


@pytest.mark.parametrize(
    "op, wanted", [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]
)
@pytest.mark.parametrize("axis", [1, -2])
def test_an_axis_of_old_broadcasts_is_written_out(op, wanted, axis):
    from converters.passes import PASSES
    from converters.passes.base import Context
    from converters.prove import outputs_of

    made = graph(f"y = {op}<broadcast=1, axis={axis}>(x, z)", "float[2,3,4] x, float[3] z", 6)
    assert PASSES["opset"].run(made, Context()).changed == 1 and made.opset_import[0].version == 7
    x, z = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32), np.array([1, -2, 3], np.float32)
    found = outputs_of(made.SerializeToString(), {"x": x, "z": z})["y"]  # ONNX Runtime begins at opset 7
    np.testing.assert_allclose(found, wanted(x, z[:, None]), rtol=1e-6)


def test_the_long_name_of_the_domain_becomes_an_empty_text(mended):
    made = graph("y = Gelu(x)", "float[2,8] x", 20)
    made.opset_import[0].domain = "ai.onnx"
    tried = mended("opset", made)
    assert tried.before == ["OPSET.DOMAIN"] and [one.domain for one in tried.model.opset_import] == [""]
