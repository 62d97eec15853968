from __future__ import annotations

import onnx
import onnx.parser
import pytest

TEXT = """
<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]>
g (float[2, 8] x) => (float[2, 8] y) {{ a = local.outer(x)  y = local.inner(a) }}
<domain: "local", opset_import: ["" : {inner}, "local" : 1]>
outer (p) => (q) {{ h = local.inner(p)  q = Add(h, p) }}
<domain: "local", opset_import: ["" : {inner}]>
inner (p) => (q) {{ h = Relu(p)  q = Neg(h) }}
"""


@pytest.mark.parametrize("opset, inner", [(18, 18), (18, 17)])
def test_functions_within_functions_are_put_in_their_place(mended, opset, inner):
    tried = mended("inline_functions", onnx.parser.parse_model(TEXT.format(opset=opset, inner=inner)), 2)
    assert tried.operators == ["Relu", "Neg", "Add", "Relu", "Neg"] and not tried.model.functions
    assert tried.after == []


def test_weights_stay_where_they_are(mended):
    model = onnx.parser.parse_model(TEXT.format(opset=18, inner=18))
    big = onnx.helper.make_tensor("w", 1, [64, 64], [1.0] * 4096)
    model.graph.initializer.append(big)
    model.graph.node[0].input[0] = "x"
    tried = mended("inline_functions", model, 2)
    assert tried.constant("w").sum() == 4096


def test_it_must_not_fire_on_a_model_without_functions(left):
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    assert left("inline_functions", onnx.parser.parse_model(text)) == ""


def test_it_must_not_fire_where_a_functions_opset_gives_a_node_another_meaning(left):
    text = TEXT.format(opset=18, inner=11).replace("Relu(p)", "Softmax(p)")
    assert "Softmax means one thing in inner's opset 11, another in 18" in left(
        "inline_functions", onnx.parser.parse_model(text)
    )
