"""ONNX Runtime computes with the numbers that are handed over, and with the file's own where none are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sentis_dumps import write_graph

from converters.ort_session import open_session
from converters.replaced import replaced
from weights_bridge.errors import StageError

RNG = np.random.default_rng(0)
V, W = (RNG.standard_normal((40, 40)).astype(np.float32) for _ in range(2))  # 6.4 kB each: more than a skeleton keeps
NEW = RNG.standard_normal((40, 40)).astype(np.float32)
X = RNG.standard_normal((2, 40)).astype(np.float32)
TWO = """<ir_version: 10, opset_import: ["": 18]>
two (float[2, 40] x) => (float[2, 40] y) { a = MatMul(x, v) y = MatMul(a, w) }"""
WIDENED = """<ir_version: 10, opset_import: ["": 18]>
widened (float[2, 40] x) => (float[2, 40] y) { wide = Cast<to = 1>(half) a = MatMul(x, wide) y = MatMul(a, w) }"""


def run(path: Path, values: dict[str, np.ndarray], level: Any) -> np.ndarray:
    given = replaced(path, values)
    session = open_session(given.model, level, folder=given.folder, handed_over=given.values)
    return session.run(["y"], {"x": X})[0]


@pytest.mark.parametrize("level", ["all", "off"])
def test_one_weight_is_replaced_and_the_other_is_read_from_the_file(tmp_path: Path, level: str) -> None:
    path = write_graph(tmp_path / "m.onnx", TWO, v=V, w=W)
    before = path.read_bytes()
    np.testing.assert_allclose(run(path, {"v": NEW}, level), X @ NEW @ W, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(run(path, {"w": NEW}, level), X @ V @ NEW, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(run(path, {}, level), X @ V @ W, rtol=1e-3, atol=1e-3)
    assert path.read_bytes() == before and len(replaced(path, {"v": NEW}).model) < 1000  # no weight is in it


@pytest.mark.parametrize("level", ["all", "off"])
def test_what_a_cast_widens_is_replaced_without_rounding_and_its_fp16_weights_are_not_read(
    tmp_path: Path, level: str
) -> None:
    path = write_graph(tmp_path / "m.onnx", WIDENED, half=V.astype(np.float16), w=W)
    found = run(path, {"wide": NEW}, level)
    np.testing.assert_allclose(found, X @ NEW @ W, rtol=1e-4, atol=1e-4)
    given = replaced(path, {"wide": NEW})
    assert given.values["wide"].dtype == np.float32
    graph = onnx.ModelProto.FromString(given.model).graph
    assert [tensor.name for tensor in graph.initializer] == ["w", "wide"] and len(graph.node) == 2


def test_weights_that_nodes_read_as_fp16_are_rounded_to_it(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    half (float16[2, 40] x) => (float16[2, 40] y) { t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t) }"""
    path = write_graph(tmp_path / "m.onnx", text, w=W.astype(np.float16))
    assert replaced(path, {"w": NEW}).values["w"].dtype == np.float16
    assert replaced(path, {"t": NEW}).values["t"].dtype == np.float16


def test_weights_in_a_side_file_stay_there(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "m.onnx", TWO, v=V, w=W)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="side.bin", size_threshold=0)
    np.testing.assert_allclose(run(path, {"v": NEW}, "all"), X @ NEW @ W, rtol=1e-3, atol=1e-3)


def _typed(path: Path) -> None:
    """Write fp16 numbers as int32_data: each takes a varint of its own."""
    numbers = -np.abs(V)  # a sign takes a third byte: more than a skeleton keeps
    half = helper.make_tensor("half", TensorProto.FLOAT16, (40, 40), numbers.astype(np.float16).reshape(-1).tolist())
    assert half.int32_data and not half.raw_data
    model = onnx.parser.parse_model(WIDENED)
    model.graph.initializer.extend([half, numpy_helper.from_array(W, "w")])
    onnx.save(model, path)


def _in_a_node(path: Path) -> None:
    model = onnx.parser.parse_model(TWO)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(V)))
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("write", "name", "why"),
    [
        (_typed, "w", "the numbers of 'half' do not lie in one piece"),
        (_in_a_node, "w", "Constant of 'v' holds a large tensor itself"),
        (lambda path: write_graph(path, TWO, v=V, w=W), "w:bias", "'w:bias' is no initialiser and no single output"),
        (lambda path: write_graph(path, TWO, v=V, w=W), "x", "'x' is no initialiser and no single output"),
    ],
)
def test_what_cannot_be_handed_over_says_why(tmp_path: Path, write: Any, name: str, why: str) -> None:
    write(tmp_path / "m.onnx")
    with pytest.raises(StageError, match=why):
        replaced(tmp_path / "m.onnx", {name: NEW})


def test_integers_are_no_weights(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 18]>
    picked (float[2, 40] x) => (float[1, 40] y) { y = Gather(x, i) }"""
    path = write_graph(tmp_path / "m.onnx", text, i=np.asarray([1]))
    with pytest.raises(StageError, match="'i' is of type INT64: only floats are replaced"):
        replaced(path, {"i": np.ones(1, np.float32)})
