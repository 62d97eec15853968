"""The proof behind a pass: which inputs it takes, what it compares, and what it must not let through."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from scan_cases import graph

from converters import prove
from converters.prove import measured, reference_of
from weights_bridge.errors import StageError


@pytest.fixture
def proof(tmp_path):
    """Return what compares two graphs on the probes of the first."""

    def run(before: onnx.ModelProto, after: onnx.ModelProto):
        for name, model in (("a", before), ("b", after)):
            (tmp_path / name).write_bytes(model.SerializeToString())
        return measured(reference_of(before, tmp_path / "a"), tmp_path / "b", "p")

    return run


def failures(results) -> list[str]:
    return [f"{result.tensor}: {result.reason}" for result in results if not result.passed]


def test_three_kinds_of_inputs_are_run(tmp_path):
    model = graph("y = Relu(x)", 'float["n",8] x, int64[3] i')
    (tmp_path / "a").write_bytes(model.SerializeToString())
    inputs = reference_of(model, tmp_path / "a").inputs
    assert list(inputs) == ["spread", "zeros", "large"]
    assert (inputs["spread"]["x"] < 0).any() and not inputs["zeros"]["x"].any()
    assert np.abs(inputs["large"]["x"]).max() > 1e4 and inputs["large"]["i"].max() < 3


@pytest.mark.parametrize(
    "before, after, failed",
    [
        ("y = Relu(x)", "y = LeakyRelu<alpha=0.001>(x)", {"spread", "large"}),
        ("y = Relu(x)", "y = Softplus(x)", {"spread", "zeros"}),
        ("y = Sinh(x)", "n = Neg(x) s = Sinh(n) y = Neg(s)", set()),
        ("y = Tanh(x)", "y = Identity(x)", {"spread", "large"}),
    ],
)  # fmt: skip
def test_another_function_fails_where_it_differs(proof, before, after, failed):
    assert {result.split(" / ")[1] for result in failures(proof(graph(before), graph(after)))} == failed


def test_an_infinity_must_stay_where_it_is(proof):
    before = graph("y = Exp(x)")
    assert failures(proof(before, graph("y = Exp(x)"))) == []
    after = graph("e = Exp(x) y = Clip(e, , m)", init="float m = {1e30}")
    assert any("large" in one and "nan" in one for one in failures(proof(before, after)))


def test_a_nan_that_appears_fails_and_one_that_was_there_is_not_compared(proof):
    root, safe = graph("y = Sqrt(x)"), graph("a = Abs(x) y = Sqrt(a)")
    assert failures(proof(root, safe)) == []
    assert any("nan" in one for one in failures(proof(safe, root)))


def test_half_precision_has_its_own_budget(proof):
    exact = graph("y = Tanh(x)", "float16[2,8] x", output="float16[] y")
    body = "d = Cast<to=11>(x) t = Tanh(d) y = Cast<to=10>(t)"
    assert failures(proof(exact, graph(body, "float16[2,8] x", output="float16[] y"))) == []
    assert failures(proof(exact, graph("y = Softsign(x)", "float16[2,8] x", output="float16[] y")))


def test_sizes_that_strides_need_are_found(tmp_path):
    body = "y = Conv<kernel_shape=[40], strides=[20]>(x, w)"
    model = graph(body, 'float["n",1,"t"] x, float[2,1,40] w')
    (tmp_path / "a").write_bytes(model.SerializeToString())
    assert reference_of(model, tmp_path / "a").inputs["spread"]["x"].shape[2] >= 40


def test_guessed_inputs_stay_small(tmp_path, monkeypatch):
    monkeypatch.setattr(prove, "MOST_ELEMENTS", 1000)
    model = graph("y = Conv<kernel_shape=[40], strides=[20]>(x, w)", 'float["n",1,"t"] x, float[2,1,40] w')
    (tmp_path / "a").write_bytes(model.SerializeToString())
    inputs = reference_of(model, tmp_path / "a").inputs
    assert all(sum(array.size for array in probe.values()) <= 1000 for probe in inputs.values())


def test_what_nothing_runs_is_refused_with_a_way_out(tmp_path):
    model = graph("y = com.acme.Whirl(x)")
    (tmp_path / "a").write_bytes(model.SerializeToString())
    with pytest.raises(StageError, match="neither ONNX Runtime nor onnx' evaluator") as caught:
        reference_of(model, tmp_path / "a")
    assert caught.value.hint


def test_sizes_that_none_of_the_guesses_meets_are_told_with_the_first_and_the_last(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(graph("y = Reshape(x, s)", 'float["n"] x', init="int64[2] s = {2, 1000}"), path)
    with pytest.raises(StageError, match=r"n = 3: .*Reshape.*; n = 1000: .*\{1000\}") as refused:
        reference_of(onnx.load(path), path)
    assert "graph fix-shape" in refused.value.hint


def test_what_onnx_runtime_says_is_told_where_the_evaluator_does_not_know_the_operator(tmp_path):
    path = tmp_path / "m.onnx"
    inputs = "float[1,1,16] q, float[1,1,8] k, float[1,2,3,4] c, int32[1] l, int32 t"  # a head of 4, which it refuses
    body = "y, a, b = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, k, c, c, l, t)"
    onnx.save(graph(body, inputs, 17), path)
    with pytest.raises(StageError, match="head_size must be a multiple"):
        reference_of(onnx.load(path), path)


def test_sizes_that_an_exporter_wrote_into_the_graph_are_found(tmp_path):
    path = tmp_path / "m.onnx"
    body = """
        t = Transpose<perm=[1,0,2]>(x) k = Constant<value = int64[1] {26}>() s = Concat<axis=0>(n, k, f)
        r = Reshape(t, s) q = Reshape(r, b) p = Add(q, t) y = Relu(p)
    """
    init = "int64[1] n = {11}, int64[1] f = {4}, int64[3] b = {11, 13, 8}"  # traced with 13 rows of 11
    onnx.save(graph(body, 'float["rows","time",8] x', init=init), path)
    found = reference_of(onnx.load(path), path)
    assert found.inputs["spread"]["x"].shape == (13, 11, 8)
