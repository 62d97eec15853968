"""Names, sizes, side files and functions: the graph computes the same afterwards."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from converters.surgery.info import info, text_of
from converters.surgery.names import fix_shape, inline, rename_io
from weights_bridge.errors import StageError

X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


def test_inputs_and_outputs_get_other_names_and_bodies_follow(tmp_path, run):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,8] x, bool go) => (float[2,8] y) {
        a = Neg(x)
        y = If(go) <then_branch = t () => (float[2,8] p) { p = Add(x, a) },
                    else_branch = e () => (float[2,8] q) { x2 = Exp(x) q = Identity(x2) }> }"""
    path, out = tmp_path / "m.onnx", tmp_path / "named.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    report = rename_io(path, out, {"x": "image", "y": "logits"})
    assert (report["inputs"], report["outputs"]) == (["image", "go"], ["logits"])
    assert "equal in ONNX Runtime" in report["proof"]
    for go in (True, False):
        wanted = run(path, x=X, go=np.array(go))["y"]
        np.testing.assert_array_equal(run(out, image=X, go=np.array(go))["logits"], wanted)


@pytest.mark.parametrize("names, message", [
    ({"a": "b"}, "unknown input or output 'a'"), ({"x": "n"}, "'n' is taken"), ({"x": "y"}, "'y' is taken"),
    ({"x": "k", "y": "k"}, "'k' is taken"),
])  # fmt: skip
def test_a_name_that_is_unknown_or_taken_is_refused(saved, tmp_path, names, message):
    path = saved("n = Neg(x) y = Exp(n)", output="float[2,8] y")
    with pytest.raises(StageError, match=message):
        rename_io(path, tmp_path / "named.onnx", names)


def test_two_names_can_be_exchanged(saved, run, tmp_path):
    path = saved("y = Neg(x) z = Exp(x)", output="float[2,8] y, float[2,8] z")
    rename_io(path, tmp_path / "o.onnx", {"y": "z", "z": "y"})
    np.testing.assert_array_equal(run(tmp_path / "o.onnx", x=X)["z"], -X)


SIZED = {"inputs": "float[batch,T,8] x, float[T] z", "output": "float[batch,T,8] y"}
BODY = (
    "s = Shape(x) n = Gather(s, one) u = Unsqueeze(n, zero) r = Concat<axis=0>(u, end) p = Reshape(z, r) y = Mul(x, p)"
)
INIT = "int64 one = {1}, int64[1] zero = {0}, int64[1] end = {1}"


def test_named_sizes_become_numbers_everywhere_and_the_rest_is_told(saved, tmp_path):
    report = fix_shape(saved(BODY, init=INIT, **SIZED), tmp_path / "f.onnx", {"T": 5}, {})
    graph = onnx.load(str(tmp_path / "f.onnx")).graph
    sizes = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.output)]
    assert sizes == [["batch", 5, 8], [5], ["batch", 5, 8]] and report["named_sizes_left"] == ["batch"]
    assert "equal in ONNX Runtime" in report["proof"]


def test_folding_computes_what_is_constant_then(saved, tmp_path):
    report = fix_shape(saved(BODY, init=INIT, **SIZED), tmp_path / "f.onnx", {}, {"x": [2, 5, 8]}, fold=True)
    assert report["nodes"] == {"before": 6, "after": 2} and report["named_sizes_left"] == []
    assert "equal in ONNX Runtime" in report["proof"]


@pytest.mark.parametrize("sizes, shapes, message", [
    ({"t": 5}, {}, "unknown size 't'"), ({}, {"w": [1]}, "unknown input 'w'"), ({}, {"x": [2, 5]}, "found 3 sizes"),
    ({}, {"x": [2, 5, 9]}, "size 2 is 8, cannot be 9"), ({"T": 4}, {"x": [2, 5, 8]}, "T is 4 elsewhere"),
])  # fmt: skip
def test_sizes_that_contradict_the_graph_are_refused(saved, tmp_path, sizes, shapes, message):
    with pytest.raises(StageError, match=message):
        fix_shape(saved(BODY, init=INIT, **SIZED), tmp_path / "f.onnx", sizes, shapes)


def test_side_files_and_functions_come_into_one_file(tmp_path, run):
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2,8] x) => (float[2,8] y)
        <float[8] w = {1,2,3,4,5,6,7,8}> { y = own.twice(x, w) }
        <domain: "own", opset_import: ["" : 17]> twice (a, b) => (c) { d = Mul(a, b) c = Add(d, d) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.arange(1, 9, dtype=np.float32), "w"))
    path = tmp_path / "in" / "m.onnx"
    path.parent.mkdir()
    onnx.save_model(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    report = inline(path, tmp_path / "out.onnx")
    assert (report["weights_brought_in"], report["functions_inlined"]) == (1, 1)
    made = onnx.load(str(tmp_path / "out.onnx"), load_external_data=False)
    assert not made.functions and [node.op_type for node in made.graph.node] == ["Mul", "Add"]
    np.testing.assert_array_equal(run(tmp_path / "out.onnx", x=X)["y"], 2 * X * np.arange(1, 9, dtype=np.float32))
    (path.parent / "m.data").unlink()
    with pytest.raises(StageError, match="is not there"):
        inline(path, tmp_path / "again.onnx")


def test_info_tells_sizes_types_and_weights_without_reading_them(saved):
    path = saved(BODY, init=INIT + ", float[8] w = {1,2,3,4,5,6,7,8}", **SIZED)
    facts = info(path)
    assert facts["inputs"][0] == {"name": "x", "type": "FLOAT", "shape": ["batch", "T", 8]}
    assert (facts["nodes"], facts["opsets"], facts["operators"]["Concat"]) == (6, {"ai.onnx": 15}, 1)
    assert facts["initialisers"]["by_type"] == {"INT64": 24, "FLOAT": 32}
    text = text_of(facts)
    assert "input   x  FLOAT [batch, T, 8]" in text and "6 nodes" in text
