from __future__ import annotations

import pytest
from scan_cases import graph

from converters.passes import PASSES
from converters.passes.base import Context

BRANCHES = """<then_branch = a () => (float[2,8] p) { h = Relu(x) p = Add(h, x) },
else_branch = b () => (float[2,8] q) { h = Neg(x) q = Identity(h) }>"""


@pytest.mark.parametrize("truth, wanted", [("1", ["Relu", "Add"]), ("0", ["Neg", "Identity"])])
def test_a_constant_condition_takes_its_branch(mended, truth, wanted):
    tried = mended("select_branch", graph(f"c = Constant<value = bool {{{truth}}}>() y = If(c) {BRANCHES}"))
    assert tried.operators == wanted and tried.before == ["CONTROL_FLOW"]


@pytest.mark.parametrize("body", [
    "s = Shape(x) i = Gather(s, o) c = Equal(i, e) k = Squeeze(c)",
    "s = Shape<start=1>(x) c = Equal(s, e) k = Squeeze(c)",
    "s = Shape<start=-2, end=-1>(x) c = Equal(s, b) k = Squeeze(c)",
    "s = Size(x) k = Greater(s, t)",
])  # fmt: skip
def test_a_condition_over_known_sizes_is_folded(mended, body):
    held = {"o": "int64[1] o = {1}", "e": "int64[1] e = {8}", "t": "int64 t = {4}", "b": "int64[1] b = {2}"}
    init = ", ".join(text for name, text in held.items() if f", {name})" in body)
    tried = mended("select_branch", graph(f"{body} y = If(k) {BRANCHES}", init=init))
    assert tried.operators == ["Relu", "Add"] and not tried.model.graph.initializer


def test_a_size_that_is_known_beside_one_that_is_not(mended):
    body = f"s = Shape(x) i = Gather(s, o) c = Equal(i, e) k = Squeeze(c) y = If(k) {BRANCHES}"
    init = "int64[1] o = {1}, int64[1] e = {8}"
    mended("select_branch", graph(body.replace("[2,8]", '["n",8]'), 'float["n",8] x', init=init))


def test_a_size_behind_computed_padding_is_known(mended):
    body = f"""f = Cast<to=1>(n) g = Mul(f, w) p = Cast<to=7>(g) d = Pad(x, p) s = Shape<start=1>(d) c = Equal(s, e)
    k = Squeeze(c) y = If(k) {BRANCHES}"""
    init = "int64[4] n = {0,2,0,2}, float w = {1.5}, int64[1] e = {14}"
    assert "Relu" in mended("select_branch", graph(body, init=init)).operators


def test_branches_within_branches(mended):
    inner = BRANCHES.replace("\n", " ").replace(" a ()", " c ()").replace(" b ()", " d ()")
    body = f"""t = Constant<value = bool {{1}}>() h = Abs(x) y = If(t) <
    then_branch = a () => (float[2,8] z) {{ f = Constant<value = bool {{0}}>() z = If(f) {inner} }},
    else_branch = b () => (float[2,8] w) {{ w = Relu(x) }}> v = Add(y, h)"""
    tried = mended("select_branch", graph(body), 2)
    assert tried.operators == ["Abs", "Neg", "Identity", "Add"]


def test_a_branch_that_hands_on_what_is_outside(mended):
    body = """t = Constant<value = bool {1}>() h = Abs(x) y, z = If(t) <
    then_branch = a () => (float[2,8] h, float[2,8] h) { unused = Relu(x) },
    else_branch = b () => (float[2,8] w, float[2,8] u) { w = Relu(x) u = Neg(x) }> v = Add(y, z)"""
    tried = mended("select_branch", graph(body))
    assert tried.operators.count("Identity") == 2


def test_it_must_not_fire_on_a_condition_of_the_inputs(left):
    body = f"s = ReduceSum<keepdims=0>(x) k = Greater(s, t) y = If(k) {BRANCHES}"
    assert "depends on the inputs" in left("select_branch", graph(body, init="float t = {0}"))


def test_it_must_not_fire_on_a_size_that_is_not_known(left):
    body = f"s = Size(x) k = Greater(s, t) y = If(k) {BRANCHES.replace('[2,8]', '[]')}"
    assert "depends on the inputs" in left("select_branch", graph(body, 'float["n",8] x', init="int64 t = {4}"))


def test_names_that_another_body_uses_are_not_taken(tmp_path):
    """ONNX lets no body make a name that the graph around it has."""
    body = f"c = Constant<value = bool {{1}}>() z = If(c) {BRANCHES} y = If(d) {BRANCHES}"
    model = graph(body, "float[2,8] x, bool d")
    assert PASSES["select_branch"].run(model, Context(tmp_path)).changed == 1
    (kept,) = (node for node in model.graph.node if node.op_type == "If")
    inside = {name for attribute in kept.attribute for node in attribute.g.node for name in node.output}
    assert not inside & {name for node in model.graph.node for name in node.output}


def test_a_condition_that_is_drawn_is_no_constant(left):
    body = f"d = Dropout(w, half, yes) s = ReduceSum<keepdims=0>(d) c = Greater(s, half) y = If(c) {BRANCHES}"
    model = graph(body, init="float[8] w = {1,1,1,1,1,1,1,1}, float half = {0.5}, bool yes = {1}")
    assert "depends on the inputs" in left("select_branch", model)
