from __future__ import annotations

import pytest
from scan_cases import graph


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", ["", "<axis=0>", "<axis=1>"])
def test_all_axes_behind_share_one_sum(mended, op, axis):
    tried = mended("softmax_axis", graph(f"y = {op}{axis}(x)", "float[2,3,4] x", 12))
    assert tried.operators == ["Flatten", op, "Reshape"]


def test_sizes_that_are_not_known_are_taken_from_the_input(mended):
    tried = mended("softmax_axis", graph("y = Softmax(x)", 'float["a","b",4] x', 11))
    assert tried.operators == ["Flatten", "Softmax", "Shape", "Reshape"]


@pytest.mark.parametrize("opset", [9, 11])
@pytest.mark.parametrize("inputs", ["float[2,3,4] x", 'float["a","b",4] x'])
def test_a_negative_axis_is_counted_from_the_front_for_flatten_knows_none_below_11(mended, inputs, opset):
    tried = mended("softmax_axis", graph("y = Softmax<axis=-2>(x)", inputs, opset))
    flatten = next(node for node in tried.model.graph.node if node.op_type == "Flatten")
    assert [attribute.i for attribute in flatten.attribute] == [1]


@pytest.mark.parametrize(
    "body, inputs, opset",
    [
        ("y = Softmax<axis=2>(x)", "float[2,3,4] x", 12),
        ("y = Softmax(x)", "float[2,3,4] x", 13),
        ("y = Softmax(x)", "float[2,4] x", 12),
        ("y = Softmax<axis=1>(x)", "float[2,4,1] x", 12),
    ],
)
def test_it_must_not_fire_where_both_mean_the_same(left, body, inputs, opset):
    assert left("softmax_axis", graph(body, inputs, opset)) == ""
