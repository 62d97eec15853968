"""Constants as Sentis' importer reads them: types, saturation, and side files front to back.

What is float32 or int32 in the file stays there: the array is a view of a memory map, no weight is copied.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.facts import Facts
from converters.onnx_file import Skeleton, byte_size, type_name
from converters.scan.external import entry_of, side_file
from converters.scan.view import array_of, data_fields
from parity.emulator.node import as_kind
from parity.emulator.prediction import Throws
from weights_bridge.compare import Array

if TYPE_CHECKING:
    import onnx

FLOATS = {"FLOAT": "f4", "FLOAT16": "f2", "DOUBLE": "f8"}
NAMES = FLOATS | {"INT32": "i4", "INT64": "i8", "BOOL": "?", "UINT8": "u1", "INT8": "i1"}  # as numpy spells them


@dataclass
class Weights:
    """Reads the constants of one file.

    Attributes:
        path: the model's file.
        skeleton: what was read of it.
        known: the facts of the version.
        positions: side file to the byte that Sentis reads next.
    """

    path: Path
    skeleton: Skeleton
    known: Facts
    positions: dict[str, int] = field(default_factory=dict)
    _maps: dict[Path, mmap.mmap | bytes] = field(default_factory=dict)
    _whole: onnx.ModelProto | None = None

    def initialisers(self) -> Iterator[tuple[str, Array]]:
        """Yield (name, array) in the graph's order, side files read one tensor after the other.

        Raises:
            Throws: a type that the importer does not hold, or a side file that is not there.
        """
        for tensor in self.skeleton.model.graph.initializer:
            if tensor.data_location == tensor.EXTERNAL:
                location = entry_of(tensor).location
                at = self.positions.get(location, 0)
                self.positions[location] = at + byte_size(tensor)
                yield tensor.name, self._held(tensor, self._beside(tensor, location, at))
            else:
                yield tensor.name, self._held(tensor, self._inside(tensor, tensor.name, node=False))

    def of_node(self, tensor: onnx.TensorProto, output: str) -> Array:
        """Return a tensor of a node's attribute; one in a side file is read from byte 0, whatever its offset."""
        if tensor.data_location == tensor.EXTERNAL:
            return self._held(tensor, self._beside(tensor, entry_of(tensor).location, 0))
        return self._held(tensor, self._inside(tensor, output, node=True))

    def _held(self, tensor: onnx.TensorProto, values: Array) -> Array:
        """Return numbers as Sentis keeps them; doubles are clamped to ±2^31 before they become float32."""
        if values.dtype == np.float64:
            low, high = self.known["double_range"]
            values = np.clip(values, low, high)
        return as_kind(values).reshape(tuple(tensor.dims))

    def _type(self, tensor: onnx.TensorProto) -> np.dtype:
        name = type_name(tensor.data_type)
        if name not in self.known["initialiser_types"]["raw"] or name not in NAMES:
            raise Throws(f"constant {tensor.name!r}: type {name} aborts the import")
        return np.dtype(f"<{NAMES[name]}" if NAMES[name] != "?" else "?")

    def _inside(self, tensor: onnx.TensorProto, owner: str, *, node: bool) -> Array:
        dtype = self._type(tensor)
        if 0 in tensor.dims:
            return np.zeros(tuple(tensor.dims), dtype)
        if (values := array_of(tensor)) is not None:
            return values
        if (at := self.skeleton.data_at.get(owner)) is not None:
            return self._view(self.path, at, byte_size(tensor), dtype)
        return self._decoded(tensor, owner, node)

    def _decoded(self, tensor: onnx.TensorProto, owner: str, node: bool) -> Array:
        """Return a large tensor that lies in the file in another form than in memory: the model is read whole."""
        import onnx

        if self._whole is None:
            self._whole = onnx.load(str(self.path), load_external_data=False)
        graph = self._whole.graph
        if not node:
            found = next(one for one in graph.initializer if one.name == owner)
        else:
            maker = next(one for one in graph.node if owner in one.output)
            found = next(a.t for a in maker.attribute if a.HasField("t"))
        values = array_of(found)
        if values is None:
            raise Throws(f"constant {tensor.name or owner!r}: its data ({', '.join(data_fields(found))}) does not fit")
        return values

    def _beside(self, tensor: onnx.TensorProto, location: str, at: int) -> Array:
        dtype, side = self._type(tensor), side_file(self.path, location)
        if side is None or not side.is_file():
            raise Throws(f"constant {tensor.name!r}: side file {location!r} is not there")
        return self._view(side, at, byte_size(tensor), dtype)

    def _view(self, path: Path, at: int, length: int, dtype: np.dtype) -> Array:
        """Return numbers of a file; what lies behind its end is zero, as Sentis does not look how much it got."""
        if path not in self._maps:
            with path.open("rb") as file:
                empty = path.stat().st_size == 0
                self._maps[path] = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = self._maps[path]
        there = max(0, min(length, len(data) - at))
        if there < length:
            padded = bytes(data[at : at + there]) + bytes(length - there)
            return np.frombuffer(padded, dtype)
        return np.frombuffer(data, dtype, length // dtype.itemsize, at)
