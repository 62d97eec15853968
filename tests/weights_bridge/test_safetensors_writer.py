"""The tensor-by-tensor writer against the library's own reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from weights_bridge.safetensors_writer import write_safetensors

TENSORS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.float32(np.pi) * np.ones(3, np.float32),
    "none": np.zeros((0, 4), np.float32),
}
SHAPES = {name: array.shape for name, array in TENSORS.items()}


def test_the_library_reads_back_what_was_written(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", SHAPES, TENSORS.items(), {"adapter": "{}"})
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    with safe_open(tmp_path / "x.safetensors", framework="np") as reader:
        assert reader.metadata() == {"format": "pt", "adapter": "{}"}


def test_data_begins_at_a_multiple_of_eight_bytes_in_the_given_order(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", SHAPES, TENSORS.items())
    content = (tmp_path / "x.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert (8 + length) % 8 == 0
    assert [header[name]["data_offsets"] for name in TENSORS] == [[0, 24], [24, 36], [36, 36]]
    assert content[8 + length :][:24] == TENSORS["b"].tobytes()
    assert len(content) == 8 + length + 36


def test_transposed_views_are_written_in_logical_order(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    write_safetensors(tmp_path / "x.safetensors", {"x": (3, 2)}, [("x", array)])
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["x"], array)


@pytest.mark.parametrize(
    ("order", "shape", "message"),
    [
        (["a", "b"], (2, 3), "a .* is out of place"),
        (["b"], (2, 3), "a was not written"),
        (["b", "a", "a"], (2, 3), "a .* is out of place"),
        (["b", "a"], (3, 2), r"b \(2, 3\) is out of place"),
    ],
)
def test_order_names_and_shapes_are_held(
    tmp_path: Path, order: list[str], shape: tuple[int, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_safetensors(
            tmp_path / "x.safetensors", {"b": shape, "a": (3,)}, [(name, TENSORS[name]) for name in order]
        )
