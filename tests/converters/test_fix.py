from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnx.parser
import pytest

from converters import fix
from converters.fix import fix_model
from converters.passes import PASSES
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import sha256_of

SLICE = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[2, "n"] x) => (float[2, "m"] y)
<int64[1] starts = {1}, int64[1] ends = {9223372036854775807}, int64[1] axes = {1}> {
  y = Slice(x, starts, ends, axes)
}
"""


@pytest.fixture
def source(tmp_path):
    def write(text: str, change=None):
        model = onnx.parser.parse_model(text)
        if change:
            change(model)
        path = tmp_path / "in.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write


def test_a_fix_reports_passes_operators_and_findings_and_leaves_its_input(source, tmp_path):
    path = source(SLICE)
    before = sha256_of(path)
    report = fix_model(path, tmp_path / "out.onnx")
    rows = {row["name"]: row for row in report["passes"]}
    assert list(rows) == list(PASSES)
    assert rows["clamp_int64"]["changed"] == 1 and rows["clamp_int64"]["proof"] == "exact"
    assert rows["inline_weights"] | {"why": ""} == {
        "name": "inline_weights", "why": "", "changed": 0, "left": {}, "proof": "nothing changed",
    }  # fmt: skip
    assert report["operators"] == {"before": {"Slice": 1}, "after": {"Slice": 1}}
    assert [f["id"] for f in report["findings"]["before"]] == ["INT64.RANGE"] and report["findings"]["after"] == []
    assert sha256_of(path) == before


def test_only_runs_one_pass_and_unknown_names_are_refused(source, tmp_path):
    path = source(SLICE)
    report = fix_model(path, tmp_path / "out.onnx", "drop_metadata")
    assert [row["name"] for row in report["passes"]] == ["drop_metadata"]
    with pytest.raises(StageError, match="unknown pass 'clamp'") as caught:
        fix_model(path, tmp_path / "out.onnx", "clamp")
    assert "did you mean clamp_int64" in caught.value.hint


def test_the_input_is_never_the_output(source):
    path = source(SLICE)
    with pytest.raises(StageError, match="is the input"):
        fix_model(path, path.parent / "." / path.name)


def test_a_pass_that_changes_numbers_exits_with_3_and_writes_nothing(source, tmp_path, monkeypatch):
    def wrong(model, folder):
        outcome = PASSES["clamp_int64"].run(model, folder)
        model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.array([2]), "ends"))
        return outcome

    broken = dataclasses.replace(PASSES["clamp_int64"], run=wrong)
    monkeypatch.setattr(fix, "PASSES", {"clamp_int64": broken})
    with pytest.raises(BudgetMissedError, match=r"pass clamp_int64 changed the numbers: FAIL clamp_int64 / y"):
        fix_model(source(SLICE), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_given_inputs_are_used_for_the_proof(source, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.savez(tmp_path / "f.npz", **{"in::x": x, "out::y": x})
    inputs = fix.read_fixture(tmp_path / "f.npz")
    report = fix_model(source(SLICE), tmp_path / "out.onnx", inputs=inputs)
    assert report["passes"][-1]["proof"] == "exact"
    np.savez(tmp_path / "f.npz", **{"out::y": x})
    with pytest.raises(StageError, match="no in:: arrays"):
        fix.read_fixture(tmp_path / "f.npz")


def test_sizes_that_must_add_up_are_found_by_trying(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 18]>
    g (float[1, "a"] p, float[1, "b"] q, float[1, "c"] mask) => (float[1, "c"] y)
    <int64[1] starts = {0}, int64[1] ends = {9223372036854775807}, int64[1] axes = {1}> {
      joined = Concat<axis=1>(p, q)
      masked = Add(joined, mask)
      y = Slice(masked, starts, ends, axes)
    }
    """
    assert fix_model(source(text), tmp_path / "out.onnx")["passes"][-1]["proof"] == "exact"


def test_an_exported_model_is_left_byte_for_byte(exported, tmp_path):
    made = exported("gemma3_text")
    report = fix_model(made.onnx, tmp_path / "out.onnx")
    assert [row["changed"] for row in report["passes"]] == [0, 0, 0]
    assert (tmp_path / "out.onnx").read_bytes() == made.onnx.read_bytes()
