"""npz files as users bring them: damaged, of another form, of another machine."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weights_bridge.errors import StageError
from weights_bridge.npz import read_npz

ROW = np.arange(4000, dtype=np.float32)


def bare_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, ROW)


def damaged_inside(path: Path) -> None:
    np.savez_compressed(path, x=ROW)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def encrypted(path: Path) -> None:
    np.savez(path, x=ROW)
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of the entry, and of its line in the list
        data[data.index(mark) + at] |= 1
    path.write_bytes(data)


def huge_claim(path: Path) -> None:
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)


def cut(path: Path) -> None:
    np.savez(path, x=ROW)
    path.write_bytes(path.read_bytes()[:4000])


SPOILT: dict[str, Callable[[Path], object]] = {
    "a bare array": bare_array,
    "damaged inside": damaged_inside,
    "encrypted": encrypted,
    "a claim beyond memory": huge_claim,
    "cut": cut,
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "pickled": lambda path: np.savez(path, x=np.array([None, 1], object)),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_what_is_no_whole_npz_file_is_refused_in_one_line(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    path = tmp_path / "f.npz"
    spoil(path)
    with pytest.raises(StageError, match=r"f\.npz: not a whole npz file: .") as refused:
        read_npz(path, "bring another")
    assert "\n" not in refused.value.message and refused.value.hint == "bring another"


def test_arrays_without_numbers_are_named_all_at_once(tmp_path: Path) -> None:
    odd = {"out::a": np.array(["a"]), "out::b": np.zeros(2, complex), "in::c": np.array(["2026-01-01"], "M8[D]")}
    np.savez(tmp_path / "f.npz", x=ROW, **odd)
    with pytest.raises(StageError) as refused:
        read_npz(tmp_path / "f.npz")
    named = [line.strip() for line in refused.value.message.splitlines()[1:]]
    assert named == ["in::c: found datetime64[D]", "out::a: found <U1", "out::b: found complex128"]


def test_numbers_of_another_byte_order_are_the_same_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=ROW.astype(">f4"), n=np.arange(3, dtype=">i8"), truth=np.array(True))
    found = read_npz(tmp_path / "f.npz")
    assert all(array.dtype.isnative for array in found.values())
    assert np.array_equal(found["x"], ROW) and found["n"].tolist() == [0, 1, 2] and found["truth"].shape == ()
