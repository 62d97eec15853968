"""Sizes that graphs compute from shapes, against what ONNX Runtime makes of the same nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from scan_cases import graph

from converters.facts import facts
from converters.prove import outputs_of
from converters.scan.sizes import computed
from converters.scan.view import view_of

INIT = """int64 i = {-1},
    int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807},
    int64[1] back = {-1}, int64[1] low = {-9223372036854775807}, int64[2] pick = {3, 0}, float half = {0.5},
    float third = {0.3333333}, int64[1] seven = {-7}, float[4] scales = {1, 1, 1.7, 2.3}"""


def sizes_of(body: str, inputs: str, opset: int) -> tuple[onnx.ModelProto, list | None]:
    model = graph(body, inputs, opset, INIT, "int64[] y")
    return model, computed(view_of(model, facts("2.6"), opset), "y")


@pytest.mark.parametrize(
    "body, opset",
    [
        ("y = Shape(x)", 13),
        ("y = Shape<start=-3, end=-1>(x)", 15),
        ("s = Shape(x) y = Gather(s, i)", 13),
        ("s = Shape(x) y = Gather(s, pick)", 13),
        ("s = Shape(x) y = Slice(s, two, far, zero)", 13),
        ("s = Shape(x) y = Slice(s, back, low, zero, back)", 13),
        ("s = Shape(x) y = Slice<starts=[1], ends=[-1]>(s)", 9),
        ("s = Shape(x) a = Gather(s, i) b = Unsqueeze(a, zero) y = Concat<axis=0>(b, pick, b)", 13),
        ("s = Shape(x) y = Div(s, seven)", 13),
        ("s = Shape(x) a = Sub(s, two) b = Mul(a, s) y = Max(b, pick2)", 13),
        ("s = Shape(x) f = Cast<to=1>(s) g = Mul(f, scales) h = Floor(g) y = Cast<to=7>(h)", 13),
        ("s = Shape(x) f = Cast<to=1>(s) g = Div(f, third) h = Ceil(g) y = Cast<to=7>(h)", 13),
        ("s = Shape(x) f = Cast<to=1>(s) g = Mul(f, third) y = Cast<to=7>(g)", 13),
    ],
)
def test_the_sums_are_onnx_runtimes(body, opset):
    body = body.replace("pick2", "w") if "pick2" in body else body
    extra = "w = Concat<axis=0>(pick, pick) " if "(b, w)" in body else ""
    model, found = sizes_of(extra + body, "float[2,3,7,20] x", opset)
    ran = outputs_of(model.SerializeToString(), {"x": np.zeros((2, 3, 7, 20), np.float32)})["y"]
    assert found == ran.reshape(-1).tolist()


def test_names_are_handed_on_and_not_computed_with():
    body = "s = Shape(x) h = Slice(s, two, far, zero) d = Add(h, h) y = Concat<axis=0>(s, d)"
    assert sizes_of(body, 'float["n",3,"h",4] x', 13)[1] == ["n", 3, "h", 4, None, 8]


@pytest.mark.parametrize(
    "body, inputs",
    [
        ("y = Identity(t)", "float[2] x, int64[2] t"),
        ("s = Shape(x) y = Gather(s, t)", "float[2] x, int64[2] t"),
        ("s = Shape(x) y = Reshape(t, s)", "float[2] x, int64[2] t"),
        ("s = Shape(x) y = Div(s, zero)", "float[2] x"),
    ],
)
def test_what_depends_on_data_is_not_known(body, inputs):
    found = sizes_of(body, inputs, 13)[1]
    assert found is None or found == [None]


def test_infinities_and_cycles_end_in_nothing():
    model = graph("s = Shape(x) f = Cast<to=1>(s) g = Mul(f, inf) y = Cast<to=7>(g)", "float[2] x", 13, INIT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([np.inf], np.float32), "inf"))
    assert computed(view_of(model, facts("2.6"), 13), "y") == [None]
    model = graph("s = Identity(y) y = Identity(s)", "float[2] x", 13, INIT)
    assert computed(view_of(model, facts("2.6"), 13), "y") is None
