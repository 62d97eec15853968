from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph


@pytest.mark.parametrize("given", ["", "<exclusive=1>", "<reverse=1>", "<exclusive=1, reverse=1>"])
@pytest.mark.parametrize("axis, inputs", [(1, "float[2,8] x"), (-2, "float[2,5,3] x"), (0, "float[1,4] x")])
def test_a_running_product(mended, given, axis, inputs):
    made = graph(f"y = CumProd{given}(x, a)", inputs, 26, init=f"int64 a = {{{axis}}}")
    tried = mended("arithmetic", made, sentis="2.6")
    assert tried.before == ["OPERATOR.UNSUPPORTED"]


@pytest.mark.parametrize("inputs", ["float[2,2] x", "float[4,2,2] x", "float[2,3,3,3] x", "float[5,1,1] x"])
def test_a_small_determinant(mended, inputs):
    assert "Det" not in mended("arithmetic", graph("y = Det(x)", inputs, 11)).operators


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("cache, update", [("2,3,8,4", "2,3,2,4"), ("2,8,4", "2,1,4"), ("2,3,8,4", "2,3,3,4")])
def test_a_cache_is_written_at_each_rows_place(mended, mode, cache, update):
    body = f'y = TensorScatter<mode="{mode}">(x, z, w)'
    rng = np.random.default_rng(0)
    sizes = [[int(one) for one in text.split(",")] for text in (cache, update)]
    inputs = {name: rng.standard_normal(size).astype(np.float32) for name, size in zip("xz", sizes, strict=True)}
    inputs["w"] = np.array([7, 1] if mode == "circular" else [5, 0])
    made = graph(body, f"float[{cache}] x, float[{update}] z, int64[2] w", 24)
    assert "Where" in mended("arithmetic", made, inputs=inputs).operators


def test_a_cache_that_is_written_from_its_start(mended):
    mended("arithmetic", graph("y = TensorScatter(x, z)", "float[2,3,8,4] x, float[2,3,2,4] z", 24))


def test_an_axis_of_one(mended):
    made = graph("y = com.microsoft.ExpandDims(x, a)", "float[2,8] x", 17, init="int32 a = {-1}")
    assert mended("arithmetic", made).operators == ["Unsqueeze"]


@pytest.mark.parametrize("body, inputs, opset, reason", [
    ("y = Det(x)", "float[4,4] x", 11, "more than 3 rows"),
    ("y = CumProd(x, a)", 'float["n",8] x, int64 a', 26, "not known"),
    ("y = TensorScatter(x, z)", 'float[2,3,"t",4] x, float[2,3,2,4] z', 24, "not known"),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, opset, reason):
    assert reason in left("arithmetic", graph(body, inputs, opset))
