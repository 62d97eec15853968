"""The tanh form of Gelu, an operator from opset 20 on: written out with its numbers, the exact form left."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir
import pytest

from converters.explain import explain
from converters.prove import outputs_of
from converters.tidy_forms import tanh_gelus_written_out
from weights_bridge.compare import psnr_db


def model(body: str) -> onnx_ir.Model:
    text = f'<ir_version: 9, opset_import: ["" : 20]> g (float[2,30] x) => (float[2,30] y) {{ {body} }}'
    return onnx_ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


@pytest.mark.parametrize("body, gelus", [
    ('y = Gelu<approximate="tanh">(x)', 1),
    ('a = Gelu<approximate="tanh">(x) b = Mul(a, x) y = Gelu<approximate="tanh">(b)', 2),
])  # fmt: skip
def test_the_tanh_form_is_written_out_with_its_numbers_and_no_layer_becomes_gelu_fast(tmp_path, body, gelus):
    x = {"x": np.linspace(-12, 12, 60, dtype=np.float32).reshape(2, 30)}
    held = model(body)
    wanted = outputs_of(onnx_ir.to_proto(held).SerializeToString(), x)["y"]
    assert tanh_gelus_written_out(held.graph) == gelus
    made = onnx_ir.to_proto(held)
    onnx.checker.check_model(made, full_check=True)
    assert Counter(node.op_type for node in made.graph.node)["Tanh"] == gelus
    assert psnr_db(wanted, outputs_of(made.SerializeToString(), x)["y"]) > 120
    onnx.save(made, tmp_path / "m.onnx")
    assert "GeluFast" not in explain(tmp_path / "m.onnx").prediction.layers
    assert tanh_gelus_written_out(held.graph) == 0


@pytest.mark.parametrize("body", ["y = Gelu(x)", 'y = Gelu<approximate="none">(x)'])
def test_the_exact_form_is_left_as_it_is(body):
    held = model(body)
    assert tanh_gelus_written_out(held.graph) == 0
    assert [node.op_type for node in held.graph] == ["Gelu"]
