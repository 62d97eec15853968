"""The tensor-by-tensor writer against the library's own reader."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from weights_bridge.safetensors_reader import DTYPES, open_safetensors
from weights_bridge.safetensors_writer import write_model, write_safetensors
from weights_bridge.weight_files import INDEX, open_weights, weight_files

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


@pytest.mark.parametrize("name", ["F16", "BF16", "F8_E4M3", "U32", "U8", "BOOL"])
def test_other_types_are_written_bit_by_bit_and_never_cast(tmp_path: Path, name: str) -> None:
    bits = np.arange(240, dtype=np.uint8) % (2 if name == "BOOL" else 255)
    array = bits.view(DTYPES[name])
    write_safetensors(tmp_path / "x", {"x": array.shape}, [("x", array)], dtypes={"x": array.dtype})
    found = open_safetensors(tmp_path / "x").tensor("x")
    assert found.dtype == array.dtype and found.tobytes() == bits.tobytes()
    with pytest.raises(ValueError, match=r"float64, .* was announced"):
        write_safetensors(tmp_path / "x", {"x": array.shape}, [("x", np.ones(array.shape))], dtypes={"x": array.dtype})


@pytest.mark.parametrize(("shard_bytes", "files"), [(10_000, 1), (60, 2), (36, 2), (24, 2), (1, 3)])
def test_shards_hold_what_fits_and_the_index_says_where(tmp_path: Path, shard_bytes: int, files: int) -> None:
    names = write_model(tmp_path, SHAPES, iter(TENSORS.items()), shard_bytes=shard_bytes)
    assert names == [file.name for file in weight_files(tmp_path)]
    found = open_weights(tmp_path)
    assert list(found) == list(TENSORS)
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(found[name].tensor(name), array, strict=True)
    if len(names) > 1:
        assert json.loads((tmp_path / INDEX).read_text())["metadata"]["total_size"] == 36
    assert len(names) == (1 if shard_bytes >= 36 else files)


def test_no_shard_holds_more_than_it_may_unless_one_tensor_does(tmp_path: Path) -> None:
    sizes = [7, 3, 9, 1, 1, 30, 4, 6, 10, 2]
    tensors = {f"t{i}": np.full(size, i, np.float32) for i, size in enumerate(sizes)}
    names = write_model(tmp_path, {n: a.shape for n, a in tensors.items()}, iter(tensors.items()), shard_bytes=40)
    held = [load_file(tmp_path / name) for name in names]
    assert [[len(array) for array in shard.values()] for shard in held] == [
        [7, 3],
        [9, 1],
        [1],
        [30],
        [4, 6],
        [10],
        [2],
    ]
