from __future__ import annotations

import pytest
from scan_cases import GELU_CHAIN, GELU_CONSTANTS, graph

from converters.fusions import predict

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


def fused_layers(model) -> set[str]:
    return {one.layer for one in predict(model, "2.6").fused}


def test_a_chain_that_sentis_would_fuse_gets_another_cube(mended):
    model = graph(GELU_CHAIN, init=GELU_CONSTANTS)
    assert "GeluFast" in fused_layers(model)
    tried = mended("gelu_tanh", model)
    assert tried.before == ["POW.GELU_FAST"] and "Pow" not in tried.operators
    assert "GeluFast" not in fused_layers(tried.model)


def test_what_is_written_is_not_fused_back(mended):
    tried = mended("gelu_tanh", graph(TANH, opset=20))
    assert "GeluFast" not in fused_layers(tried.model)


@pytest.mark.parametrize("body", ["y = Gelu(x)", 'y = Gelu<approximate="none">(x)', "y = Tanh(x)"])
def test_it_must_not_fire_on_the_exact_form(left, body):
    assert left("gelu_tanh", graph(body, opset=20)) == ""
