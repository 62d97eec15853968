from __future__ import annotations

import pytest
from scan_cases import graph


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_a_window_of_known_length_is_a_constant(mended, op, periodic):
    made = graph(f"w = {op}<periodic={periodic}>(n) y = Mul(x, w)", "float[2,16] x", 17, init="int64 n = {16}")
    tried = mended("baked", made)
    assert tried.operators == ["Mul"] and tried.before == [f"{op.upper()}.INDEX"]


def test_a_window_as_long_as_an_axis(mended):
    made = graph(
        "s = Shape(x) n = Gather(s, i) w = HannWindow(n) y = Mul(x, w)", "float[2,16] x", 17, init="int64 i = {1}"
    )
    assert mended("baked", made).operators[-1] == "Mul"


def test_a_mel_matrix_is_a_constant(mended):
    init = "int64 m = {8}, int64 n = {32}, int64 r = {16000}, float l = {0}, float h = {8000}"
    made = graph("w = MelWeightMatrix(m, n, r, l, h) y = MatMul(x, w)", "float[2,17] x", 17, init=init)
    assert mended("baked", made).operators == ["MatMul"]


def test_it_must_not_fire_on_a_length_that_is_an_input(left):
    assert "depends on the model's inputs" in left("baked", graph("y = HannWindow(n)", "int64 n", 17))
