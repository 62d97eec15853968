from __future__ import annotations

import pytest
from scan_cases import graph

INDICES = "int64[2] i = {-1, 0}, int64[1,1] t = {-2}, int64[2,1] r = {-1,-3}, "
INDICES += "int64[2,8] e = {-1,0,1,0,1,0,-2,0,0,0,0,0,0,0,0,-1}"


@pytest.mark.parametrize(
    "body",
    [
        "Gather(x, i)",
        "Gather<axis=1>(x, i)",
        "GatherElements(x, e)",
        "GatherND(x, t)",
        "ScatterElements(x, e, x)",
        "GatherND<batch_dims=1>(x, r)",
    ],
)
def test_indices_are_counted_from_the_front(mended, body):
    model = graph(f"y = {body}", init=INDICES)
    read = set(model.graph.node[0].input)
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in read]:
        model.graph.initializer.remove(tensor)
    tried = mended("positive_indices", model)
    assert all(v >= 0 for t in tried.model.graph.initializer for v in tried.constant(t.name).reshape(-1))
    assert set(tried.levels.values()) == {None}


@pytest.mark.parametrize("body, shape, reason", [
    ("Gather(x, j)", "[2,8]", ""), ("Gather(x, i)", '["n",8]', "axis is not known"),
])  # fmt: skip
def test_it_must_not_fire(left, body, shape, reason):
    model = graph(f"y = {body}", f"float{shape} x", init=f"{INDICES}, int64[2] j = {{1, 0}}")
    assert reason in left("positive_indices", model)
