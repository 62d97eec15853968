"""Reading safetensors with every refusal of our own, tensor by tensor, each in the type it was stored in.

Format (safetensors README): 8 bytes little-endian header length, JSON header, then the tensors' bytes back to back.
The library's reader stops at the first fault and maps the file, so that its pages count as this process's memory;
this one lists every fault of a header at once and holds one tensor. bfloat16 and the 8-bit floats are views of the
stored bytes: nothing passes through a wider type.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once

HEADER_AT_MOST = 100_000_000  # bytes; the reference implementation's limit
PIECE_BYTES = 16 << 20  # how much is looked at at once for values that are not finite
HINT = "fetch or copy it again"

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
KINDS_OF_NUMBERS = {  # what weights are; 8-bit floats mean nothing without the scales that only their writer knows
    "floats": ("F16", "BF16", "F32", "F64"),
    "32-bit words": ("U32",),
    "bytes": ("U8",),
}
NAME_OF_DTYPE = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies.

    Attributes:
        dtype: as stored.
        shape: its sides.
        start: the first byte, from the beginning of the data.
        end: one behind the last.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class SafetensorsFile:
    """A safetensors file whose header has been checked.

    Attributes:
        path: the file.
        entries: tensor name to where it lies, in the order of the bytes.
        metadata: the header's texts.
        data_start: where the data begins, in bytes.
    """

    path: Path
    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int

    def tensor(self, name: str) -> Array:
        """Return one tensor in the type it was stored in."""
        return next(self.tensors([name]))[1]

    def tensors(self, names: list[str] | None = None) -> Iterator[tuple[str, Array]]:
        """Yield (name, array) one at a time, by default all in file order, each in the type it was stored in."""
        with self.path.open("rb") as file:
            for name in self.entries if names is None else names:
                entry = self.entries[name]
                yield name, self._bytes(file, entry.start, entry.end).view(entry.dtype).reshape(entry.shape)

    def wide_tensor(self, name: str) -> Array:
        """Return one tensor, half types widened to float32 (exact) piece by piece, never held whole as stored."""
        entry = self.entries[name]
        if entry.dtype not in (DTYPES["F16"], DTYPES["BF16"]):
            return self.tensor(name)
        wide = np.empty((entry.end - entry.start) // 2, np.float32)
        with self.path.open("rb") as file:
            for start in range(entry.start, entry.end, PIECE_BYTES):
                end, at = min(start + PIECE_BYTES, entry.end), (start - entry.start) // 2
                wide[at : at + (end - start) // 2] = self._bytes(file, start, end).view(entry.dtype)
        return wide.reshape(entry.shape)

    def is_finite(self, name: str) -> bool:
        """Tell whether a tensor holds neither NaN nor an infinity; read in pieces of 16 MiB."""
        entry = self.entries[name]
        if entry.dtype.kind in "?biu":
            return True
        with self.path.open("rb") as file:
            for start in range(entry.start, entry.end, PIECE_BYTES):
                end = min(start + PIECE_BYTES, entry.end)
                if not all_finite(self._bytes(file, start, end).view(entry.dtype)):
                    return False
        return True

    def _bytes(self, file: BufferedReader, start: int, end: int) -> Array:
        file.seek(self.data_start + start)
        content = np.empty(end - start, np.uint8)
        if file.readinto(content.data) != end - start:
            raise StageError(f"{self.path}: ends before byte {self.data_start + end}", hint=HINT)
        return content


def is_of(dtype: np.dtype[Any], kind: str) -> bool:
    """Tell whether a type is one of a kind of numbers, a key of `KINDS_OF_NUMBERS`."""
    return NAME_OF_DTYPE[dtype] in KINDS_OF_NUMBERS[kind]


def all_finite(array: Array) -> bool:
    """Tell whether an array holds neither NaN nor an infinity."""
    if array.dtype == DTYPES["BF16"]:  # all exponent bits set; ml_dtypes' own test is forty times slower
        return not ((array.view(np.uint16) & 0x7F80) == 0x7F80).any()
    return bool(np.isfinite(array).all())


def open_safetensors(path: Path) -> SafetensorsFile:
    """Read and check a file's header; no tensor is read.

    Raises:
        StageError: the file is cut, the header is too large, no JSON or not whole, or tensors overlap, leave gaps or
            reach beyond the end; all faults at once.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
            text = file.read(length) if 0 <= length <= min(HEADER_AT_MOST, size) else b""
    except OSError as error:
        raise StageError(f"{path}: not a whole safetensors file: {error.strerror or error}", hint=HINT) from None
    if fault := _length_fault(length, size):
        raise StageError(f"{path}: not a whole safetensors file: {fault}", hint=HINT)
    document, faults = _parsed(text)
    metadata = _metadata(document.pop("__metadata__", {}), faults)
    entries: dict[str, Entry] = {}
    for name, value in document.items():
        if isinstance(entry := _entry(value), Entry):
            entries[name] = entry
        else:
            faults.append(f"{name}: {entry}")
    if not faults:
        entries = dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)))
        faults = _place_faults(entries, size - 8 - length)
    if faults:
        raise all_at_once(f"{path}: not a whole safetensors file:", faults, hint=HINT)
    return SafetensorsFile(path, entries, metadata, 8 + length)


def _length_fault(length: int, size: int) -> str:
    if length < 0:
        return f"found {size} bytes, wanted at least 8 for the header's length"
    if length > HEADER_AT_MOST:
        return f"the header claims {length:,} bytes, at most {HEADER_AT_MOST:,} are read"
    if 8 + length > size:
        return f"the header claims {length:,} bytes, the file has {size:,}"
    return ""


def _parsed(text: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return the header's object and what is wrong with it; JSON itself lets a key stand twice."""
    faults: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) != len(pairs):
            names = [name for name, _ in pairs]
            faults.extend(f"{name}: stands twice in the header" for name in seen if names.count(name) > 1)
        return seen

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        return {}, [f"the header is not JSON: {error}"]
    if not isinstance(document, dict):
        return {}, ["the header is no JSON object"]
    return document, faults


def _metadata(value: Any, faults: list[str]) -> dict[str, str]:
    if value is None:  # what `mx.save_safetensors` writes without metadata
        return {}
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    faults.append("__metadata__: wanted texts only")
    return {}


def _entry(value: Any) -> Entry | str:
    """Return a tensor's entry, or what is wrong with it."""
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        return "wanted dtype, shape and data_offsets"
    dtype = DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if dtype is None:
        return f"dtype {value['dtype']!r} is not one of {', '.join(DTYPES)}"
    shape, offsets = value["shape"], value["data_offsets"]
    for numbers, what in ((shape, "shape"), (offsets, "data_offsets")):
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 1 << 63 for n in numbers):
            return f"{what} {numbers!r} are not whole numbers from 0"
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"data_offsets {offsets} are no beginning and end"
    wanted = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != wanted:
        return f"{value['dtype']} {shape} takes {wanted} bytes, data_offsets {offsets} span {offsets[1] - offsets[0]}"
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _place_faults(entries: dict[str, Entry], size: int) -> list[str]:
    """Return where tensors (in the order of their bytes) overlap, leave gaps or reach beyond the data."""
    faults, at, before = [], 0, "the header"
    for name, entry in entries.items():
        if entry.end > size:
            faults.append(f"{name}: ends at byte {entry.end} of the data, which has {size}")
        elif entry.start < at:
            faults.append(f"{name}: overlaps {before} by {at - entry.start} bytes")
        elif entry.start > at:
            faults.append(f"{name}: {entry.start - at} bytes between it and {before} belong to no tensor")
        at, before = max(at, entry.end), name
    if not faults and at != size:
        faults.append(f"{size - at} bytes behind the last tensor belong to none")
    return faults
