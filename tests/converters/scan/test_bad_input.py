"""Damaged, hostile and absurd files: findings or one line, never a traceback, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import fuzz_scan
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from scan_cases import CASES, graph

from converters.finding import Finding
from converters.onnx_file import is_endless
from converters.ort_session import open_session
from converters.scan import scan
from converters.scan.report import text_of
from converters.wire import field_prefix
from weights_bridge.errors import StageError

RICH = 'b = MaxPool<kernel_shape=[2,2], ceil_mode=1>(x) c = Resize<mode="cubic">(b, , s) y = Einsum<equation="abcd">(c)'


def rich_model() -> onnx.ModelProto:
    """Return a model that many rules look at: attributes, constants, a side file, a body."""
    model = graph(RICH, "float[1,3,9,n] x", init="float[4] s = {1,1,2,2}")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**40, -(2**63)]), "big"))
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="w.bin")
    outside.external_data.add(key="offset", value="8")
    model.graph.initializer.append(outside)
    body = graph("q = Relu(x)", output="float q").graph
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    return model


def told(path: Path, data: bytes) -> list[Finding] | str:
    """Return findings or the one line; anything else that is raised fails the test."""
    path.write_bytes(data)
    try:
        found = scan(path, notes=True)
    except StageError as error:
        assert "\n" not in error.message and error.hint is not None
        return error.message
    assert all("\n" not in line for line in text_of(found, path, "2.6").split("\n"))
    return found


SHARED_FOLDER = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]  # each example writes its file anew
FEW = settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=SHARED_FOLDER)


@FEW
@given(data=st.binary(max_size=400))
def test_random_bytes_give_one_line(tmp_path, data):
    assert isinstance(told(tmp_path / "m.onnx", data), str)


@FEW
@given(places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_give_findings_or_one_line(tmp_path, places):
    data = bytearray(rich_model().SerializeToString())
    for at, byte in places:
        data[at % len(data)] = byte
    told(tmp_path / "m.onnx", bytes(data))


@FEW
@given(length=st.integers(1, 10**6), case=st.sampled_from(CASES))
def test_truncated_files_give_findings_or_one_line(tmp_path, length, case):
    data = case.graphs()[0].SerializeToString()
    told(tmp_path / "m.onnx", data[: length % len(data)])


ATTRIBUTES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    st.text(max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.text(max_size=3), min_size=1, max_size=3),
    st.lists(st.floats(width=32), min_size=1, max_size=3),
)


@FEW
@given(data=st.data(), case=st.sampled_from(CASES))
def test_attributes_of_any_type_give_findings(tmp_path, data, case):
    model = case.graphs()[0]
    for node in model.graph.node:
        names = [attribute.name for attribute in node.attribute if not attribute.HasField("g")] or ["axis"]
        kept = [attribute for attribute in node.attribute if attribute.HasField("g")]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.extend(helper.make_attribute(name, data.draw(ATTRIBUTES)) for name in names)
    assert isinstance(told(tmp_path / "m.onnx", model.SerializeToString()), list)


@FEW
@given(name=st.text(min_size=1, max_size=30))
def test_names_of_any_characters_are_shown_on_one_line(tmp_path, name):
    model = graph("y = Sum(x)")
    model.graph.node[0].name = name
    try:
        data = model.SerializeToString()
    except UnicodeEncodeError:
        return
    assert isinstance(told(tmp_path / "m.onnx", data), list)


@pytest.mark.parametrize("name", ['a"b', "{x}", "%s", "a\nb", "\x1b[31m", "a\tb", "…", "a'; DROP"])
def test_quotes_braces_and_line_breaks_in_names_are_harmless(tmp_path, name):
    model = graph("y = Sum(x)")
    model.graph.node[0].name = name
    (found,) = told(tmp_path / "m.onnx", model.SerializeToString())
    assert isinstance(found, Finding) and found.node == name
    assert len(text_of([found], tmp_path / "m.onnx", "2.6").split("\n")) == 5


@pytest.mark.parametrize("dims", [[2**62, 2**62], [2**63 - 1], [0, 2**62], [-1, 4], [-(2**63)]])
def test_enormous_and_negative_declared_dims_are_findings(tmp_path, dims):
    model = graph("y = Relu(x)")
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=b"1234"))
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    for size in dims:
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=size)
    found = told(tmp_path / "m.onnx", model.SerializeToString())
    assert isinstance(found, list) and "TENSOR.BYTES" in [finding.id for finding in found]


def test_a_constant_of_2_gb_is_told_without_being_read(tmp_path):
    """The file is sparse: only its head is on the disk."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**29]).SerializeToString()
    size = 2**31
    raw = tensor + field_prefix(9, size)
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString()
    attribute += field_prefix(5, len(raw) + size) + raw
    node = onnx.NodeProto(op_type="Constant", output=["c"]).SerializeToString()
    node += field_prefix(5, len(attribute) + size) + attribute
    inside = field_prefix(1, len(node) + size) + node
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)]).SerializeToString()
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.write(head + field_prefix(7, len(inside) + size) + inside)
        file.truncate(file.tell() + size)
    found = {finding.id: finding for finding in scan(path)}
    assert set(found) == {"FILE.SIZE", "TENSOR.SIZE"} and found["TENSOR.SIZE"].node == "c"


def test_bodies_nested_deeper_than_protobuf_reads_are_one_line(tmp_path):
    message = b""
    for _ in range(2000):
        attribute = field_prefix(6, len(message)) + message
        node = field_prefix(5, len(attribute)) + attribute
        message = field_prefix(1, len(node)) + node
    assert isinstance(told(tmp_path / "m.onnx", field_prefix(7, len(message)) + message), str)


def test_a_function_that_calls_itself_is_a_finding(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 18, "local" : 1]> f (a) => (b) { b = local.f(a) }
    """)
    found = told(tmp_path / "m.onnx", model.SerializeToString())
    assert isinstance(found, list) and [finding.id for finding in found] == ["FUNCTION.LOCAL"]


def test_a_node_that_reads_itself_is_a_finding(tmp_path):
    found = told(tmp_path / "m.onnx", graph("a = Identity(a) b = Reshape(b, a) y = Relu(x)").SerializeToString())
    assert isinstance(found, list) and [finding.id for finding in found] == ["GRAPH.CYCLE"]


def test_scanning_writes_nothing(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(rich_model().SerializeToString())
    before = path.read_bytes()
    scan(path)
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == before


def test_inputs_that_onnx_inference_dies_of_give_findings(tmp_path):
    """onnx 1.23's inference reads the first input of LabelEncoder without asking whether it is there."""
    node = helper.make_node("LabelEncoder", [""], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_int64s=[0])
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert any(finding.blocking for finding in scan(path))


@pytest.mark.parametrize("part", range(4))
def test_damaged_models_of_the_onnx_package_end_in_findings_or_one_line(tmp_path, part):
    """Seeds of tests/fuzz_scan.py; by hand it goes on for as long as one likes."""
    files = fuzz_scan.seeds()
    for seed in range(part * 15, part * 15 + 15):
        path = tmp_path / f"{seed}.onnx"
        path.write_bytes(fuzz_scan.damaged(seed, files))
        with fuzz_scan.at_most(fuzz_scan.SECONDS):
            fuzz_scan.looked_at(path)


def test_an_opset_below_zero_is_looked_at(tmp_path):
    """Found by tests/fuzz_scan.py: explain asked for the inputs that an operator has had since an opset."""
    model = graph("y = Relu(x)")
    model.opset_import[0].version = -1
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    fuzz_scan.looked_at(tmp_path / "m.onnx")


@pytest.mark.parametrize("equation", ["n..i,...i->i", "i.j,ij", "....i,ij", "i...j...,ij", "......i,ij"])
def test_an_equation_with_lone_dots_comes_to_an_end(tmp_path, equation):
    """Found by tests/fuzz_scan.py: onnx 1.23 and ONNX Runtime 1.32 look for the second dot for ever."""
    model = graph(f'y = Einsum<equation="{equation}">(x, x)')
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    fuzz_scan.looked_at(tmp_path / "m.onnx")
    with pytest.raises(StageError, match="dots that are no ellipsis"):
        open_session(tmp_path / "m.onnx")


@pytest.mark.parametrize("equation", ["...i,...i->...", "ij,jk", "... , i -> ...i", "i...,i"])
def test_an_ellipsis_is_no_lone_dot(equation):
    assert not is_endless(graph(f'y = Einsum<equation="{equation}">(x, x)').graph.node[0])
