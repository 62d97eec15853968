"""The two rewrites of rotary embeddings: counts, numbers in ONNX Runtime, and where they must not fire."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir
import pytest

from converters.prove import outputs_of
from converters.rotary import scale_into_rotary, signs_into_sine
from converters.tidy import constants_to_initialisers, remove_unused

TURNED = """a = Slice(x, zero, half, axis, one) b = Slice(x, half, end, axis, one) n = Neg(b) c = Concat<axis=-1>(n, a)
    p = Mul(x, cos) s = Mul(c, sin) q = Add(p, s)"""
SCORES = "r = Reshape(q, rows) m = MatMul(r, k) w = Mul(m, scale) y = Exp(w)"
CONSTANTS = {"zero": [0], "half": [4], "end": [2**31 - 1], "axis": [3], "one": [1], "rows": [1, 2, -1, 8]}


def layer(body: str, scale: float = 0.125, outputs: str = "float[1,2,6,7] y", **constants: list[int]) -> onnx_ir.Model:
    inputs = "float[1,4,3,8] x, float[1,1,3,8] cos, float[1,1,3,8] sin, float[1,2,8,7] k"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    read = {name for node in model.graph.node for name in node.input}
    arrays = {name: np.array(value, np.int64) for name, value in (CONSTANTS | constants).items()}
    for name, array in (arrays | {"scale": np.array(scale, np.float32)}).items():
        if name in read:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    held = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(model))
    constants_to_initialisers(held.graph)
    return held


def run(model: onnx_ir.Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = {"x": (1, 4, 3, 8), "cos": (1, 1, 3, 8), "sin": (1, 1, 3, 8), "k": (1, 2, 8, 7)}
    feed = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    proto = onnx_ir.to_proto(model)
    asked = {value.name for value in proto.graph.input}
    return outputs_of(proto.SerializeToString(), {name: value for name, value in feed.items() if name in asked})


def count(model: onnx_ir.Model) -> Counter[str]:
    remove_unused(model)
    return Counter(node.op_type for node in model.graph)


def test_the_sign_moves_into_the_sine_and_not_a_bit_changes():
    before, after = layer(f"{TURNED} {SCORES}"), layer(f"{TURNED} {SCORES}")
    assert signs_into_sine(after.graph) == 1
    np.testing.assert_array_equal(run(after)["y"], run(before)["y"])
    found = count(after)
    assert (found["Split"], found["Slice"], found["Neg"], found["Concat"]) == (1, 0, 0, 1)


@pytest.mark.parametrize("scale, exact", [(0.125, True), (0.25, True), (0.088388, False)])
def test_the_scale_moves_into_cosine_and_sine(scale, exact):
    before, after = layer(f"{TURNED} {SCORES}", scale), layer(f"{TURNED} {SCORES}", scale)
    assert scale_into_rotary(after.graph) == 1
    wanted, found = run(before)["y"], run(after)["y"]
    np.testing.assert_allclose(found, wanted, rtol=0 if exact else 2e-6, atol=0 if exact else 1e-6)
    assert [node.op_type for node in after.graph][-2:] == ["MatMul", "Exp"]


def test_both_together_leave_the_scores_unscaled_and_equal():
    before, after = layer(f"{TURNED} {SCORES}"), layer(f"{TURNED} {SCORES}")
    assert (signs_into_sine(after.graph), scale_into_rotary(after.graph)) == (1, 1)
    np.testing.assert_array_equal(run(after)["y"], run(before)["y"])


@pytest.mark.parametrize("body, constants", [
    (TURNED.replace("Neg(b)", "Abs(b)"), {}),
    (TURNED.replace("Concat<axis=-1>(n, a)", "Concat<axis=-1>(a, n)"), {}),
    (TURNED.replace("Mul(c, sin)", "Add(c, sin)"), {}),
    (TURNED.replace("Mul(c, sin)", "Mul(c, x)"), {}),
    (TURNED, {"half": [3]}),
    (TURNED, {"zero": [1]}),
    (TURNED, {"end": [7]}),
    (TURNED + " z = Neg(c)", {}),
])  # fmt: skip
def test_what_is_no_rotary_embedding_keeps_its_signs(body, constants):
    outputs = "float[1,4,3,8] q" + (", float[1,4,3,8] z" if "z =" in body else "")
    try:
        model = layer(body, outputs=outputs, **constants)
    except onnx.shape_inference.InferenceError:
        model = layer(body, outputs="float[] q", **constants)
    assert signs_into_sine(model.graph) == 0


Y, Z = "float[1,2,6,7] y", "float[1,4,3,8] z"


@pytest.mark.parametrize("scores, outputs", [
    ("r = Reshape(q, rows) m = MatMul(r, k) y = Mul(m, m)", "float[1,2,6,7] y"),
    ("r = Reshape(x, rows) m = MatMul(r, k) w = Mul(m, scale) y = Exp(w)", "float[1,2,6,7] y"),
    ("r = Reshape(q, rows) m = MatMul(r, k) w = Mul(m, scale) y = Exp(w) z = Neg(m)", f"{Y}, float[1,2,6,7] z"),
    ("r = Reshape(q, rows) m = MatMul(r, k) w = Mul(m, scale) y = Exp(w) z = Neg(q)", f"{Y}, {Z}"),
    ("r = Reshape(q, rows) m = MatMul(r, k) w = Mul(m, scale) y = Exp(w) z = Neg(p)", f"{Y}, {Z}"),
], ids=["no number", "no rotary", "scores read", "queries read", "half read"])  # fmt: skip
def test_a_scale_that_others_would_see_stays(scores, outputs):
    model = layer(f"{TURNED} {scores}", outputs=outputs)
    before = run(model)
    assert scale_into_rotary(model.graph) == 0
    np.testing.assert_array_equal(run(model)["y"], before["y"])
