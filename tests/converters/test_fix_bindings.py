"""Inputs that `fix --bind` makes constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from fix_reports import proofs

from converters.fix import fix_model
from converters.prove import outputs_of
from weights_bridge.errors import StageError

RATES = """
<ir_version: 10, opset_import: ["" : 15]>
g (float[2, 8] x, int64 sr) => (float[2, 8] y)
<int64 rate = {16000}> {
  c = Equal(sr, rate)
  y = If(c) <
    then_branch = a () => (float[2, 8] p) { p = Relu(x) }, else_branch = b () => (float[2, 8] q) { q = Neg(x) }
  >
}
"""


@pytest.mark.parametrize("rate, wanted", [("16000", {"Relu": 1}), ("8000", {"Neg": 1})])
def test_a_bound_input_decides_branches(source, tmp_path, rate, wanted):
    report = fix_model(source(RATES), tmp_path / "out.onnx", bind={"sr": rate})
    assert report["operators"]["after"] == wanted and proofs(report)["select_branch"] == "exact"
    model = onnx.load(str(tmp_path / "out.onnx"))
    assert [value.name for value in model.graph.input] == ["x"] and not model.graph.initializer


def test_what_cannot_be_bound_is_refused(source, tmp_path):
    with pytest.raises(StageError, match="unknown input 'rs'"):
        fix_model(source(RATES), tmp_path / "out.onnx", bind={"rs": "1"})
    with pytest.raises(StageError, match="--bind sr=fast: wanted one int64 number"):
        fix_model(source(RATES), tmp_path / "out.onnx", bind={"sr": "fast"})
    with pytest.raises(StageError, match="wanted one int64 number"):
        fix_model(source(RATES), tmp_path / "out.onnx", bind={"sr": "9" * 30})
    with pytest.raises(StageError, match=r"--bind x=1,2,3: 3 numbers for a shape of \[2, 8\]"):
        fix_model(source(RATES), tmp_path / "out.onnx", bind={"x": "1,2,3"})
    texts = RATES.replace("int64 sr)", "int64 sr, string[2] names, seq(float[2]) list)")
    for name in ("names", "list"):
        with pytest.raises(StageError, match=f"--bind {name}=1: the input is no tensor of numbers"):
            fix_model(source(texts), tmp_path / "out.onnx", bind={name: "1"})
    enormous = source(
        RATES, lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**62)
    )
    with pytest.raises(StageError, match="--bind x=1: 1 number for a shape of"):
        fix_model(enormous, tmp_path / "out.onnx", bind={"x": "1"})


RESIZED = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[1, 1, 4, 4] x, float["n"] scales) => (float[1, 1, "h", "w"] y) { y = Resize<mode = "cubic">(x, , scales) }
"""


def test_a_bound_input_may_hold_several_numbers(source, tmp_path):
    left = fix_model(source(RESIZED), tmp_path / "left.onnx")
    assert [one["id"] for one in left["findings"]["after"]] == ["RESIZE.CUBIC"]
    report = fix_model(source(RESIZED), tmp_path / "out.onnx", bind={"scales": "1,1,2,0.5"})
    assert report["findings"]["after"] == [] and "resize" in proofs(report)
    (found,) = outputs_of(tmp_path / "out.onnx", {"x": np.ones((1, 1, 4, 4), np.float32)}).values()
    assert found.shape == (1, 1, 8, 2)
