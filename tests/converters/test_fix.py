from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from fix_reports import changed, proofs
from helpers import call

from converters import fix
from converters.facts import facts
from converters.fix import fix_model
from converters.passes import PASSES
from converters.passes.page import page
from converters.scan import scan
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import sha256_of

SLICE = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[2, "n"] x) => (float[2, "m"] y)
<int64[1] starts = {1}, int64[1] ends = {9223372036854775807}, int64[1] axes = {1}> {
  y = Slice(x, starts, ends, axes)
}
"""


def test_a_fix_reports_passes_operators_and_findings_and_leaves_its_input(source, tmp_path):
    path = source(SLICE)
    before = sha256_of(path)
    report = fix_model(path, tmp_path / "out.onnx")
    rows = {row["name"]: row for row in report["passes"]}
    assert list(rows) == [name for name, one in PASSES.items() if not one.on_request]
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


def test_several_passes_that_are_named_run_in_the_order_of_the_list(source, tmp_path):
    named = ("drop_metadata", "clamp_int64")
    words = [word for name in named for word in ("--only", name)]
    done = call("fix", source(SLICE), "--out", tmp_path / "out.onnx", *words, "--json")
    document = json.loads(done.stdout)
    assert [row["name"] for row in document["passes"]] == [name for name in PASSES if name in named]
    assert document["findings"]["after"] == []


def test_the_input_is_never_the_output(source):
    path = source(SLICE)
    with pytest.raises(StageError, match="is the input"):
        fix_model(path, path.parent / "." / path.name)


def test_a_pass_that_changes_numbers_exits_with_3_and_writes_nothing(source, tmp_path, monkeypatch):
    def wrong(model, context):
        outcome = PASSES["clamp_int64"].run(model, context)
        model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.array([2]), "ends"))
        return outcome

    broken = dataclasses.replace(PASSES["clamp_int64"], run=wrong)
    monkeypatch.setattr(fix, "PASSES", {"clamp_int64": broken})
    with pytest.raises(BudgetMissedError, match=r"pass clamp_int64 changed the numbers: FAIL clamp_int64 / spread / y"):
        fix_model(source(SLICE), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_given_inputs_are_used_for_the_proof(source, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.savez(tmp_path / "f.npz", **{"in::x": x, "out::y": x})
    inputs = fix.read_fixture(tmp_path / "f.npz")
    report = fix_model(source(SLICE), tmp_path / "out.onnx", inputs=inputs)
    assert proofs(report) == {"clamp_int64": "exact"}
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
    assert proofs(fix_model(source(text), tmp_path / "out.onnx")) == {"clamp_int64": "exact"}


def test_an_exported_model_is_left_byte_for_byte(exported, tmp_path):
    made = exported("gemma3_text")
    report = fix_model(made.onnx, tmp_path / "out.onnx")
    assert not any(row["changed"] or row["left"] for row in report["passes"])
    assert (tmp_path / "out.onnx").read_bytes() == made.onnx.read_bytes()


FUNCTION = """
<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float[2, 8] x) => (float[2, 8] y) { a = local.act(x)  y = Sum(a) }
<domain: "local", opset_import: ["" : 20]>
act (p) => (q) { h = Gelu<approximate="tanh">(p)  q = LayerNormalization(h, h) }
"""


def test_what_one_pass_uncovers_is_mended_by_others(source, tmp_path):
    text = FUNCTION.replace("LayerNormalization(h, h)", 'Gelu<approximate="tanh">(h)')
    report = fix_model(source(text), tmp_path / "out.onnx")
    assert changed(report) == {"inline_functions": 1, "gelu_tanh": 2, "sum_single": 1}
    assert report["findings"]["after"] == [] and report["explained"] == []
    assert report["operators"]["before"] == {"Sum": 1, "act": 1} and "Gelu" not in report["operators"]["after"]


def test_every_finding_that_is_left_says_why(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 15, "com.microsoft" : 1]>
    g (float[3, "n", "n"] x) => (float[] y) {
      p = MaxPool<kernel_shape = [2], dilations = [2], pads = [1, 1]>(x)
      q = Det(p)
      y = Sum(q)
    }
    """
    report = fix_model(source(text), tmp_path / "out.onnx")
    why = {one["id"]: one["why"] for one in report["explained"]}
    assert why["MAXPOOL.DILATION"] == "pooling: a dilated window needs sizes, which are not known"
    assert why["OPERATOR.UNSUPPORTED"].startswith("arithmetic: it has more than 3 rows")
    assert changed(report) == {"sum_single": 1}


def test_a_finding_names_the_passes_that_mend_it(source):
    text = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float[2, 8] x) => (float[] y) {
      a = com.microsoft.FastGelu(x) b = com.microsoft.Unheard(a) y = Gelu<approximate="tanh">(b)
    }
    """
    found = {
        finding.operator: finding.passes for finding in scan(source(text)) if finding.node != "y" or finding.operator
    }
    assert found["com.microsoft::FastGelu"] == ("contrib_gelu",) and found["com.microsoft::Unheard"] == ()
    assert found["Gelu"] == ("gelu_tanh",)


def test_check_each_names_the_place(source, tmp_path, monkeypatch):
    from converters.passes import forms

    right = forms.gelu_tanh

    def wrong(emit, x, to):
        if x == "b":
            emit("Tanh", x, to=to)
        else:
            right(emit, x, to)

    text = """
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[2, 8] x) => (float[2, 8] y) {
      a = Gelu<approximate="tanh">(x) b = Relu(a) c = Gelu<approximate="tanh">(b) y = Neg(c)
    }
    """
    monkeypatch.setattr(forms, "gelu_tanh", wrong)
    with pytest.raises(BudgetMissedError, match="pass gelu_tanh changed the numbers") as caught:
        fix_model(source(text), tmp_path / "out.onnx")
    assert "--check-each" in caught.value.hint
    assert "first at Tanh" in caught.value.message
    with pytest.raises(BudgetMissedError, match="pass gelu_tanh at Gelu c changed the numbers"):
        fix_model(source(text), tmp_path / "out.onnx", check_each=True)


def test_check_each_comes_to_the_same_file(source, tmp_path):
    path = source(FUNCTION.replace("LayerNormalization(h, h)", 'Gelu<approximate="tanh">(h)'))
    reports = [fix_model(path, tmp_path / f"{each}.onnx", check_each=each) for each in (False, True)]
    assert changed(reports[0]) == changed(reports[1])
    assert reports[0]["operators"] == reports[1]["operators"]


DETECTOR = """
<ir_version: 10, opset_import: ["" : 19]>
g (float[1, 1, 40, 40] x) => (float[] y) {
  y = AveragePool<kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]>(x)
}
"""


def test_what_would_outgrow_the_file_is_left(source, tmp_path, monkeypatch):
    monkeypatch.setattr(fix, "LEAST_GROWTH", 0)
    report = fix_model(source(DETECTOR), tmp_path / "out.onnx", growth=0.1)
    assert changed(report) == {} and "bytes of constants" in report["explained"][0]["why"]
    assert changed(fix_model(source(DETECTOR), tmp_path / "out.onnx", growth=100)) == {"pooling": 1}


def beside(folder: Path) -> Path:
    """Write a model with a Sum of one input, whose weight lies in a side file behind four bytes."""
    folder.mkdir()
    text = SLICE.replace(
        "y = Slice(x, starts, ends, axes)", "p = Slice(x, starts, ends, axes) q = Sum(p) y = Mul(q, w)"
    )
    model = onnx.parser.parse_model(text)
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
    for key, value in (("location", "w.bin"), ("offset", "4"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    (folder / "w.bin").write_bytes(np.float32([1, 3]).tobytes())
    (folder / "in.onnx").write_bytes(model.SerializeToString())
    return folder / "in.onnx"


def test_a_result_that_would_lack_its_weights_is_not_written(tmp_path):
    path = beside(tmp_path / "models")
    with pytest.raises(StageError, match=r"w: its file 'w.bin' is not there") as caught:
        fix_model(path, tmp_path / "out" / "out.onnx", "sum_single")
    assert "without --only" in caught.value.hint and not list((tmp_path / "out").iterdir())
    assert changed(fix_model(path, path.with_name("out.onnx"), "sum_single")) == {"sum_single": 1}
    assert changed(fix_model(path, tmp_path / "out" / "out.onnx"))["inline_weights"] == 1
    (path.parent / "w.bin").write_bytes(bytes(6))
    with pytest.raises(StageError, match=r"w: w.bin ends before byte 8") as caught:
        fix_model(path, path.with_name("short.onnx"))
    assert caught.value.hint.startswith("put every side file") and not path.with_name("short.onnx").exists()


def test_what_changes_by_design_says_by_how_much(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 15]>
    g (float[2, 8] x) => (float[] y)
    <float s = {0.02}, uint8 z = {128}> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Sum(d) }
    """
    report = fix_model(source(text), tmp_path / "out.onnx")
    assert proofs(report)["dequantise"].startswith("changed by design (activations are no longer rounded): ")
    assert "dB" in proofs(report)["dequantise"] and proofs(report)["sum_single"] == "exact"


def test_operators_that_draw_by_chance_do_not_hide_a_proof(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 15]>
    g (float[2, 8] x) => (float[2, 8] y) { n = RandomNormalLike(x) a = Add(x, n) y = Sum(a) }
    """
    assert proofs(fix_model(source(text), tmp_path / "out.onnx")) == {"sum_single": "exact"}


def test_a_pass_on_request_runs_when_it_is_named(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 15]>
    g (float[2, 8] x) => (float[] y) <int64[1] i = {-1}> { y = Gather(x, i) }
    """
    assert changed(fix_model(source(text), tmp_path / "out.onnx")) == {}
    report = fix_model(source(text), tmp_path / "out.onnx", "positive_indices")
    assert changed(report) == {"positive_indices": 1}


def test_files_whose_initialisers_are_inputs_stay_runnable(source, tmp_path):
    text = """
    <ir_version: 3, opset_import: ["" : 11]>
    g (float[2, 3, 8] x, float[8] w) => (float[] y) <float[8] w = {1,2,3,4,5,6,7,8}> { m = Mul(x, w) y = Softmax(m) }
    """
    report = fix_model(source(text), tmp_path / "out.onnx")
    assert changed(report) == {"softmax_axis": 1} and proofs(report)["softmax_axis"] == "exact"


def test_the_page_of_passes_is_the_generated_one():
    docs = Path(__file__).parents[2] / "docs" / "passes.md"
    assert docs.read_text(encoding="utf-8") == page(), "run `make readme`"


def test_every_pass_has_its_tests_and_names_known_findings():
    known = {rule for version in ("2.4", "2.6") for rule in facts(version).rules}
    for name, one in PASSES.items():
        assert one.name == name and set(one.findings) <= known, name
        assert (Path(__file__).parent / "passes" / f"test_{name}.py").is_file()


def test_what_sentis_would_fuse_back_is_refused(source, tmp_path, monkeypatch):
    from converters.passes import forms

    def with_a_power(emit, x, to):
        cube = emit("Mul", emit("Pow", x, emit.number(3, x)), emit.number(0.044715, x))
        inner = emit("Mul", emit("Add", x, cube), emit.number(0.7978845834732056, x))
        outer = emit("Add", emit("Tanh", inner), emit.number(1, x))
        emit("Mul", emit("Mul", x, emit.number(0.5, x)), outer, to=to)

    text = """
    <ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2, 8] x) => (float[2, 8] y) { y = com.microsoft.FastGelu(x) }
    """
    monkeypatch.setattr(forms, "gelu_tanh", with_a_power)
    with pytest.raises(BudgetMissedError, match="pass contrib_gelu is undone: Sentis fuses 'y' back to GeluFast"):
        fix_model(source(text), tmp_path / "out.onnx", "contrib_gelu")
    assert not (tmp_path / "out.onnx").exists()


def test_shapes_that_the_file_tells_are_used_before_they_are_dropped(source, tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 15, "com.microsoft" : 1]>
    g (float[2, 4, 4] x) => (float[] y)
    <float[2, 4, 4] h> { h = com.microsoft.Inverse(x) y = com.microsoft.FusedMatMul<transB = 1>(h, h) }
    """
    path = source(text)
    report = fix_model(path, tmp_path / "out.onnx")
    assert changed(report) == {"contrib_linear": 1, "drop_metadata": 1}


def test_what_onnx_runtime_does_not_run_is_proven_in_onnx_own_evaluator(source, tmp_path):
    def with_weights(model):
        values = np.random.default_rng(0).standard_normal((8, 4)).astype(ml_dtypes.bfloat16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))

    text = """
    <ir_version: 10, opset_import: ["" : 18]>
    g (bfloat16[2, 8] x) => (bfloat16[2, 4] y) { h = MatMul(x, w) y = Sum(h) }
    """
    report = fix_model(source(text, with_weights), tmp_path / "out.onnx")
    assert proofs(report)["raw_tensors"] == "exact, in onnx's reference evaluator"
    assert report["findings"]["after"] == []


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_graph_that_onnx_runtime_optimised_comes_back_clean(exported, tmp_path, model_type):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(exported(model_type).onnx), options, providers=["CPUExecutionProvider"])
    assert any(finding.id == "OPERATOR.CONTRIB" for finding in scan(tmp_path / "optimised.onnx"))
    report = fix_model(tmp_path / "optimised.onnx", tmp_path / "out.onnx")
    assert [finding["id"] for finding in report["findings"]["after"]] == []
    assert all("dB" in proof or proof == "exact" for proof in proofs(report).values())
