from __future__ import annotations

import pytest
from scan_cases import graph

CONSTANTS = {
    "m": "int64 m = {3}", "none": "int64 none = {0}", "many": "int64 many = {600}", "t": "bool t = {1}",
    "no": "bool no = {0}", "k": "float k = {0.5}", "one": "int64 one = {1}", "two": "int64 two = {2}",
    "part": "int64 part = {3}", "e": "float[1,2] e = {0.25, -0.5}",
}  # fmt: skip
SUM = """body = b (int64 i, bool g, float[2,8] s) => (bool h, float[2,8] u, float[2,8] v)
{ h = Identity(g) f = Cast<to=1>(i) w = Add(f, k) u = Mul(s, w) v = Sub(u, x) }"""


def model(body: str, inputs: str = "float[2,8] x", opset: int = 15):
    made = graph(body, inputs, opset, init=", ".join(CONSTANTS.values()))
    text = body.replace("(", " ").replace(")", " ").replace(",", " ").split()
    for tensor in [tensor for tensor in made.graph.initializer if tensor.name not in text]:
        made.graph.initializer.remove(tensor)
    return made


def test_a_loop_of_known_rounds_hands_on_and_collects(mended):
    tried = mended("unroll", model(f"a, c = Loop(m, t, x) <{SUM}> y = Add(a, c)"))
    assert tried.before == ["CONTROL_FLOW"]
    assert tried.operators.count("Mul") == tried.operators.count("Sub") == 3 and "Loop" not in tried.operators


def test_a_loop_without_a_condition(mended):
    assert mended("unroll", model(f"a, y = Loop(m, , x) <{SUM}> z = Neg(a)")).operators.count("Concat") == 1


def test_a_loop_over_a_size_that_is_known(mended):
    body = f"s = Shape(x) r = Gather(s, one) a, y = Loop(r, t, x) <{SUM}>"
    assert mended("unroll", model(body)).operators.count("Mul") == 8


def test_a_loop_that_ends_by_counting(mended):
    inner = """body = b (int64 i, bool g, int64 n, float[2,8] s) => (bool h, int64 p, float[2,8] u)
    { p = Add(n, two) h = Less(p, many) q = Mul(p, p) r = Less(q, many) h2 = And(h, r) u = Add(s, x) }"""
    body = f"a, y = Loop(, t, one, x) <{inner.replace('bool h,', 'bool h2,')}>"
    tried = mended("unroll", model(body))
    assert tried.operators.count("Mul") == 12  # 3, 5, … 25: 25² = 625 is the first that is not below 600


def test_a_loop_that_does_not_begin(mended):
    inner = SUM.replace(", float[2,8] v)", ")").replace("v = Sub(u, x)", "")
    assert mended("unroll", model(f"a = Loop(none, t, x) <{inner}> y = Abs(a)")).operators == ["Identity", "Abs"]
    assert mended("unroll", model(f"a = Loop(m, no, x) <{inner}> y = Abs(a)")).operators == ["Identity", "Abs"]


def test_two_outputs_of_one_tensor(mended):
    inner = """body = b (int64 i, bool g, float[2,8] s, float[2,8] r) => (bool g, float[2,8] u, float[2,8] u)
    { u = Mul(s, r) }"""
    mended("unroll", model(f"a, c = Loop(m, t, x, x) <{inner}> y = Sub(a, c)"))


def test_loops_within_loops(mended):
    inner = SUM.replace("b (int64 i, bool g, float[2,8] s)", "d (int64 j, bool q, float[2,8] r)")
    inner = inner.replace("h = Identity(g)", "h = Identity(q)").replace("Cast<to=1>(i)", "Cast<to=1>(j)")
    inner = inner.replace("Mul(s, w)", "Mul(r, w)")
    for name in "hfwuv":
        inner = inner.replace(f" {name} ", f" {name}{name} ").replace(f"({name},", f"({name}{name},")
    body = f"""a = Loop(m, t, x) <body = b (int64 i, bool g, float[2,8] s) => (bool g, float[2,8] o)
    {{ o, all = Loop(m, t, s) <{inner.replace(" h,", " hh,").replace(" u,", " uu,").replace(" v)", " vv)")}> }}>
    y = Neg(a)"""
    body = body.replace(", w)", ", ww)")
    assert mended("unroll", model(body), 4).operators.count("Mul") == 9


def test_a_sequence_that_a_loop_builds_becomes_a_concat(mended, tmp_path):
    from converters.fix import fix_model

    inner = """body = b (int64 i, bool g, seq(float[2,8]) q) => (bool g, seq(float[2,8]) r)
    { f = Cast<to=1>(i) w = Mul(x, f) r = SequenceInsert(q, w) }"""
    made = model(f"e = SequenceEmpty<dtype=1>() s = Loop(m, t, e) <{inner}> y = ConcatFromSequence<axis=0>(s)")
    source = tmp_path / "in.onnx"
    source.write_bytes(made.SerializeToString())
    report = fix_model(source, tmp_path / "out.onnx")
    assert report["findings"]["before"] and not report["findings"]["after"]
    assert report["operators"]["after"] == {"Cast": 3, "Concat": 1, "Mul": 3}


SCAN = """body = b (float[1,2] s, float[1,2] a) => (float[1,2] u, float[1,2] v)
{ w = Mul(s, k) u = Add(w, a) v = Tanh(u) }"""


@pytest.mark.parametrize("given", [
    "", ", scan_input_directions=[1]", ", scan_output_directions=[1]", ", scan_output_axes=[1]",
    ", scan_output_axes=[-1]",
])  # fmt: skip
def test_a_scan_over_a_known_axis(mended, given):
    body = f"l, y = Scan(e, x) <num_scan_inputs=1{given}, {SCAN}> z = Neg(l)"
    tried = mended("unroll", model(body, "float[5,1,2] x"))
    assert tried.operators.count("Tanh") == 5


def test_a_scan_over_two_tensors_on_other_axes(mended):
    inner = "body = b (float[1,2] s, float[1,2] a, float[1,2] c) => (float[1,2] u) { w = Mul(s, a) u = Add(w, c) }"
    body = f"y = Scan(e, x, z) <num_scan_inputs=2, scan_input_axes=[1,-1], scan_input_directions=[0,1], {inner}>"
    assert mended("unroll", model(body, "float[1,4,2] x, float[1,2,4] z")).operators.count("Gather") == 8


def test_a_body_for_each_element_of_a_sequence(mended):
    inner = "body = b (float[2,4] a, float[2,8] c) => (float[2,4] u) { d = ReduceMax(c) w = Mul(a, k) u = Add(w, d) }"
    body = f"s = SplitToSequence<axis=1>(x, part) q = SequenceMap(s, x) <{inner}> y = ConcatFromSequence<axis=1>(q)"
    tried = mended("unroll", model(body, opset=17))
    assert tried.operators.count("ReduceMax") == 3 and tried.after == ["OPERATOR.UNSUPPORTED"] * 2


@pytest.mark.parametrize("body, inputs, reason", [
    (f"a, y = Loop(n, t, x) <{SUM}>", "float[2,8] x, int64 n", "depends on the inputs"),
    (f"a, y = Loop(m, c, x) <{SUM}>", "float[2,8] x, bool c", "whether it begins"),
    (f"a, y = Loop(many, t, x) <{SUM}>", "float[2,8] x", "are too many"),
    (f"a, y = Loop(none, t, x) <{SUM}>", "float[2,8] x", "no rounds"),
    (f"a, y = Loop(m, t, x) <{SUM.replace('Identity(g)', 'Identity(c)')}>", "float[2,8] x, bool c", "goes on"),
    (f"l, y = Scan(e, x) <num_scan_inputs=1, {SCAN}>", 'float["n",1,2] x', "depends on the inputs"),
    ("y = Relu(x)", "float[2,8] x", ""),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("unroll", model(body, inputs))
