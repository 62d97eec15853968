from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

from converters.passes import PASSES
from converters.passes.base import Context
from converters.prove import outputs_of

WIDE = np.array([[-70000, -129, -128, -1, 0, 1, 127, 128], [255, 256, 257, 32767, 32768, 65535, 65536, 2**31 - 1]])


@pytest.mark.parametrize("source", ["int32", "int64"])
@pytest.mark.parametrize("to", [2, 3, 4, 5])
def test_a_cast_to_fewer_bits_keeps_the_low_ones(mended, source, to):
    body = f"n = Cast<to={to}>(x) y = Cast<to=1>(n)"
    tried = mended("whole_numbers", graph(body, f"{source}[2,8] x"), inputs={"x": WIDE.astype(source)})
    assert tried.before == ["CAST.NARROW_INT"] and "Mod" in tried.operators


@pytest.mark.parametrize("source, to", [("int8", 2), ("uint8", 3), ("int16", 2), ("uint16", 5)])
def test_a_cast_to_other_signs(mended, source, to):
    mended("whole_numbers", graph(f"n = Cast<to={to}>(x) y = Cast<to=1>(n)", f"{source}[2,8] x"),
           inputs={"x": WIDE.astype(source)})  # fmt: skip


@pytest.mark.parametrize("source", ["uint8", "uint16"])
def test_the_complement_of_numbers_without_a_sign(mended, source):
    body = "n = BitwiseNot(x) y = Cast<to=1>(n)"
    tried = mended("whole_numbers", graph(body, f"{source}[2,8] x", 18), inputs={"x": WIDE.astype(source)})
    assert tried.before == ["BITWISENOT.UNSIGNED"]


@pytest.mark.parametrize("source", ["uint8", "uint16"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_are_products_and_quotients(mended, source, direction):
    body = f'n = BitShift<direction="{direction}">(x, a) y = Cast<to=1>(n)'
    made = graph(body, f"{source}[2,8] x, {source}[8] a")
    made.graph.input.remove(made.graph.input[1])
    import onnx

    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 1, 2, 3, 6, 7, 8, 15], source), "a"))
    mended("whole_numbers", made, inputs={"x": WIDE.astype(source)})


@pytest.mark.parametrize("source, opset", [("uint8", 15), ("uint16", 15), ("int8", 27), ("int16", 27), ("int32", 27)])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("constant", [True, False])
def test_shifts_by_any_amount_are_those_of_onnx(tmp_path, source, opset, direction, constant):
    """The reference is onnx's own evaluator: ONNX Runtime knows no shifts of numbers with a sign."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    span = np.iinfo(source)
    x = np.array([span.min, span.max, 0, 1, span.max // 2, span.min // 3, 85], source)[:, None]
    amounts = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100] + [-1, -9, -100] * (span.min < 0)
    a = np.array(amounts, source)
    made = graph(
        f'y = BitShift<direction="{direction}">(x, a)',
        f"{source}[7,1] x, {source}[{len(a)}] a",
        opset,
        output=f"{source}[7,{len(a)}] y",
    )
    inputs = {"x": x, "a": a}
    if constant:
        made.graph.input.remove(made.graph.input[1])
        made.graph.initializer.append(onnx.numpy_helper.from_array(inputs.pop("a"), "a"))
    (wanted,) = ReferenceEvaluator(made).run(None, inputs)
    assert PASSES["whole_numbers"].run(made, Context(tmp_path)).changed == 1
    made.opset_import[0].version = 15
    found = outputs_of(made.SerializeToString(), inputs)["y"]
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("source", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_opset_15_has_bitwise_operators_as_digits(mended, op, source):
    rng = np.random.default_rng(0)
    span = np.iinfo("int32" if source == "int64" else source)
    x, z = (rng.integers(span.min, span.max, (2, 8), endpoint=True, dtype=np.int64) for _ in range(2))
    x[0, :4], z[0, :4] = [span.min, span.max, span.min, 0], [span.max, span.min, span.min, span.max]
    inputs = {"x": x.astype(source), "z": z.astype(source)}
    made = graph(f"n = {op}(x, z) h = Div(n, k) y = Cast<to=1>(h)", f"{source}[2,8] x, {source}[2,8] z", 18)
    made.graph.node[1].op_type = "Identity"
    del made.graph.node[1].input[1]
    tried = mended("opset", made, sentis="2.4", inputs=inputs)
    assert op not in tried.operators


def test_opset_15_has_the_complement_as_a_difference(mended):
    made = graph("n = BitwiseNot(x) y = Cast<to=1>(n)", "int32[2,8] x", 18)
    assert "BitwiseNot" not in mended("opset", made, sentis="2.4", inputs={"x": WIDE.astype(np.int32)}).operators


@pytest.mark.parametrize("body, inputs, opset, reason", [
    ("y = Cast<to=2>(x)", "float[2,8] x", 15, "leaves numbers outside of the range undefined"),
    ("y = Cast<to=12>(x)", "int64[2,8] x", 15, "do not exist"),
    ("y = BitCast<to=6>(x)", "float[2,8] x", 26, "bits of floats"),
    ('y = BitShift<direction="LEFT">(x, z)', "int64[2,8] x, int64[2,8] z", 27, "2³¹"),
    ('y = BitShift<direction="LEFT">(x, z)', "uint32[2,8] x, uint32[2,8] z", 15, "2³¹"),
    ("c = Clip(x, l, h) y = Cast<to=2>(c)", "int32[2,8] x", 15, ""),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, opset, reason):
    init = "int32 l = {0}, int32 h = {255}" if "Clip" in body else ""
    assert reason in left("whole_numbers", graph(body, inputs, opset, init=init))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("source", ["uint8", "int8", "uint16", "int16"])
def test_arithmetic_of_few_bits_wraps_as_in_onnx(mended, op, source):
    span = np.iinfo(source)
    x = np.array([[span.min, span.max, span.max, span.min, 0, 1, 100, span.max // 2]] * 2, source)
    z = np.array([span.max, span.max, 1, 2, 1, span.max, 100, 3], source)
    body = f"n = {op}(x, z) y = Cast<to=1>(n)"
    tried = mended("whole_numbers", graph(body, f"{source}[2,8] x, {source}[8] z"), inputs={"x": x, "z": z})
    assert tried.before == [f"{op.upper()}.NARROW"] and tried.after == []


def test_arithmetic_that_cannot_pass_its_type_is_left_alone(left):
    body = "a = Mod(x, t) n = Add(a, a) y = Cast<to=1>(n)"
    assert left("whole_numbers", graph(body, "uint8[2,8] x", init="uint8 t = {100}")) == ""


@pytest.mark.parametrize("source, to", [("int8", 2), ("uint8", 3), ("int16", 4), ("uint16", 5)])
def test_bits_taken_for_another_sign(mended, source, to):
    model = graph(f"n = BitCast<to={to}>(x) y = Cast<to=1>(n)", f"{source}[2,8] x", 26)
    tried = mended("whole_numbers", model, inputs={"x": WIDE.astype(source)})
    assert "BitCast" not in tried.operators
