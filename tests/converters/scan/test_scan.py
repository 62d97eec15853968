"""What a scan answers as a whole: files, folders, directories, versions."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from scan_cases import graph

from converters.facts import facts, versions
from converters.finding import TAXONOMY, Finding
from converters.onnx_file import read_skeleton
from converters.scan import scan
from mlx_sentis.demo.toy import write_toy_model
from weights_bridge.errors import StageError


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def test_a_clean_graph_has_no_findings(scanned):
    assert scanned(graph("y = Relu(x)"), notes=True) == []


@pytest.mark.parametrize(
    "body, wanted, taxonomy",
    [
        ("y = com.acme.Whirl(x)", "OPERATOR.CONTRIB", "A"),
        ("y = Sum(x)", "SUM.SINGLE_INPUT", "C"),
        ("y = LayerNormalization(x, s)", "LAYERNORM.NO_BIAS", "A"),
    ],
)
def test_a_finding_has_node_severity_class_effect_and_mend(scanned, body, wanted, taxonomy):
    (found,) = scanned(graph(body, "float[2,8] x, float[8] s", 18))
    assert (found.id, found.taxonomy, found.node, found.file) == (wanted, taxonomy, "y", "m.onnx")
    assert found.blocking and found.what and found.mend


def test_notes_are_told_only_when_asked(scanned):
    model = graph("y = Cast<to=10>(x)")
    assert scanned(model) == [] and ids(scanned(model, notes=True)) == ["CAST.FP16"]


def test_what_only_may_happen_is_a_warning(scanned):
    axis = "y = LayerNormalization<axis=1>(x, s, s)"
    (known,) = scanned(graph(axis, "float[2,3,8] x, float[8] s", 18))
    (unknown,) = scanned(graph(axis, "float[] x, float[8] s", 18))[1:]
    assert (known.severity, unknown.severity) == ("deviation", "warning") and known.id == unknown.id


def test_control_flow_is_found_and_its_bodies_are_searched(scanned):
    model = graph(
        """
        c = Constant<value = bool {1}>()
        y = If(c) <
          then_branch = a () => (float[2,8] p) { p = Relu(x) },
          else_branch = b () => (float[2,8] q) { q = com.microsoft.FastGelu(x) }
        >
    """,
        opset=18,
    )
    found = scanned(model)
    assert ids(found) == ["CONTROL_FLOW", "OPERATOR.CONTRIB", "TENSOR.TYPED_FIELD"]  # the parser stores bool as int32
    assert found[0].taxonomy == "B" and found[1].node.startswith("If / ")


def test_local_functions_are_found(scanned):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 18]> f (a) => (b) { b = Relu(a) }
    """)
    assert ids(scanned(model)) == ["FUNCTION.LOCAL"]


def test_types_are_followed_through_the_graph(scanned):
    body = "s = Shape(x) i = Identity(s) r = Relu(i) y = Add(x, r)"
    found = scanned(graph(body))
    assert [(f.id, f.node) for f in found] == [("ADD.MIXED", "y"), ("RELU.INT_INPUT", "r")]


def test_types_are_followed_through_a_domain_that_sentis_ignores_and_nodes_out_of_order(scanned):
    model = graph("r = Relu(i) i = com.microsoft.Pad(n, p) y = Identity(x)", "float[2] x, int32[2] n, int64[2] p")
    assert "RELU.INT_INPUT" in ids(scanned(model))


def test_versions_differ_where_their_facts_do(scanned):
    model = graph("y = Swish<alpha=1.5>(x)")
    assert ids(scanned(model, "2.4")) == ["SWISH.ALPHA"] == ids(scanned(model, "2.5")) and scanned(model, "2.6") == []
    norm = graph("y = RMSNormalization(x, s)", "float[2,8] x, float[8] s")
    assert ids(scanned(norm, "2.5")) == ["OPERATOR.UNSUPPORTED"] and scanned(norm, "2.6") == []
    assert ids(scanned(graph("y = Relu(x)", opset=18), "2.4")) == ["OPSET.WINDOW"]
    cubic = graph('y = GridSample<mode="bicubic">(x, g)', "float[1,3,8,8] x, float[1,4,4,2] g")
    assert ids(scanned(cubic, "2.4")) == ["GRIDSAMPLE.CUBIC_CPU", "GRIDSAMPLE.CUBIC_GPU"]
    assert ids(scanned(cubic, "2.6")) == ["GRIDSAMPLE.CUBIC_CPU"]
    pool = graph("y = MaxPool<kernel_shape=[2,2,2]>(x)", "float[1,3,8,8,8] x")
    assert ids(scanned(pool, "2.4")) == ["MAXPOOL.3D_GPU"] and scanned(pool, "2.5") == []


def test_what_was_not_read_in_a_version_is_said_to_be_not_verified(scanned):
    smallest = graph("y, i = TopK<largest=0>(x, k)", init="int64[1] k = {3}")
    assert [scanned(smallest, version)[0].verified for version in ("2.4", "2.5", "2.6")] == [True, False, False]
    doubled = graph("y = Sum(x)")
    assert all(scanned(doubled, version)[0].verified for version in ("2.4", "2.5", "2.6"))


def test_an_unknown_version_is_not_predicted():
    with pytest.raises(StageError, match="not predicted") as caught:
        facts("2.9")
    assert all(version in caught.value.hint for version in versions()) and "2.6" in versions()


def test_facts_are_complete_and_small():
    from importlib import resources

    known = facts("2.4")
    assert len(known.operators) == 147 and len(known.not_handled) == 198
    assert not set(known.operators) & {op for domain, op in known.not_handled if not domain}
    assert set(facts("2.6").operators) - set(known.operators) == {"RMSNormalization"}
    assert facts("2.6")["opset_window"] == [7, 25] and facts("2.5")["opset_window"] == [7, 15]
    assert all(facts(version)["unknown"] and facts(version)["source"] for version in versions())
    assert {rule.taxonomy for rule in known.rules.values()} == set(TAXONOMY)
    files = list(resources.files("converters").joinpath("sentis").iterdir())
    assert sum(len(file.read_bytes()) for file in files) < 100_000


def test_a_model_directory_is_judged_without_its_weights(tmp_path):
    folder = write_toy_model(tmp_path / "m", "qwen3")
    assert scan(folder) == []
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "opt"}))
    assert ids(scan(folder)) == ["MODEL.ARCHITECTURE"]
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    (found,) = scan(folder)
    assert (found.id, found.taxonomy) == ("MODEL.RECURRENCE", "B") and "there is no path" in found.what
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 2_000_000, "hidden_size": 512}))
    assert ids(scan(folder)) == ["MODEL.SIZE", "MODEL.TENSORS"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    assert ids(scan(folder)) == ["MODEL.WEIGHTS"]


def test_a_model_directory_that_holds_graphs_only_is_judged_by_these(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(graph("y = Sum(x)").SerializeToString())
    (found,) = scan(tmp_path)
    assert (found.id, found.file) == ("SUM.SINGLE_INPUT", "onnx/model.onnx")


def test_a_folder_of_files_names_the_file_of_each_finding(tmp_path):
    (tmp_path / "a.onnx").write_bytes(graph("y = Relu(x)").SerializeToString())
    (tmp_path / "b.onnx").write_bytes(graph("y = Sum(x)").SerializeToString())
    (finding,) = scan(tmp_path)
    assert (finding.file, finding.node) == ("b.onnx", "y")
    with pytest.raises(StageError, match="neither"):
        (tmp_path / "empty").mkdir()
        scan(tmp_path / "empty")


def test_a_finding_names_the_passes_that_mend_it(scanned):
    model = graph("y = Relu(x)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**40]), "w"))
    (found,) = scanned(model)
    assert found.passes == ("clamp_int64",)


def large(name: str, count: int) -> onnx.NodeProto:
    values = numpy_helper.from_array(np.arange(count, dtype=np.float32), name)
    return onnx.helper.make_node("Constant", [], [name], name=f"node of {name}", value=values)


def with_bodies(then_count: int, else_count: int) -> onnx.ModelProto:
    """Return an If whose branches each hold a large Constant of the same name."""
    model = graph("c = Constant<value = bool {1}>() y = Relu(x)")
    bodies = []
    for count in (then_count, else_count):
        sum_of = onnx.helper.make_node("ReduceSum", ["k"], ["s"], keepdims=0)
        out = onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [])
        bodies.append(onnx.helper.make_graph([large("k", count), sum_of], "body", [], [out]))
    branches = dict(zip(("then_branch", "else_branch"), bodies, strict=True))
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], **branches))
    return model


def test_large_constants_in_bodies_have_their_data_also_where_two_bodies_use_one_name(scanned):
    model = with_bodies(2_000, 3_000)
    assert "TENSOR.BYTES" not in ids(scanned(model))
    then = next(one for one in model.graph.node[-1].attribute if one.name == "then_branch")
    then.g.node[0].attribute[0].t.dims[0] = 1_999
    (found,) = [one for one in scanned(model) if one.id == "TENSOR.BYTES"]
    assert "8000 bytes" in found.what and "(1999,)" in found.what


def test_a_constant_of_a_function_is_not_taken_for_one_of_the_graph(tmp_path, scanned):
    model = graph("y = com.acme.Add3(x)", "float[3000] x")
    model.graph.node.insert(0, large("k", 3_000))
    inner = [large("k", 2_000), onnx.helper.make_node("Identity", ["k"], ["b"])]
    opsets = [onnx.helper.make_opsetid("", 15)]
    model.functions.append(onnx.helper.make_function("com.acme", "Add3", ["a"], ["b"], inner, opsets))
    assert "TENSOR.BYTES" not in ids(scanned(model))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    at = read_skeleton(path).data_at["k"]
    assert np.array_equal(np.frombuffer(path.read_bytes()[at:][:12_000], "<f4"), np.arange(3_000))


FITS = "y = Cast<to=2>(v)"
BOUNDS = "float l = {0.0}, float h = {255.0}, float m = {256.0}, float[1] n = {-1.0}"


@pytest.mark.parametrize(
    "body, opset",
    [
        (f"v = Clip(x, l, h) {FITS}", 15),
        (f"v = Clip<min=0.0, max=255.0>(x) {FITS}", 10),
        (f"s = Sigmoid(x) t = Mul(s, h) v = Round(t) {FITS}", 15),
        (f"b = Cast<to=1>(u) v = MaxPool<kernel_shape=[1,2]>(b) {FITS}", 15),
        (f"b = Cast<to=1>(u) c = Sub(b, h) d = Relu(c) v = Max(d, b) {FITS}", 15),
        (f"b = Cast<to=1>(u) c = Greater(b, l) v = Where(c, b, h) {FITS}", 15),
    ],
)
def test_a_cast_of_what_lies_within_its_range_is_no_finding(scanned, body, opset):
    assert scanned(graph(body, "float[1,1,4,4] x, uint8[1,1,4,4] u", opset, BOUNDS)) == []


@pytest.mark.parametrize(
    "body",
    [
        f"v = Clip(x, l, m) {FITS}",
        f"v = Clip(x, , h) {FITS}",
        "b = Cast<to=1>(u) v = Max(b, n) w = Mul(v, n) y = Cast<to=2>(w)",
        f"b = Cast<to=1>(u) c = Greater(b, l) v = Where(c, b, m) {FITS}",
        f"b = Cast<to=1>(u) v = Add(b, b) {FITS}",
        f'b = Cast<to=1>(u) e = Constant<value = float[0] {{}}>() r = Resize<mode="cubic">(b, e, k) v = Relu(r) {FITS}',
    ],
)
def test_a_cast_of_what_can_pass_its_range_is_found(scanned, body):
    model = graph(body, "float[1,1,4,4] x, uint8[1,1,4,4] u", 15, f"{BOUNDS}, float[4] k = {{1,1,2,2}}")
    assert "CAST.NARROW_INT" in ids(scanned(model))


@pytest.mark.parametrize(
    "body, inputs, wanted",
    [
        ('y = Einsum<equation="ji,jk">(x, x)', "float[2,8] x", False),  # j is summed away: ik stays, in order
        ('y = Einsum<equation="ki,jk">(x, x)', "float[8,8] x", False),  # ij
        ('y = Einsum<equation="kj,ki">(x, x)', "float[8,8] x", True),  # j, i
    ],
)
def test_only_labels_that_stay_decide_the_order_of_an_einsum(scanned, body, inputs, wanted):
    assert ("EINSUM.IMPLICIT" in ids(scanned(graph(body, inputs)))) == wanted


@pytest.mark.parametrize("axis, wanted", [(-3, []), (2, []), (3, ["ATTRIBUTE.AXIS"]), (-4, ["ATTRIBUTE.AXIS"])])
def test_the_new_axis_of_a_one_hot_may_be_the_last(scanned, axis, wanted):
    model = graph(f"y = OneHot<axis={axis}>(x, d, v)", "int64[2,8] x", init="int64 d = {4}, float[2] v = {0,1}")
    assert ids(scanned(model)) == wanted


@pytest.mark.parametrize(
    "body, wanted",
    [
        ("d = Sub(a, b) y = Cast<to=2>(d)", True),  # 0 to 10 less 0 to 3: from -3
        ("s = Add(a, three) d = Sub(s, b) y = Cast<to=2>(d)", False),  # from 0 to 13
        ("m = Mod(x, k) y = Cast<to=2>(m)", False),  # 0 to 255
        ("m = Mod(x, k) n = Add(m, one) y = Cast<to=2>(n)", True),  # to 256
        ("m = Mod(x, k) y = Cast<to=3>(m)", True),  # 255 is no int8
    ],
)
def test_what_an_integer_can_be_decides_about_a_narrow_cast(scanned, body, wanted):
    init = "int32 z = {0}, int32 ten = {10}, int32 three = {3}, int32 one = {1}, int32 k = {256}"
    clipped = "a = Clip(x, z, ten) b = Clip(x, z, three) " if "Sub" in body else ""
    found = ids(scanned(graph(clipped + body, "int32[2,8] x", init=init, output="uint8[2,8] y")))
    assert ("CAST.NARROW_INT" in found) == wanted


def test_what_a_body_makes_itself_is_not_missing_outside(scanned):
    taken = "then_branch = a () => (float p) { q = Relu(x) p = Abs(q) }"
    other = "else_branch = b () => (float r) { r = Neg(x) }"
    assert ids(scanned(graph(f"y = If(c) < {taken}, {other} >", "float[2,8] x, bool c"))) == ["CONTROL_FLOW"]


def test_an_operator_of_another_domain_is_not_taken_for_the_one_of_onnx(scanned):
    (found,) = scanned(graph("y = com.acme.Unique(x)"))
    assert (found.id, found.operator) == ("OPERATOR.CONTRIB", "com.acme::Unique")


def test_a_constant_of_floats_in_an_attribute_is_read_as_floats(scanned):
    body = 'c = Constant<value_floats=[1.0, 1.0, 1.5, 1.5]>() y = Resize<mode="nearest">(x, , c)'
    found = {one.id: one.what for one in scanned(graph(body, "float[1,1,3,3] x"), notes=True)}
    assert "axis 2: 3 · 1.5 = 4.5" in found["RESIZE.SCALES_ROUND"]


@pytest.mark.parametrize("source, to, wanted", [("uint8", 3, True), ("uint8", 5, False), ("bool", 3, False)])
def test_a_sign_takes_one_bit_of_a_narrow_cast(scanned, source, to, wanted):
    found = ids(scanned(graph(f"n = Cast<to={to}>(u) y = Cast<to=1>(n)", f"{source}[2,8] u")))
    assert ("CAST.NARROW_INT" in found) == wanted
