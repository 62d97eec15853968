from __future__ import annotations

import os

import numpy as np
import onnx
import onnx.parser
import pytest

from converters import onnx_file, onnx_writer
from weights_bridge.errors import StageError

TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[2, "n"] x) => (float[2, "n"] y) { y = Mul(x, scale) }
"""


def a_model(data: np.ndarray | None = None) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    array = np.full((2, 1), 3.0, np.float32) if data is None else data
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "scale"))
    return model


def declared(model: onnx.ModelProto) -> onnx.ModelProto:
    light = onnx.ModelProto()
    light.CopyFrom(model)
    light.graph.initializer[0].ClearField("raw_data")
    return light


def test_a_streamed_file_is_the_serialised_model_byte_for_byte(tmp_path):
    array = np.random.default_rng(0).standard_normal((300, 7)).astype(np.float32)
    model = a_model(array)
    onnx_writer.write_model(tmp_path / "m.onnx", declared(model), [("scale", array)])
    assert (tmp_path / "m.onnx").read_bytes() == model.SerializeToString()


def test_the_data_of_large_initialisers_is_not_read(tmp_path):
    model = a_model(np.zeros((3000, 1), np.float32))
    onnx.save(model, tmp_path / "m.onnx")
    skeleton = onnx_file.read_skeleton(tmp_path / "m.onnx")
    (tensor,) = skeleton.model.graph.initializer
    assert tensor.dims == [3000, 1] and not tensor.raw_data
    assert skeleton.data_fields == {"scale": {9: 12000}}
    assert skeleton.model.graph.node == model.graph.node


@pytest.mark.parametrize(
    "data, message",
    [
        ([], "initialisers without data"),
        ([("other", np.zeros((2, 1), np.float32))], "no initialiser waits for"),
        ([("scale", np.zeros((1, 2), np.float32))], r"found \(1, 2\)"),
        ([("scale", np.zeros((2, 1), np.float64))], "float64"),
    ],
)
def test_data_that_does_not_fit_is_refused_and_no_file_left(tmp_path, data, message):
    with pytest.raises(StageError, match=message):
        onnx_writer.write_model(tmp_path / "m.onnx", declared(a_model()), data)
    assert list(tmp_path.iterdir()) == []


def test_two_gib_are_refused_before_a_byte_is_written(tmp_path):
    model = declared(a_model())
    model.graph.initializer[0].dims[:] = [2**15, 2**15]
    with pytest.raises(StageError, match=r"4\.00 GiB"):
        onnx_writer.write_model(tmp_path / "m.onnx", model, [])
    assert list(tmp_path.iterdir()) == []


def test_the_topology_hash_ignores_numbers_and_sees_everything_else():
    model = a_model()
    first = onnx_file.topology_sha256(model)
    assert onnx_file.topology_sha256(a_model(np.full((2, 1), 5.0, np.float32))) == first
    assert onnx_file.topology_sha256(a_model(np.full((1, 1), 3.0, np.float32))) != first
    renamed = a_model()
    renamed.graph.node[0].op_type = "Add"
    assert onnx_file.topology_sha256(renamed) != first


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"\x08\x0a\x3a\xff\xff\xff\x7f12345", "cut short"),
        (bytes(range(7, 200)), "not readable as ONNX"),
        (b"\x08\x0a", "no graph in it"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(tmp_path, content, message):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(StageError, match=message) as caught:
        onnx_file.read_skeleton(path)
    assert "\n" not in caught.value.message


def test_every_truncation_of_a_file_is_refused_or_reads_without_a_traceback(tmp_path):
    whole = a_model().SerializeToString()
    for length in range(1, len(whole) - 7):  # the last field, the opset, is an optional one
        (tmp_path / "m.onnx").write_bytes(whole[:length])
        with pytest.raises(StageError):
            onnx_file.read_skeleton(tmp_path / "m.onnx")


def test_names_that_are_not_utf8_are_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(a_model().SerializeToString().replace(b"scale", b"sc\xffle"))
    with pytest.raises(StageError, match="not UTF-8"):
        onnx_file.read_skeleton(tmp_path / "m.onnx")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(StageError, match="a pipe or device"):
        onnx_file.read_skeleton(tmp_path / "model.onnx")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StageError, match=r"gone\.onnx: No such file"):
        onnx_file.read_skeleton(tmp_path / "gone.onnx")
