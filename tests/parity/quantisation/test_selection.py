"""Which constants are replaced: by the layer that reads them in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentis_dumps import write_graph

from converters.ort_session import open_session
from parity.emulator import predict
from parity.emulator.emulation import Emulation
from parity.emulator.prediction import Unknown
from parity.emulator.quantise import float16_of, stored_constants, uint8_of
from parity.emulator.selection import selection
from weights_bridge.compare import compare
from weights_bridge.errors import StageError

RNG = np.random.default_rng(2)
HEAD = '<ir_version: 10, opset_import: ["": 18]>\n'


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


GRAPHS: dict[str, tuple[str, dict[str, np.ndarray], set[str], set[str]]] = {
    "a product's weight": (
        "g (float[2, 20] x) => (float[2, 30] y) { y = MatMul(x, w) }", {"w": f(20, 30)}, {"w"}, set(),
    ),
    "weight and bias of what becomes Dense": (
        "g (float[2, 20] x) => (float[2, 30] y) { m = MatMul(x, w) y = Add(m, b) }",
        {"w": f(20, 30), "b": f(30)}, {"w", "b"}, set(),
    ),
    "Gemm and its bias": (
        "g (float[2, 20] x) => (float[2, 30] y) { y = Gemm<transB = 1>(x, w, b) }",
        {"w": f(30, 20), "b": f(30)}, {"w", "b"}, set(),
    ),
    "convolution and its bias": (
        "g (float[1, 3, 8, 8] x) => (float[1, 20, 6, 6] y) { c = Conv(x, w, b) y = Relu(c) }",
        {"w": f(20, 3, 3, 3), "b": f(20)}, {"w", "b"}, set(),
    ),
    "a transposed convolution": (
        "g (float[1, 3, 8, 8] x) => (float[1, 4, 10, 10] y) { y = ConvTranspose(x, w) }",
        {"w": f(3, 4, 3, 3)}, {"w"}, set(),
    ),
    "a table that ids choose from": (
        "g (int64[1, 5] x) => (float[1, 5, 20] y) { y = Gather(w, x) }", {"w": f(30, 20)}, {"w"}, set(),
    ),
    "not the scale of a norm": (
        "g (float[2, 20] x) => (float[2, 30] y) { n = LayerNormalization(x, s, t) y = MatMul(n, w) }",
        {"s": f(20), "t": f(20), "w": f(20, 30)}, {"w"}, {"s", "t"},
    ),
    "not a product's weight of rank 3 with an Add of rank 3": (
        "g (float[4, 2, 20] x) => (float[4, 2, 30] y) { m = MatMul(x, w) y = Add(m, b) }",
        {"w": f(4, 20, 30), "b": f(4, 2, 30)}, set(), {"w", "b"},
    ),
    "not what is multiplied or added elsewhere": (
        "g (float[2, 20] x) => (float[2, 20] y) { m = Mul(x, w) y = Add(m, b) }",
        {"w": f(20), "b": f(2, 20)}, set(), {"w", "b"},
    ),
    "a shared constant for all of its readers": (
        "g (float[20, 20] x) => (float[20, 20] y) { m = MatMul(x, w) y = Mul(m, w) }", {"w": f(20, 20)}, {"w"}, set(),
    ),
}  # fmt: skip


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, np.ndarray], set[str], set[str]]:
    text, constants, chosen, left = GRAPHS[request.param]
    return write_graph(tmp_path / "m.onnx", HEAD + text, **constants), constants, chosen, left


def inputs_of(model: Path) -> dict[str, np.ndarray]:
    (value,) = open_session(model, "off").get_inputs()
    if "int64" in value.type:
        return {"x": RNG.integers(0, 20, value.shape)}
    return {"x": f(*value.shape)}


def test_the_layers_decide_which(graph: tuple[Path, dict[str, np.ndarray], set[str], set[str]]) -> None:
    model, constants, chosen, left = graph
    found = selection(model)
    assert {one.name for one in found.chosen} == chosen
    assert {name for name in found.floats if name in constants} == chosen | left
    elements = sum(constants[name].size for name in chosen)
    rest = 4 * sum(array.size for name, array in constants.items() if name not in chosen)
    assert found.elements == elements
    sizes = [found.stored_bytes(how) for how in (None, "float16", "uint8")]
    assert [size - sizes[2] for size in sizes] == [3 * elements, elements, 0]
    assert sizes[2] - elements >= rest


@pytest.mark.parametrize("how", ["float16", "uint8"])
def test_the_emulator_computes_with_these_constants_and_no_others(
    graph: tuple[Path, dict[str, np.ndarray], set[str], set[str]], how: str, tmp_path: Path
) -> None:
    model, constants, chosen, _ = graph
    stored = {"float16": float16_of, "uint8": uint8_of}[how]
    name = next(key for key, value in GRAPHS.items() if value[1] is constants)
    by_hand = {key: stored(array) if key in chosen else array for key, array in constants.items()}
    other = write_graph(tmp_path / "by-hand.onnx", HEAD + GRAPHS[name][0], **by_hand)
    inputs = inputs_of(model)
    found = predict(model, inputs, quantise=how)
    wanted = predict(other, inputs)
    plain = predict(model, inputs)
    assert found.verdict == wanted.verdict == "predicted"
    assert compare("y", wanted.outputs["y"], found.outputs["y"], 140).passed
    assert (compare("y", plain.outputs["y"], found.outputs["y"], 200).reason != "exact") == bool(chosen)


def test_one_fixed_index_makes_no_table_of_a_constant(tmp_path: Path) -> None:
    text = HEAD + "g (float[20, 20] x) => (float[20, 20] y) { r = Gather(x, i) y = MatMul(x, x) }"
    model = write_graph(tmp_path / "m.onnx", text, i=np.asarray(3))
    assert selection(model).chosen == ()


def test_what_is_folded_at_import_is_folded_before_and_stored_afterwards(tmp_path: Path) -> None:
    text = (
        HEAD
        + """g (float[2, 20] x) => (float[2, 30] y, float[30, 20] z) {
        t = Transpose<perm = [1, 0]>(w)
        y = MatMul(x, t)
        u = Neg(w)
        s = Shape(x)
        z = Add(w, u)
    }"""
    )
    w = f(30, 20)
    model = write_graph(tmp_path / "m.onnx", text, w=w)
    assert [one.name for one in selection(model).chosen] == ["t"]
    x = f(2, 20)
    found = predict(model, {"x": x}, quantise="uint8")
    assert compare("y", x @ uint8_of(w).T, found.outputs["y"], 130).passed
    np.testing.assert_array_equal(found.outputs["z"], np.zeros((30, 20)))  # w itself stays


@pytest.mark.parametrize(("op", "sign"), [("Add", 1), ("Sub", -1)])
def test_a_scalar_behind_a_product_becomes_a_bias_and_is_stored(tmp_path: Path, op: str, sign: int) -> None:
    text = HEAD + f"g (float[2, 20] x) => (float[2, 30] y) {{ m = MatMul(x, w) y = {op}(m, c) }}"
    w, c = f(20, 30), np.asarray(0.3, np.float32)
    model = write_graph(tmp_path / "m.onnx", text, w=w, c=c)
    assert {one.name for one in selection(model).chosen} == {"w", "y:bias"}
    x = f(2, 20)
    found = predict(model, {"x": x}, quantise="float16").outputs["y"]
    assert compare("y", x @ float16_of(w) + sign * float16_of(np.full(1, c)), found, 130).passed


def test_a_model_that_does_not_import_has_nothing_to_quantise(tmp_path: Path) -> None:
    model = write_graph(tmp_path / "m.onnx", HEAD + "g (float[2, 2] x) => (float y) { y = Det(x) }")
    with pytest.raises(StageError, match=r"does not import it: Det .* not handled"):
        selection(model)


BN = (f(20) + 2, f(20), f(20), np.abs(f(20)) + 1)
FOLDS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "a scaled bias of Gemm": (
        "g (float[2, 20] x) => (float[2, 30] y) { y = Gemm<beta = 0.5>(x, w, b) }", {"w": f(20, 30), "b": f(30)},
    ),
    "a factor of Gemm, which goes into the weights": (
        "g (float[2, 20] x) => (float[2, 30] y) { y = Gemm<alpha = 0.5>(x, w, b) }", {"w": f(20, 30), "b": f(30)},
    ),
    "a factor behind a convolution": (
        "g (float[1, 3, 8, 8] x) => (float[1, 20, 6, 6] y) { c = Conv(x, w, b) y = Mul(c, s) }",
        {"w": f(20, 3, 3, 3), "b": f(20), "s": np.asarray(0.1, np.float32)},
    ),
    "a factor before a convolution, Relu behind": (
        "g (float[1, 3, 8, 8] x) => (float[1, 20, 8, 8] y) {"
        " m = Mul(x, s) c = Conv<pads = [1, 1, 1, 1]>(m, w, b) y = Relu(c) }",
        {"w": f(20, 3, 3, 3), "b": f(20), "s": np.asarray(0.1, np.float32)},
    ),
    "batch normalisation behind a convolution without bias, Relu behind": (
        "g (float[1, 3, 8, 8] x) => (float[1, 20, 6, 6] y) {"
        " c = Conv(x, w) n = BatchNormalization(c, scale, bias, mean, var) y = Relu(n) }",
        {"w": f(20, 3, 3, 3), **dict(zip(("scale", "bias", "mean", "var"), BN, strict=True))},
    ),
    "two Dense in a row": (
        "g (float[2, 20] x) => (float[2, 25] y) { m = MatMul(x, w) a = Add(m, b) n = MatMul(a, v) y = Add(n, c) }",
        {"w": f(20, 30), "b": f(30), "v": f(30, 25), "c": f(25)},
    ),
    "Dense and a factor": (
        "g (float[2, 20] x) => (float[2, 30] y) { m = MatMul(x, w) a = Add(m, b) y = Mul(a, s) }",
        {"w": f(20, 30), "b": f(30), "s": np.asarray(3, np.float32)},
    ),
}  # fmt: skip


def joined(name: str, c: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The one layer that is left, worked out by hand in float64."""
    w = {key: array.astype(np.float64) for key, array in c.items()}
    if name == "a scaled bias of Gemm":
        return {"w": w["w"], "b": 0.5 * w["b"]}
    if name == "a factor of Gemm, which goes into the weights":
        return {"w": 0.5 * w["w"], "b": w["b"]}
    if name == "two Dense in a row":
        return {"w": w["w"] @ w["v"], "b": w["b"] @ w["v"] + w["c"]}
    if "batch" in name:
        factor = w["scale"] / np.sqrt(w["var"] + 1e-5)
        return {"w": w["w"] * factor[:, None, None, None], "b": w["bias"] - w["mean"] * factor}
    return {"w": w["w"] * w["s"], "b": w["b"] * (1 if "before" in name else w["s"])}


@pytest.mark.parametrize("how", ["float16", "uint8"])
@pytest.mark.parametrize("name", FOLDS)
def test_layers_in_a_row_are_stored_as_the_one_that_is_left(tmp_path: Path, name: str, how: str) -> None:
    text, constants = FOLDS[name]
    stored = {"float16": float16_of, "uint8": uint8_of}[how]
    model = write_graph(tmp_path / "m.onnx", HEAD + text, **constants)
    inputs = inputs_of(model)
    held = {key: stored(array.astype(np.float32)) for key, array in joined(name, constants).items()}
    pads = "<pads = [1, 1, 1, 1]>" if "before" in name else ""
    one = f"c = Conv{pads}(x, w, b)" if held["w"].ndim == 4 else "c = Gemm(x, w, b)"
    end = "y = Relu(c)" if "Relu" in name else "y = Identity(c)"
    head = text.partition("{")[0]
    by_hand = write_graph(tmp_path / "by-hand.onnx", f"{HEAD}{head} {{ {one} {end} }}", **held)
    found, wanted, plain = predict(model, inputs, quantise=how), predict(by_hand, inputs), predict(model, inputs)
    assert found.verdict == "predicted", found.reason
    assert compare("y", wanted.outputs["y"], found.outputs["y"], 90 if how == "uint8" else 100).passed
    assert compare("y", plain.outputs["y"], found.outputs["y"], 200).reason != "exact"


def test_what_is_folded_in_a_way_that_is_not_repeated_is_not_predicted(tmp_path: Path) -> None:
    text = (
        HEAD
        + """g (float[1, 3, 8, 8] x, float[3, 8, 8] z) => (float[1, 20, 6, 6] y) {
        c = Conv(x, w) y = Mul(c, s)
    }"""
    )
    model = write_graph(tmp_path / "m.onnx", text, w=f(20, 3, 3, 3), s=np.asarray(0.1, np.float32))
    case = Emulation(model, "2.6").declared
    assert case.made is not None
    for step in case.made.graph.steps:
        step.label = "renamed"  # the row is no longer found
    with pytest.raises(Unknown, match="its numbers are the optimiser's"):
        stored_constants(case.made.graph, "uint8", selection(model))
