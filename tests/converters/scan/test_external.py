"""Weights in side files: what the importer would read is replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scan_cases import graph

from converters.finding import Finding
from converters.scan import scan


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def entry(name: str, location: str = "w.bin", offset: object = 0, length: object = 16) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def scanned_with(tmp_path: Path, *tensors: TensorProto, size: int | None = None, sentis: str = "2.6") -> list[Finding]:
    offsets = [e.value for t in tensors for e in t.external_data if e.key == "offset" and e.value.isdigit()]
    (tmp_path / "w.bin").write_bytes(bytes(max(map(int, offsets)) + 16 if size is None else size))
    model = graph("y = Relu(x)")
    model.graph.initializer.extend(tensors)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return scan(tmp_path / "m.onnx", sentis)


@pytest.mark.parametrize(
    "offsets, wanted",
    [
        ([0, 16, 32], ["EXTERNAL.DATA"]),
        ([16, 0], ["EXTERNAL.OFFSET", "EXTERNAL.OFFSET"]),
        ([0, 32], ["EXTERNAL.OFFSET", "EXTERNAL.DATA"]),
        ([64, 80], ["EXTERNAL.OFFSET", "EXTERNAL.OFFSET"]),  # appended to a file that was there before
        (["junk", 16], ["EXTERNAL.OFFSET", "EXTERNAL.DATA"]),
    ],
)
@pytest.mark.parametrize("sentis", ["2.4", "2.5", "2.6"])
def test_offsets_must_be_the_running_sum_of_lengths(tmp_path, offsets, wanted, sentis):
    tensors = [entry(f"w{index}", offset=offset) for index, offset in enumerate(offsets)]
    found = scanned_with(tmp_path, *tensors, sentis=sentis)
    assert ids(found) == wanted and {finding.taxonomy for finding in found} == {"D"}


@pytest.mark.parametrize(
    "tensors, size, wanted",
    [
        ([entry("a", length=12), entry("b", offset=16)], None, ["EXTERNAL.LENGTH", "EXTERNAL.OFFSET", "EXTERNAL.DATA"]),
        ([entry("a", length=None)], None, ["EXTERNAL.LENGTH", "EXTERNAL.DATA"]),
        ([entry("a")], 8, ["EXTERNAL.SHORT", "EXTERNAL.DATA"]),
        ([entry("a")], 64, ["EXTERNAL.DATA", "EXTERNAL.UNUSED"]),
        ([entry("a", "gone.bin")], None, ["EXTERNAL.MISSING"]),
        ([entry("a", "n" * 300)], None, ["EXTERNAL.MISSING"]),
        ([entry("a", "")], None, ["EXTERNAL.PATH"]),
        ([entry("a", "../w.bin")], None, ["EXTERNAL.PATH"]),
        ([entry("a", "..\\w.bin")], None, ["EXTERNAL.PATH"]),
        ([entry("a", "C:\\w.bin")], None, ["EXTERNAL.PATH"]),
        ([entry("a", "/etc/hostname")], None, ["EXTERNAL.PATH"]),
        ([entry("a", "a\0b")], None, ["EXTERNAL.PATH"]),
    ],
)
def test_side_files_that_do_not_fit_or_lie_elsewhere_are_found(tmp_path, tensors, size, wanted):
    assert ids(scanned_with(tmp_path, *tensors, size=size)) == wanted


@pytest.mark.parametrize(
    "offset, length, said",
    [
        (-4, 16, ["offset -4 in 'w.bin'"]),
        ("junk", 16, ["offset 'junk' in 'w.bin'"]),
        ("--4", 16, ["offset '--4' in 'w.bin'"]),
        ("9" * 5000, 16, [f"offset '{'9' * 30}' in 'w.bin'"]),
        (0, "many", ["length 'many', its shape wants 16"]),
        (0, -16, ["length -16, its shape wants 16"]),
        (0, None, ["length absent, its shape wants 16"]),
    ],
)
def test_numbers_of_a_side_file_are_told_as_they_are_written(tmp_path, offset, length, said):
    found = scanned_with(tmp_path, entry("a", offset=offset, length=length), size=16)
    wrong = [finding for finding in found if finding.blocking]
    assert [text in finding.what for text, finding in zip(said, wrong, strict=True)] == [True]
    assert "EXTERNAL.UNUSED" not in ids(found)  # all 16 bytes are named


def test_a_link_out_of_the_folder_is_refused_and_two_links_into_one_folder_are_not(tmp_path):
    folder, blobs = tmp_path / "folder", tmp_path / "blobs"
    folder.mkdir()
    blobs.mkdir()
    model = graph("y = Relu(x)")
    model.graph.initializer.append(entry("a"))
    (blobs / "1").write_bytes(model.SerializeToString())
    (blobs / "2").write_bytes(bytes(16))
    (folder / "w.bin").symlink_to(blobs / "2")
    (folder / "m.onnx").symlink_to(blobs / "1")
    assert ids(scan(folder / "m.onnx")) == ["EXTERNAL.DATA"]
    (folder / "m.onnx").unlink()
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    assert ids(scan(folder / "m.onnx")) == ["EXTERNAL.PATH"]
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(folder / "w.bin")
    assert ids(scan(folder / "m.onnx"))[0].startswith("EXTERNAL.")


@pytest.mark.parametrize("op", ["Constant", "ConstantOfShape"])
@pytest.mark.parametrize("offset, severity", [(16, "deviation"), (0, "warning")])
def test_a_constant_of_a_node_is_read_from_byte_0(tmp_path, op, offset, severity):
    model = graph("y = Relu(x)")
    model.graph.node.append(
        helper.make_node(op, [] if op == "Constant" else ["n"], ["c"], value=entry("v", offset=offset))
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "n"))
    (tmp_path / "w.bin").write_bytes(bytes(offset + 16))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (found,) = scan(tmp_path / "m.onnx")
    assert (found.id, found.severity, found.node) == (f"{op.upper()}.EXTERNAL", severity, "c")


def test_side_files_of_constants_in_bodies_are_looked_at(tmp_path):
    model = graph(
        "y = If(c) < then_branch = p () => (float[4] t) { t = Neg(v) }, else_branch = q () => (float[4] e) "
        "{ e = Abs(x) } >",
        "float[4] x, bool c",
    )
    branch = model.graph.node[0].attribute[0].g
    branch.node.insert(0, helper.make_node("Constant", [], ["v"], value=entry("v", "gone.bin")))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert {"EXTERNAL.MISSING", "CONTROL_FLOW"} <= set(ids(scan(tmp_path / "m.onnx")))


def test_what_onnx_saves_anew_is_safe_and_what_it_appends_is_not(tmp_path):
    model = graph("y = Relu(x)")
    for index, size in enumerate((300, 7, 900)):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(size, np.float32), f"w{index}"))
    saving = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save_model(onnx.ModelProto.FromString(model.SerializeToString()), tmp_path / "m.onnx", **saving)
    assert ids(scan(tmp_path / "m.onnx")) == ["EXTERNAL.DATA"]
    onnx.save_model(onnx.ModelProto.FromString(model.SerializeToString()), tmp_path / "m.onnx", **saving)
    assert ids(scan(tmp_path / "m.onnx")) == ["EXTERNAL.OFFSET"] * 3
