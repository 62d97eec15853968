"""The reader against the library's own files, and every fault of a header by its name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from weights_bridge.errors import StageError
from weights_bridge.safetensors_reader import DTYPES, SafetensorsFile, all_finite, open_safetensors
from weights_bridge.safetensors_writer import write_safetensors

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def written(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(StageError) as caught:
        open_safetensors(path)
    assert caught.value.message.startswith(f"{path}: not a whole safetensors file:")
    return caught.value.message.split("safetensors file:", 1)[1]


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_comes_back_bit_by_bit(tmp_path: Path, name: str) -> None:
    dtype = DTYPES[name]
    bits = np.arange(240, dtype=np.uint8) if name != "BOOL" else np.arange(240, dtype=np.uint8) % 2
    array = bits.view(dtype).reshape(2, -1)
    save_file({"x": array, "none": np.zeros((0, 3), dtype)}, tmp_path / "x.safetensors", {"a": "b"})
    file = open_safetensors(tmp_path / "x.safetensors")
    found = dict(file.tensors())
    assert found["x"].dtype == dtype and found["x"].shape == array.shape
    assert found["x"].tobytes() == bits.tobytes()
    assert found["none"].shape == (0, 3) and file.metadata == {"a": "b"}


def test_mlx_writes_no_metadata_as_null(tmp_path: Path) -> None:
    file = open_safetensors(written(tmp_path / "x.safetensors", {"__metadata__": None, "x": F32}, bytes(8)))
    assert file.metadata == {} and [name for name, _ in file.tensors()] == ["x"]


@pytest.mark.parametrize(
    ("header", "data", "fault"),
    [
        (b"{", b"", "the header is not JSON"),
        (b"[" * 100_000, b"", "the header is not JSON"),
        (b"\xff{}", b"", "the header is not JSON"),
        ([], b"", "the header is no JSON object"),
        ({"__metadata__": {"a": 1}}, b"", "__metadata__: wanted texts only"),
        (b'{"x": {}, "x": {}}', b"", "x: stands twice in the header"),
        ({"x": {"dtype": "F32", "shape": [2]}}, b"", "x: wanted dtype, shape and data_offsets"),
        ({"x": F32 | {"dtype": "F12"}}, bytes(8), "x: dtype 'F12' is not one of BOOL, U8"),
        ({"x": F32 | {"dtype": ["F32"]}}, bytes(8), "x: dtype ['F32'] is not one of"),
        ({"x": F32 | {"shape": [-2]}}, bytes(8), "x: shape [-2] are not whole numbers"),
        ({"x": F32 | {"shape": [True, 2]}}, bytes(8), "x: shape [True, 2] are not whole numbers"),
        ({"x": F32 | {"shape": [1 << 70]}}, bytes(8), "are not whole numbers"),
        ({"x": F32 | {"shape": [1 << 40, 1 << 40]}}, bytes(8), "takes 4835703278458516698824704 bytes"),
        ({"x": F32 | {"data_offsets": [8, 0]}}, bytes(8), "x: data_offsets [8, 0] are no beginning and end"),
        ({"x": F32 | {"shape": [3]}}, bytes(8), "x: F32 [3] takes 12 bytes, data_offsets [0, 8] span 8"),
        ({"x": F32}, bytes(7), "x: ends at byte 8 of the data, which has 7"),
        ({"x": F32}, bytes(9), "1 bytes behind the last tensor belong to none"),
        ({"x": F32, "y": F32 | {"data_offsets": [4, 12]}}, bytes(12), "y: overlaps x by 4 bytes"),
        ({"x": F32, "y": F32 | {"data_offsets": [12, 20]}}, bytes(20), "y: 4 bytes between it and x belong to no"),
        ({"y": F32 | {"data_offsets": [4, 12]}}, bytes(12), "y: 4 bytes between it and the header belong to no"),
    ],
)
def test_a_faulty_header_is_refused_by_its_fault(tmp_path: Path, header: Any, data: bytes, fault: str) -> None:
    assert fault in refusal(written(tmp_path / "x", header, data))


def test_a_header_longer_than_the_file_or_than_allowed_is_not_read(tmp_path: Path) -> None:
    assert "claims 9 bytes, the file has 10" in refusal(written(tmp_path / "a", {}, length=9))
    assert "claims 100,000,001 bytes, at most" in refusal(written(tmp_path / "b", {}, length=100_000_001))
    assert "claims 18,446,744,073,709,551,615" in refusal(written(tmp_path / "c", {}, length=(1 << 64) - 1))
    (tmp_path / "d").write_bytes(b"1234567")
    assert "found 7 bytes, wanted at least 8" in refusal(tmp_path / "d")
    assert "No such file" in refusal(tmp_path / "gone")
    assert "Is a directory" in refusal(tmp_path)


def test_all_faults_of_a_header_are_named_at_once(tmp_path: Path) -> None:
    header = {"a": F32 | {"dtype": "F12"}, "b": F32 | {"shape": [3]}, "c": {}}
    assert len(refusal(written(tmp_path / "x", header, bytes(8))).splitlines()) == 4


@given(data=st.data())
def test_no_damage_of_a_header_gets_past_a_refusal(data: Any, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(4, np.float16)}, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        file = open_safetensors(path)
    except StageError:
        return
    assert sum(array.nbytes for _, array in file.tensors()) == path.stat().st_size - file.data_start


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_nan_and_infinities_are_seen_in_every_float(tmp_path: Path, dtype: Any, value: float) -> None:
    array = np.full(50, np.finfo(np.float16).max).astype(dtype)
    assert all_finite(array)
    array[49] = value
    assert not all_finite(array)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int64])
def test_a_tensor_is_widened_piece_by_piece_to_what_numpy_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    monkeypatch.setattr("weights_bridge.safetensors_reader.PIECE_BYTES", 64)
    array = np.random.default_rng(0).standard_normal((7, 31)).astype(dtype)
    shapes = {"before": (3,), "x": (7, 31)}
    values = [("before", np.ones(3, np.float32)), ("x", array)]
    write_safetensors(tmp_path / "x", shapes, values, {}, {"x": np.dtype(dtype)})
    found = open_safetensors(tmp_path / "x").wide_tensor("x")
    wanted = array.astype(np.float32) if array.dtype.itemsize == 2 else array
    assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def test_values_are_looked_at_to_the_last_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weights_bridge.safetensors_reader.PIECE_BYTES", 64)
    array = np.ones(100, np.float32)
    find: Callable[[], SafetensorsFile] = lambda: open_safetensors(tmp_path / "x")  # noqa: E731
    for at in (None, 0, 20, 99):
        if at is not None:
            array[at] = np.nan
        save_file({"x": array, "ids": np.arange(3)}, tmp_path / "x")
        assert find().is_finite("x") is (at is None)
        assert find().is_finite("ids")
        array[:] = 1
