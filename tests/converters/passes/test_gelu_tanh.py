from __future__ import annotations

import pytest
from scan_cases import graph

TANH = 'y = Gelu<approximate="tanh">(x)'


@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_the_tanh_form_becomes_a_chain_with_a_cube_of_products(mended, kind):
    tried = mended("gelu_tanh", graph(TANH, f"{kind}[2,8] x", 20, output=f"{kind}[] y"))
    assert tried.before == ["GELU.TANH"] and "Gelu" not in tried.operators
    assert "Pow" not in tried.operators and tried.operators.count("Mul") == 6


def test_each_of_several_is_rewritten(mended):
    mended(
        "gelu_tanh", graph('a = Gelu<approximate="tanh">(x) b = Neg(a) y = Gelu<approximate="tanh">(b)', opset=20), 2
    )


@pytest.mark.parametrize("body", ["y = Gelu(x)", 'y = Gelu<approximate="none">(x)', "y = Tanh(x)"])
def test_it_must_not_fire_on_the_exact_form(left, body):
    assert left("gelu_tanh", graph(body, opset=20)) == ""
