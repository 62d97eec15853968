"""Parts of a graph compute in ONNX Runtime what the whole computed there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from converters.surgery.parts import cut, extract
from weights_bridge.errors import BudgetMissedError, StageError

X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
CHAIN = "a = Mul(x, w) b = Tanh(a) c = Add(b, w) y = Exp(c)"
W = "float[8] w = {1,2,3,4,5,6,7,8}"


def graph_of(path):
    return onnx.load(str(path)).graph


def test_a_part_between_tensors_gives_what_the_whole_had_there(saved, run, tmp_path):
    whole, out = saved(CHAIN, init=W, output="float[2,8] y"), tmp_path / "part.onnx"
    report = extract(whole, out, ["b"], ["c"])
    (value,) = graph_of(out).input
    assert (value.name, [d.dim_value for d in value.type.tensor_type.shape.dim]) == ("b", [2, 8])
    assert report["nodes"] == {"before": 4, "after": 1} and report["proof"].startswith("equal in ONNX Runtime")
    np.testing.assert_array_equal(run(out, b=X)["c"], X + np.arange(1, 9, dtype=np.float32))


def test_without_a_beginning_a_part_keeps_the_inputs_it_needs(saved, tmp_path):
    whole = saved("a = Neg(x) b = Exp(z) y = Add(a, b)", inputs="float[2,8] x, float[2,8] z", output="float[2,8] y")
    report = extract(whole, tmp_path / "part.onnx", [], ["b"])
    assert (report["inputs"], report["outputs"]) == (["z"], ["b"])


def test_a_part_that_needs_more_than_it_is_given_is_refused(saved, tmp_path):
    whole = saved("a = Neg(x) b = Exp(z) y = Add(a, b)", inputs="float[2,8] x, float[2,8] z", output="float[2,8] y")
    with pytest.raises(StageError, match="the part also needs z"):
        extract(whole, tmp_path / "part.onnx", ["a"], ["y"])
    with pytest.raises(StageError, match="unknown tensor 'aa'"):
        extract(whole, tmp_path / "part.onnx", ["aa"], ["y"])
    weighted = saved(CHAIN, "w.onnx", init=W, output="float[2,8] y")
    with pytest.raises(StageError, match="'w' is a weight"):
        extract(weighted, tmp_path / "part.onnx", ["w"], ["y"])
    assert not (tmp_path / "part.onnx").exists()


def test_the_input_is_never_the_output(saved):
    whole = saved(CHAIN, init=W, output="float[2,8] y")
    before = whole.read_bytes()
    with pytest.raises(StageError, match="never changed"):
        extract(whole, whole, ["b"], ["c"])
    assert whole.read_bytes() == before


def test_a_part_that_computes_something_else_is_told(saved, tmp_path, monkeypatch):
    from converters.surgery import parts

    def broken(model, *words):
        made = real(model, *words)
        made.graph.node[0].op_type = "Sub"
        return made

    real = parts.part_of
    monkeypatch.setattr(parts, "part_of", broken)
    whole = saved(CHAIN, init=W, output="float[2,8] y")
    with pytest.raises(BudgetMissedError, match="computes something else"):
        extract(whole, tmp_path / "part.onnx", ["b"], ["c"])
    assert not (tmp_path / "part.onnx").exists()


DETECTOR = """r = Reshape(x, shape) boxes = Sigmoid(r) scores = Softmax<axis=1>(z)
    kept = NonMaxSuppression(boxes, scores, most, iou) at = Gather<axis=1>(kept, two) y = Cast<to=1>(at) """
DETECTOR_WORDS = {
    "inputs": "float[4,4] x, float[1,2,4] z",
    "output": "float[N] y, float[1,2,4] s2",
    "init": "int64[3] shape = {1,4,4}, int64 two = {2}, int64 most = {3}, float iou = {0.5}",
}


def test_baked_suppression_is_cut_and_what_it_was_fed_comes_out(saved, tmp_path):
    whole = saved(DETECTOR + "s2 = Neg(scores)", **DETECTOR_WORDS)
    report = cut(whole, tmp_path / "bare.onnx")
    assert report["outputs"] == ["s2", "boxes", "scores"] and report["dropped_outputs"] == ["y"]
    assert report["cut"] == {"Cast": 1, "Gather": 1, "NonMaxSuppression": 1}
    assert "equal in ONNX Runtime" in report["proof"]
    kinds = {v.name: len(v.type.tensor_type.shape.dim) for v in graph_of(tmp_path / "bare.onnx").output}
    assert kinds == {"s2": 3, "boxes": 3, "scores": 3}


def test_another_operator_or_tensors_can_be_named(saved, tmp_path):
    whole = saved(DETECTOR + "s2 = Neg(scores)", **DETECTOR_WORDS)
    assert cut(whole, tmp_path / "a.onnx", ["Sigmoid"])["outputs"] == ["s2", "r", "scores"]
    assert cut(whole, tmp_path / "b.onnx", at=["boxes"])["outputs"] == ["boxes"]


def test_where_there_is_nothing_to_cut_the_operators_are_named(saved, tmp_path):
    whole = saved(CHAIN, init=W, output="float[2,8] y")
    with pytest.raises(StageError, match=r"none of NonMaxSuppression.*it has Add, Exp, Mul, Tanh"):
        cut(whole, tmp_path / "bare.onnx")
    with pytest.raises(StageError, match="nothing is left in front of Mul"):
        cut(whole, tmp_path / "bare.onnx", ["Mul"])


def test_what_goes_is_found_through_bodies_that_read_it(saved, run, tmp_path):
    """The operator stands in front of an If whose branch reads it, and nothing else names it."""
    text = """a = Neg(x) big, at = TopK(a, k) m = ReduceMax<keepdims=0>(x) c = Cast<to=9>(m)
      y = If(c) <
        then_branch = p () => (float[2,3] t) { t = Neg(big) }, else_branch = q () => (float[2,3] e) { e = Abs(big) }
      >"""
    whole = saved(text, init="int64[1] k = {3}", output="float[2,3] y", opset=18)
    report = cut(whole, tmp_path / "bare.onnx", ["TopK"])
    assert report["cut"] == {"TopK": 1, "If": 1} and set(report["outputs"]) == {"a", "c"}
    np.testing.assert_array_equal(run(tmp_path / "bare.onnx", x=X)["a"], -X)
