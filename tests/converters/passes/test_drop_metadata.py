from __future__ import annotations

import onnx
import onnx.parser

from converters.passes.base import Context
from converters.passes.drop_metadata import PASS


def a_model(body: str = "y = Relu(x)") -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.doc_string = "written by"
    model.graph.node[-1].metadata_props.add(key="stack", value="File …")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("h", 1, [2]))
    return model


def test_what_no_reader_of_numbers_needs_is_dropped_and_counted():
    model = a_model()
    assert PASS.run(model, Context()).changed == 3
    assert not model.doc_string and not model.graph.value_info and not model.graph.node[0].metadata_props
    assert PASS.run(model, Context()).changed == 0


def test_inner_types_stay_where_subgraphs_may_need_them():
    branches = "<then_branch = a () => (float[2] p) { p = Relu(x) }, else_branch = b () => (float[2] q) { q = Neg(x) }>"
    model = a_model(f"c = Constant<value = bool {{1}}>() y = If(c) {branches}")
    outcome = PASS.run(model, Context())
    assert len(model.graph.value_info) == 1 and "subgraphs" in outcome.left["value_info"]
