"""Findings about the model as a whole, and about its constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scan_cases import graph

from converters.finding import Finding
from converters.scan.graphs import sorted_order


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def with_tensor(tensor: TensorProto, body: str = "y = Relu(x)") -> onnx.ModelProto:
    model = graph(body)
    model.graph.initializer.append(tensor)
    return model


def test_the_opset_is_read_as_sentis_reads_it(scanned):
    for opset in (6, 26):
        assert ids(scanned(graph("y = Relu(x)", opset=opset))) == ["OPSET.WINDOW"]
    model = graph("y = Relu(x)")
    model.opset_import[0].domain = "ai.onnx"
    assert ids(scanned(model)) == ["OPSET.DOMAIN"]
    twice = graph("y = Relu(x)")
    twice.opset_import.add(domain="", version=26)
    assert ids(scanned(twice)) == ["OPSET.WINDOW", "OPSET.SEVERAL"]


@pytest.mark.parametrize(
    "tensor, wanted",
    [
        (helper.make_tensor("w", TensorProto.BFLOAT16, [2], [1.0, 2.0]), "TENSOR.TYPE"),
        (TensorProto(name="w", data_type=TensorProto.UINT16, dims=[1], raw_data=b"12"), "TENSOR.TYPE"),
        (TensorProto(name="w", data_type=TensorProto.INT16, dims=[1], raw_data=b"12"), "TENSOR.TYPE"),
        (TensorProto(name="w", data_type=TensorProto.UINT32, dims=[1], raw_data=b"1234"), "TENSOR.TYPE"),
        (TensorProto(name="w", data_type=TensorProto.UINT64, dims=[1], raw_data=b"12345678"), "TENSOR.TYPE"),
        (TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]), "TENSOR.TYPE"),
        (helper.make_tensor("w", TensorProto.FLOAT16, [2], [1.0, 2.0]), "TENSOR.TYPED_FIELD"),
        (helper.make_tensor("w", TensorProto.BOOL, [2], [1, 0]), "TENSOR.TYPED_FIELD"),
        (numpy_helper.from_array(np.zeros([1] * 9, np.float32), "w"), "TENSOR.RANK"),
        (TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"12345678"), "TENSOR.BYTES"),
        (TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3]), "TENSOR.BYTES"),
        (TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-5]), "TENSOR.BYTES"),
        (numpy_helper.from_array(np.array([2**40]), "w"), "INT64.RANGE"),
        (numpy_helper.from_array(np.array([-1.7e308]), "w"), "DOUBLE.RANGE"),
        (numpy_helper.from_array(np.array([-np.inf]), "w"), "DOUBLE.RANGE"),
    ],
)  # fmt: skip
def test_constants_that_sentis_misreads_are_found_wherever_they_are(scanned, tensor, wanted):
    found = scanned(with_tensor(tensor))
    assert ids(found) == [wanted] and found[0].node == "w" and found[0].blocking
    model = graph("y = Relu(x)")
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))
    assert [(f.id, f.node) for f in scanned(model)] == [(wanted, "c")]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.int64, np.bool_, np.int8, np.uint8])
def test_constants_of_readable_types_as_raw_data_are_fine(scanned, kind):
    assert scanned(with_tensor(numpy_helper.from_array(np.ones(2, kind), "w"))) == []


def test_an_element_type_nobody_knows_is_a_finding(scanned):
    found = scanned(with_tensor(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1234")))
    assert ids(found) == ["TENSOR.BYTES", "TENSOR.TYPE"] and "number 99" in found[1].what


@pytest.mark.parametrize(
    "body, value, severity, reader",
    [
        ("y = Slice(x, k, w)", 2**63 - 1, "warning", ""),
        ("y = Slice(x, k, w)", 2**40, "warning", ""),
        ("c = Concat<axis=0>(w, k) u = Unsqueeze(c, k) y = Slice(x, k, u)", 1 - 2**63, "warning", ""),
        ("y = Relu(x)", 2**63 - 1, "warning", ""),
        ("y = Relu(x)", 2**40, "deviation", ""),
        ("i = Cast<to=7>(x) y = Add(i, w)", -(2**63), "deviation", "read by Add"),
        ("y = If(b) <then_branch = t () => (float p) { p = Gather(x, w) }>", 2**63 - 1, "deviation", "read by If"),
    ],
)
def test_a_wide_integer_blocks_only_where_something_computes_with_it(scanned, body, value, severity, reader):
    model = graph(body, "float[2,8] x, bool b", init="int64[1] k = {0}")
    model.graph.initializer.append(numpy_helper.from_array(np.array([value]), "w"))
    (found,) = [finding for finding in scanned(model) if finding.id == "INT64.RANGE"]
    assert found.severity == severity and reader in found.what


def test_integers_that_were_not_read_are_a_note(scanned, monkeypatch):
    monkeypatch.setattr("converters.wire.KEPT_INT64_BYTES", 4096)
    model = with_tensor(numpy_helper.from_array(np.full(1000, 2**40), "w"))
    assert scanned(model) == [] and ids(scanned(model, notes=True)) == ["INT64.UNREAD"]


def test_duplicate_names_and_sparse_constants(scanned):
    model = with_tensor(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model.graph.initializer.append(model.graph.initializer[0])
    assert ids(scanned(model)) == ["TENSOR.DUPLICATE"]
    sparse = graph("y = Relu(x)")
    sparse.graph.sparse_initializer.add().values.name = "s"
    assert ids(scanned(sparse)) == ["TENSOR.SPARSE"]


@pytest.mark.parametrize(
    "inputs, wanted",
    [
        ("string[2] x", "INPUT.TYPE"),
        ("complex64[2] x", "INPUT.TYPE"),
        ("float8e4m3fn[2] x", "INPUT.TYPE"),
        ("float[] x", "INPUT.NO_SHAPE"),
        ("seq(float[2]) x", "INPUT.NO_SHAPE"),
        ("optional(float[2]) x", "INPUT.NO_SHAPE"),
        ("float[1,1,1,1,1,1,1,1,2] x", "TENSOR.RANK"),
        ("float[50000,50000] x", "TENSOR.SIZE"),
    ],
)
def test_inputs_that_sentis_cannot_take_are_found(scanned, inputs, wanted):
    assert ids(scanned(graph("y = Identity(z)", f"{inputs}, float[2] z"))) == [wanted]


def test_sizes_of_inputs(scanned):
    model = graph("y = Relu(x)")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    (found,) = scanned(model)
    assert (found.id, found.severity) == ("DIMS.NEGATIVE", "warning")
    named = ", ".join(f"float[n{i}] i{i}" for i in range(257))
    assert ids(scanned(graph("y = Relu(i0)", named))) == ["DIMS.NAMES"]
    named = ", ".join(f"float[n{i % 256}] i{i}" for i in range(257))
    assert scanned(graph("y = Relu(i0)", named)) == []


@pytest.mark.parametrize(
    "body, wanted",
    [
        ("a = Relu(b) b = Relu(a) y = Relu(x)", ["GRAPH.CYCLE"]),
        ("y = Add(x, nowhere)", ["GRAPH.UNDEFINED"]),
        ("y = Relu(x) y = Abs(x)", ["GRAPH.DUPLICATE"]),
        ("z = Relu(x)", ["GRAPH.OUTPUT"]),
        ("b = Relu(a) a = Relu(x) y = Relu(b)", []),
    ],
)
def test_how_the_nodes_hang_together(scanned, body, wanted):
    assert ids(scanned(graph(body))) == wanted


def test_two_inputs_of_one_name_are_found(scanned):
    (found,) = scanned(graph("y = Relu(x)", "float[2,8] x, float[2,8] x"))
    assert (found.id, found.node) == ("GRAPH.DUPLICATE", "x") and found.what.startswith("2 inputs of one name")


def test_nodes_are_sorted_through_bodies_and_stay_in_the_files_order_where_they_can():
    branches = "then_branch = a () => (float p) { p = Relu(l) }, else_branch = b () => (float q) { q = Abs(x) }"
    model = graph(f"y = If(c) < {branches} > k = Abs(x) l = Relu(x)", "float[2,8] x, bool c")
    assert sorted_order(model.graph) == [1, 2, 0]


def test_a_file_over_the_limit_is_found(scanned, monkeypatch, tmp_path):
    from converters.facts import facts

    monkeypatch.setitem(facts("2.6").data, "file_limit_bytes", 10)
    (found,) = scanned(graph("y = Relu(x)"))
    assert (found.id, found.node, found.mend) == ("FILE.SIZE", "m.onnx", "export with --dtype fp16")


def test_a_constant_over_the_limit_is_found(scanned):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**29])
    found = scanned(with_tensor(tensor))
    assert ids(found) == ["TENSOR.SIZE"] and "2.00 GiB" in found[0].what
