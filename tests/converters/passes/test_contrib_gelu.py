from __future__ import annotations

import pytest
from scan_cases import graph


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("body", ["Gelu(x)", "BiasGelu(x, b)", "FastGelu(x)", "FastGelu(x, b)", "QuickGelu(x)",
                                  "QuickGelu<alpha=1.0>(x)"])  # fmt: skip
def test_activations_of_onnx_runtime_become_operators_of_onnx(mended, body, opset):
    tried = mended("contrib_gelu", graph(f"y = com.microsoft.{body}", "float[2,8] x, float[8] b", opset))
    assert {node.domain for node in tried.model.graph.node} == {""} and "Pow" not in tried.operators


def test_a_chain_behind_operators_that_inference_does_not_know(mended):
    body = "a = com.microsoft.FastGelu(x) b = com.microsoft.QuickGelu(a) y = com.microsoft.Gelu(b)"
    mended("contrib_gelu", graph(body, "float16[2,8] x", output="float16[] y"), 3)


@pytest.mark.parametrize("body", ["y = Gelu(x)", "y = com.acme.FastGelu(x)"])
def test_it_must_not_fire_on_other_domains(left, body):
    assert left("contrib_gelu", graph(body, opset=20)) == ""
