from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

K = "int64[1] k = {3}"


@pytest.mark.parametrize("kind, given", [("float", ""), ("int32", ", axis=0"), ("float16", ", sorted=1")])
def test_the_smallest_are_the_largest_of_the_negated(mended, kind, given):
    body = f"v, i = TopK<largest=0{given}>(x, k) j = Cast<to=1>(i) w = Cast<to=1>(v) y = Add(j, w)"
    if kind == "float16":
        body = "v, i = TopK<largest=0>(x, k) y = Identity(v)"
    tried = mended(
        "topk_smallest", graph(body, f"{kind}[4,8] x", init=K, output=f"{'float' if kind != 'float16' else kind}[] y")
    )
    assert tried.operators[:3] == ["Neg", "TopK", "Neg"]


def test_ties_keep_their_order(mended):
    x = np.array([[1, -2, -2, 0, 1, -2, 3, 0]], np.float32)
    body = "v, i = TopK<largest=0>(x, k) y = Cast<to=1>(i)"
    tried = mended("topk_smallest", graph(body, "float[1,8] x", init=K), inputs={"x": x})
    assert set(tried.levels.values()) == {None}


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y, i = TopK(x, k)", "float[4,8] x", ""),
        ("r = Relu(x) y, i = TopK<largest=0>(r, k)", "float[4,8] x", ""),
        ("y, i = TopK<largest=0>(x, k)", "uint8[4,8] x", ""),
        ("z = ScatterElements(x, j, x) y, i = TopK<largest=0>(z, k)", "uint8[4,8] x, int64[4,8] j", "no negative"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("topk_smallest", graph(body, inputs, init=K))
