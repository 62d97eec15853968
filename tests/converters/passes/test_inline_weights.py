from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from converters.fix import fix_model
from converters.passes.base import Context
from converters.passes.inline_weights import PASS

TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[3, "n"] x) => (float[3, "n"] y) { s = Mul(x, w1)  y = Add(s, w0) }
"""


def stored(folder, order, location="w.bin"):
    """Two tensors of ones and twos in a side file, in the given order."""
    (folder / "w.bin").write_bytes(b"".join(np.full(3, index + 1, np.float32).tobytes() for index in order))
    model = onnx.parser.parse_model(TEXT)
    for index in (0, 1):
        tensor = model.graph.initializer.add(name=f"w{index}", data_type=1, dims=[3, 1], data_location=1)
        values = {"location": location, "offset": 12 * order.index(index), "length": 12}
        for key, value in values.items():
            tensor.external_data.add(key=key, value=str(value))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return model


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_tensor_is_read_at_its_own_offset(tmp_path, order):
    stored(tmp_path, order)
    report = fix_model(tmp_path / "m.onnx", tmp_path / "out" / "m.onnx")
    assert report["passes"][0]["changed"] == 2 and report["passes"][0]["proof"] == "exact"
    assert report["findings"]["after"] == []
    model = onnx.load(str(tmp_path / "out" / "m.onnx"))
    values = {t.name: onnx.numpy_helper.to_array(t).ravel().tolist() for t in model.graph.initializer}
    assert values == {"w0": [1, 1, 1], "w1": [2, 2, 2]}
    assert not any(t.external_data or t.data_location for t in model.graph.initializer)


@pytest.mark.parametrize("location, reason", [("../w.bin", "lies outside"), ("gone.bin", "is not there")])
def test_it_must_not_read_outside_the_folder_or_what_is_not_there(tmp_path, location, reason):
    (tmp_path / "in").mkdir()
    model = stored(tmp_path / "in", (0, 1), location)
    (tmp_path / "w.bin").write_bytes(bytes(24))
    outcome = PASS.run(model, Context(tmp_path / "in"))
    assert outcome.changed == 0 and all(reason in why for why in outcome.left.values())
    assert all(t.data_location == t.EXTERNAL for t in model.graph.initializer)


def test_a_side_file_that_is_too_short_inlines_nothing(tmp_path):
    model = stored(tmp_path, (0, 1))
    (tmp_path / "w.bin").write_bytes(bytes(20))
    outcome = PASS.run(model, Context(tmp_path))
    assert outcome.changed == 0 and list(outcome.left) == ["w1"]


def test_a_model_without_side_files_is_left_alone(tmp_path):
    model = onnx.parser.parse_model(TEXT)
    assert PASS.run(model, Context(tmp_path)).changed == 0


@pytest.mark.parametrize("offset", ["-4", "--4", "²", "9" * 5000, "junk"])
def test_an_offset_that_is_no_place_in_a_file_is_told(tmp_path, offset):
    model = stored(tmp_path, (0, 1))
    model.graph.initializer[1].external_data[1].value = offset
    outcome = PASS.run(model, Context(tmp_path))
    shown = offset if offset == "-4" else repr(offset[:30])
    assert outcome.changed == 0 and outcome.left == {"w1": f"its offset is {shown}, wanted a place in 'w.bin'"}


@pytest.mark.parametrize("location", ["n" * 5000, "..\\w.bin", "C:\\w.bin", "a\0b", "."])
def test_names_that_are_no_file_beside_the_model_are_told(tmp_path, location):
    model = stored(tmp_path, (0, 1), location)
    outcome = PASS.run(model, Context(tmp_path))
    assert outcome.changed == 0 and set(outcome.left) == {"w0", "w1"}


def test_a_model_and_its_side_file_that_are_links_into_one_cache_are_read(tmp_path):
    """As huggingface_hub lays out a download."""
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    for one in (blobs, folder):
        one.mkdir(parents=True)
    stored(blobs, (1, 0))
    for name, blob in (("m.onnx", "1"), ("w.bin", "2")):
        (blobs / name).rename(blobs / blob)
        (folder / name).symlink_to(Path("..", "..", "blobs", blob))
    report = fix_model(folder / "m.onnx", tmp_path / "out.onnx")
    assert report["passes"][0]["changed"] == 2 and report["findings"]["after"] == []
