"""The verified cases of the documents: a fused tanh Gelu, LayerNorm's axis, garbage from a side file, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parity.emulator import predict
from parity.runners.sentis import onnx_outputs, predicted_edge_b

Made = Callable[..., Path]
node = helper.make_node
BUDGET_DB = 90.0


def gelu_tanh(x: str, y: str) -> list[onnx.NodeProto]:
    """Return the chain that torch writes for gelu(approximate="tanh"), in the order that Sentis fuses."""
    return [
        node("Mul", [x, "half"], ["h"]),
        node("Pow", [x, "three"], ["cube"]),
        node("Mul", ["cube", "c"], ["scaled"]),
        node("Add", [x, "scaled"], ["inner"]),
        node("Mul", ["inner", "s"], ["argument"]),
        node("Tanh", ["argument"], ["tanh"]),
        node("Add", ["tanh", "one"], ["lifted"]),
        node("Mul", ["h", "lifted"], [y], "last"),
    ]


GELU = {
    "half": np.float32(0.5),
    "three": np.float32(3.0),
    "c": np.float32(0.044715),
    "s": np.float32(math.sqrt(2 / math.pi)),
    "one": np.float32(1.0),
}


def test_the_tanh_chain_of_gelu_is_fused_and_clamped_at_16(made: Made) -> None:
    held = {name: np.array(value) for name, value in GELU.items()}
    model = made(gelu_tanh("x", "y"), {"x": (1, [4])}, ["y"], held)
    x = np.array([-3.0, -0.5, 1.0, 2.0], np.float32)
    found = predict(model, {"x": x})
    (deviation,) = [one for one in found.deviations if one.rule == "POW.GELU_FAST"]
    assert (deviation.node, deviation.output) == ("last", "y")
    wanted = onnx_outputs(model, {"x": x})["y"]
    np.testing.assert_allclose(found.outputs["y"], wanted, rtol=3e-6, atol=1e-7)


def test_a_chain_in_another_order_is_not_fused(made: Made) -> None:
    held = {name: np.array(value) for name, value in GELU.items()}
    nodes = gelu_tanh("x", "y")
    nodes[-1] = node("Mul", ["lifted", "h"], ["y"], "last")
    found = predict(made(nodes, {"x": (1, [2])}, ["y"], held), {"x": np.array([1.0, -1.0], np.float32)})
    assert "POW.GELU_FAST" not in {one.rule for one in found.deviations}


def layer_norm_chain() -> list[onnx.NodeProto]:
    """Return LayerNorm written out as the optimiser matches it."""
    return [
        node("ReduceMean", ["x", "last"], ["mean"], keepdims=1),
        node("Sub", ["x", "mean"], ["centred"]),
        node("Pow", ["centred", "two"], ["squared"]),
        node("ReduceMean", ["squared", "last_too"], ["variance"], keepdims=1),
        node("Add", ["variance", "eps"], ["lifted"]),
        node("Sqrt", ["lifted"], ["root"]),
        node("Div", ["centred", "root"], ["normed"]),
        node("Mul", ["normed", "scale"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["y"], "last_node"),
    ]


def test_a_layer_norm_chain_becomes_the_single_pass_form_and_loses_its_variance(made: Made) -> None:
    held = {"last": np.array([-1]), "last_too": np.array([-1]), "two": np.float32(2), "eps": np.float32(1e-5)}
    held |= {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)}
    model = made(layer_norm_chain(), {"x": (1, [1, 8])}, ["y"], {k: np.asarray(v) for k, v in held.items()})
    small = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    assert predicted_edge_b(model, {"x": small}, BUDGET_DB).results[0].passed
    edge = predicted_edge_b(model, {"x": small + np.float32(10000.0)}, BUDGET_DB)
    assert not edge.results[0].passed
    assert edge.starts["y"] is not None and edge.starts["y"].rule in ("FUSION.LAYERNORM", "LAYERNORM.CANCELLATION")


def test_the_axis_of_layer_norm_is_benign_where_it_is_the_last(made: Made) -> None:
    held = {"scale": np.full(5, 1.5, np.float32), "bias": np.full(5, 0.5, np.float32)}
    x = np.random.default_rng(2).normal(size=(2, 3, 5)).astype(np.float32)
    for axis in (-1, 2):
        nodes = [node("LayerNormalization", ["x", "scale", "bias"], ["y"], axis=axis)]
        edge = predicted_edge_b(made(nodes, {"x": (1, [2, 3, 5])}, ["y"], held), {"x": x}, BUDGET_DB)
        assert edge.results[0].passed
        assert "LAYERNORM.AXIS" not in {one.rule for one in edge.prediction.deviations}


def side_file_model(folder: Path, order: list[str]) -> tuple[Path, dict[str, np.ndarray]]:
    """Write a model with two weights in a side file, in an order of their own."""
    rng = np.random.default_rng(3)
    arrays = {"a": rng.normal(size=(4, 4)).astype(np.float32), "b": rng.normal(size=(4, 4)).astype(np.float32)}
    offsets = {name: 64 * at for at, name in enumerate(order)}
    (folder / "m.data").write_bytes(b"".join(arrays[name].tobytes() for name in order))
    held = []
    for name, array in arrays.items():
        tensor = TensorProto(name=name, dims=array.shape, data_type=1, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "m.data"), ("offset", offsets[name]), ("length", 64)):
            tensor.external_data.add(key=key, value=str(value))
        held.append(tensor)
    nodes = [node("MatMul", ["x", "a"], ["h"]), node("MatMul", ["h", "b"], ["y"])]
    info = helper.make_tensor_value_info("x", 1, [1, 4])
    graph = helper.make_graph(nodes, "made", [info], [onnx.ValueInfoProto(name="y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx", arrays


def test_a_side_file_in_order_is_read_right(tmp_path: Path) -> None:
    model, arrays = side_file_model(tmp_path, ["a", "b"])
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.testing.assert_allclose(predict(model, {"x": x}).outputs["y"], x @ arrays["a"] @ arrays["b"], rtol=1e-5)


def test_a_side_file_out_of_order_gives_the_garbage_that_sentis_would_read(tmp_path: Path) -> None:
    model, arrays = side_file_model(tmp_path, ["b", "a"])
    x = np.array([[1, 2, 3, 4]], np.float32)
    found = predict(model, {"x": x})
    np.testing.assert_allclose(found.outputs["y"], x @ arrays["b"] @ arrays["a"], rtol=1e-5)
    assert [one.rule for one in found.deviations] == ["EXTERNAL.OFFSET", "EXTERNAL.OFFSET"]
    assert not predicted_edge_b(model, {"x": x}, BUDGET_DB).results[0].passed


def test_a_side_file_that_ends_early_is_read_as_zeros(tmp_path: Path) -> None:
    model, arrays = side_file_model(tmp_path, ["a", "b"])
    (tmp_path / "m.data").write_bytes((tmp_path / "m.data").read_bytes()[:96])
    x = np.array([[1, 2, 3, 4]], np.float32)
    short = arrays["b"].copy()
    short[2:] = 0
    np.testing.assert_allclose(predict(model, {"x": x}).outputs["y"], x @ arrays["a"] @ short, rtol=1e-5)


def test_a_constant_in_a_side_file_is_read_from_byte_0(tmp_path: Path) -> None:
    model, arrays = side_file_model(tmp_path, ["a", "b"])
    read = onnx.load(str(model), load_external_data=False)
    b = next(tensor for tensor in read.graph.initializer if tensor.name == "b")
    read.graph.node.insert(0, node("Constant", [], ["b"], value=b))
    read.graph.initializer.remove(b)
    model.write_bytes(read.SerializeToString())
    x = np.array([[1, 2, 3, 4]], np.float32)
    found = predict(model, {"x": x})
    np.testing.assert_allclose(found.outputs["y"], x @ arrays["a"] @ arrays["a"], rtol=1e-5, atol=1e-5)
    assert "CONSTANT.EXTERNAL" in {one.rule for one in found.deviations}


def token_mixer(made: Made) -> tuple[Path, np.ndarray]:
    """Return a made model that mixes neighbouring tokens with a convolution, and its embedding table."""
    rng = np.random.default_rng(4)
    table = rng.normal(size=(16, 8)).astype(np.float32)
    kernel = rng.normal(size=(8, 8, 3)).astype(np.float32)
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Transpose", ["e"], ["t"], perm=[0, 2, 1]),
        node("Conv", ["t", "kernel"], ["c"], pads=[1, 1]),
        node("Transpose", ["c"], ["y"], perm=[0, 2, 1]),
    ]
    model = made(nodes, {"ids": (TensorProto.INT64, [1, "n"])}, ["y"], {"table": table, "kernel": kernel})
    return model, table


def test_padding_with_zero_instead_of_the_stop_token_changes_the_tokens_beside_it(made: Made) -> None:
    """Class G: the import is clean, edge B is clean, and what the caller feeds decides."""
    model, _ = token_mixer(made)
    stop, ids = 2, [5, 9, 7]
    eos = np.array([[*ids, stop, stop]], np.int64)
    zero = np.array([[*ids, 0, 0]], np.int64)
    for fed in (eos, zero):
        edge = predicted_edge_b(model, {"ids": fed}, BUDGET_DB)
        assert edge.results[0].passed and not edge.prediction.deviations
    right, wrong = predict(model, {"ids": eos}).outputs["y"], predict(model, {"ids": zero}).outputs["y"]
    np.testing.assert_array_equal(right[:, :2], wrong[:, :2])
    assert np.abs(right[:, 2] - wrong[:, 2]).max() > 0.1


@pytest.mark.parametrize("count", [1, 3])
def test_large_weights_are_read_where_they_lie(made: Made, count: int) -> None:
    weight = np.random.default_rng(5).normal(size=(64, 64)).astype(np.float32)
    held = {f"w{at}": weight for at in range(count)}
    nodes = [node("MatMul", [f"h{at}", f"w{at}"], [f"h{at + 1}"]) for at in range(count)]
    model = made(nodes, {"h0": (1, [2, 64])}, [f"h{count}"], held)
    x = np.random.default_rng(6).normal(size=(2, 64)).astype(np.float32)
    assert predicted_edge_b(model, {"h0": x}, BUDGET_DB).results[0].passed


def test_typed_numbers_of_a_large_weight_are_read_too(tmp_path: Path) -> None:
    weight = np.random.default_rng(7).normal(size=(64, 64)).astype(np.float32)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.reshape(-1).tolist())
    assert not numpy_helper.from_array(weight, "w").float_data and tensor.float_data
    info = helper.make_tensor_value_info("x", 1, [2, 64])
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"])], "made", [info], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(predict(tmp_path / "m.onnx", {"x": x}).outputs["y"], x @ weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("in_a_node", [True, False])
def test_large_constants_of_every_type_are_read_where_they_lie(tmp_path: Path, dtype: type, in_a_node: bool) -> None:
    """They are larger than what is read with the graph, and of the types that Sentis converts."""
    values = (np.random.default_rng(8).normal(size=(80, 80)) * 40).astype(dtype)
    tensor = numpy_helper.from_array(values, "w")
    nodes = [node("Cast", ["w"], ["f"], to=1), node("Add", ["x", "f"], ["y"])]
    if in_a_node:
        nodes.insert(0, node("Constant", [], ["w"], value=tensor))
    info = helper.make_tensor_value_info("x", 1, [80])
    held = [] if in_a_node else [tensor]
    graph = helper.make_graph(nodes, "made", [info], [onnx.ValueInfoProto(name="y")], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = predict(tmp_path / "m.onnx", {"x": np.zeros(80, np.float32)})
    assert found.verdict == "predicted", found.reason
    np.testing.assert_array_equal(found.outputs["y"], values.astype(np.float32))
