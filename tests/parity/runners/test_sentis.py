"""Edge B as predicted: per output a verdict, the rule where it starts, and the first inner tensor that differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from parity.runners.sentis import first_divergence, onnx_outputs, predicted_edge_b

node = helper.make_node
BUDGET_DB = 90.0


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Return a model whose third node doubles its input in Sentis and whose other output is untouched."""
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32), "w")
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "first"),
        node("Sigmoid", ["h"], ["s"], "second"),
        node("Sum", ["s"], ["doubled"], "third"),
        node("Exp", ["doubled"], ["y"], "fourth"),
        node("Abs", ["h"], ["z"], "aside"),
    ]
    info = helper.make_tensor_value_info("x", 1, ["n", 4])
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "z")]
    model = helper.make_model(
        helper.make_graph(nodes, "made", [info], outputs, [weight]), opset_imports=[helper.make_opsetid("", 18)]
    )
    model.ir_version = 10
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def test_each_output_has_its_verdict_and_the_rule_where_it_starts(chain: Path):
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    edge = predicted_edge_b(chain, {"x": x}, BUDGET_DB)
    passed = {result.tensor: result.passed for result in edge.results}
    assert passed == {"y": False, "z": True}
    start = edge.starts["y"]
    assert start is not None and (start.node, start.rule) == ("third", "SUM.SINGLE_INPUT")


def test_the_first_inner_tensor_that_differs_is_found(chain: Path):
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    found = first_divergence(chain, {"x": x}, BUDGET_DB)
    assert found is not None and (found.node, found.op, found.tensor, found.before) == ("third", "Sum", "doubled", "s")
    assert found.found == pytest.approx(2 * found.wanted)


def test_an_output_that_is_not_predicted_does_not_pass(tmp_path: Path):
    info = [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("i", 7, [1])]
    graph = helper.make_graph(
        [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])], "made", info[:1],
        [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    edge = predicted_edge_b(tmp_path / "m.onnx", {"x": np.zeros(2, np.float32)}, BUDGET_DB)
    (result,) = edge.results
    assert not result.passed and result.reason == "not predicted" and "generator" in result.detail


def test_integers_and_bools_of_onnx_runtime_are_compared_as_sentis_holds_them(tmp_path: Path):
    info = [helper.make_tensor_value_info("x", 1, [3])]
    nodes = [node("Greater", ["x", "x"], ["g"]), node("ArgMax", ["x"], ["a"], axis=0)]
    graph = helper.make_graph(nodes, "made", info, [onnx.ValueInfoProto(name=name) for name in ("g", "a")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    given = {"x": np.array([1, 3, 2], np.float32)}
    assert {array.dtype for array in onnx_outputs(tmp_path / "m.onnx", given).values()} == {np.dtype(np.int32)}
    assert all(result.passed for result in predicted_edge_b(tmp_path / "m.onnx", given, BUDGET_DB).results)
