from __future__ import annotations

import pytest
from scan_cases import graph


@pytest.mark.parametrize("shape", ["[2,8]", '["n",8]'])
def test_a_mask_that_is_read_is_all_true(mended, shape):
    tried = mended("dropout_mask", graph("d, m = Dropout(x) f = Cast<to=1>(m) y = Add(d, f)", f"float{shape} x"))
    assert tried.operators == ["Identity", "Shape", "ConstantOfShape", "Cast", "Add"]


@pytest.mark.parametrize(
    "body, init, reason",
    [
        ("y, m = Dropout(x)", "", ""),
        ("d, m = Dropout(x, r, t) y = Cast<to=1>(m)", "float r = {0.5}, bool t = {1}", "training mode"),
    ],
)
def test_it_must_not_fire(left, body, init, reason):
    assert reason in left("dropout_mask", graph(body, init=init))
