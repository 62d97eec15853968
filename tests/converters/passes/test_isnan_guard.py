from __future__ import annotations

import pytest
from scan_cases import graph

GUARD = "n = IsNaN(s) y = Where(n, o, s)"
MASK = "m = Where(b, o, f) q = MatMul(x, x) a = Add(q, m) s = Softmax<axis=-1>(a)"
INPUTS, ZERO = "float[4,4] x, bool[4,4] b, float[4,4] e", "float o = {0}"
FINITE = f"{ZERO}, float f = {{-3.4e38}}"


@pytest.mark.parametrize("body, init", [
    (MASK, FINITE), ("q = MatMul(x, x) s = Softmax<axis=-1>(q)", ZERO),
    ("m = Expand(f, h) q = MatMul(x, x) a = Add(q, m) s = Softmax<axis=-1>(a)", f"{FINITE}, int64[2] h = {{4,4}}"),
])  # fmt: skip
def test_a_guard_behind_a_finite_mask_goes(mended, body, init):
    tried = mended("isnan_guard", graph(f"{body} {GUARD}", INPUTS, init=init), notes=True)
    assert "IsNaN" not in tried.operators and "Identity" in tried.operators and tried.before == ["ISNAN.GPUPIXEL"]


@pytest.mark.parametrize(
    "body, init, reason",
    [
        (MASK, f"{ZERO}, float[1] f = {{0}}", "not finite"),
        (MASK.replace("Where(b, o, f)", "Where(b, f, o)"), f"{ZERO}, float[1] f = {{0}}", "not finite"),
        ("a = Add(x, e) s = Softmax<axis=-1>(a)", ZERO, "reaches it and may hold -inf"),
        ("l = Log(x) s = Softmax<axis=-1>(l)", ZERO, "of Log, is not known to be finite"),
        ("s = Sqrt(x)", ZERO, ""),
    ],
)
def test_it_must_not_fire(left, body, init, reason):
    model = graph(f"{body} {GUARD}", INPUTS, init=init)
    for tensor in model.graph.initializer:
        if tensor.name == "f":
            del tensor.float_data[:]
            tensor.float_data.append(float("-inf"))
    assert reason in left("isnan_guard", model)
