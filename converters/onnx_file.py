"""Reading an ONNX file without its weights: a walk over the protobuf wire format in a memory map.

Field numbers are those of onnx.proto: ModelProto.graph 7; GraphProto.initializer 5; TensorProto.data_type 2,
float_data 4, int32_data 5, int64_data 7, raw_data 9, double_data 10, uint64_data 11.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

LIMIT_BYTES = 2**31 - 1  # a protobuf message's own limit; Sentis' importer has it too
KEPT_BYTES = 4096  # data of initialisers up to here is read: shapes, axes, scalars
KEPT_INT64_BYTES = 1 << 24
GRAPH, INITIALISER, RAW_DATA, DATA_TYPE = 7, 5, 9, 2
DATA_FIELDS = {4, 5, 7, 9, 10, 11}
INT64 = 7


@dataclass(frozen=True)
class Skeleton:
    """An ONNX file without the data of its large initialisers.

    Attributes:
        model: the model; a large initialiser has name, dims and type only.
        data_fields: initialiser name to data field number to the bytes it takes in the file.
        file_bytes: size of the file.
    """

    model: onnx.ModelProto
    data_fields: dict[str, dict[int, int]]
    file_bytes: int


def read_skeleton(path: Path) -> Skeleton:
    """Read everything but the data of large initialisers.

    Raises:
        StageError: missing, empty, a Git LFS pointer, a web page, cut short, or not an ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    size = _checked_size(path)
    sizes: dict[str, dict[int, int]] = {}
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            light = b"".join(_without_data(data, sizes))
        model = onnx.ModelProto.FromString(light)
    except (DecodeError, _WireError) as error:
        hint = "the file is cut short or no ONNX model; fetch or write it again and compare the size"
        raise StageError(f"{path}: not readable as ONNX ({size} bytes): {error}", hint=hint) from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise StageError(f"{path}: no graph in it ({size} bytes)", hint="give an .onnx model file")
    if (text := _not_utf8(model)) is not None:
        raise StageError(f"{path}: a name that is not UTF-8: {text!r}", hint="fetch or write the file again")
    return Skeleton(model, sizes, size)


def _not_utf8(message: Any) -> bytes | None:
    """Return a text of a message that protobuf could not decode (it then hands out bytes), None for none."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        values = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        if field.type == field.TYPE_STRING:
            for item in values:
                if isinstance(item, bytes):
                    return item[:40]
        elif field.type == field.TYPE_MESSAGE:
            for item in values:
                if (found := _not_utf8(item)) is not None:
                    return found
    return None


def _checked_size(path: Path) -> int:
    try:
        with path.open("rb") as file:
            start = file.read(512)
            size = path.stat().st_size
    except IsADirectoryError:
        raise StageError(f"{path}: a directory, wanted an .onnx file") from None
    except OSError as error:
        raise StageError(f"{path}: {error.strerror or error}", hint="give an existing .onnx file") from None
    if not size:
        raise StageError(f"{path}: the file is empty", hint="fetch or write it again")
    if start.startswith(b"version https://git-lfs"):
        raise StageError(f"{path}: a Git LFS pointer, not the model ({size} bytes)", hint="run `git lfs pull`")
    if start.lstrip()[:1] == b"<":
        raise StageError(f"{path}: a web page, not a model ({size} bytes)", hint="download the file itself")
    return size


class _WireError(Exception):
    pass


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise _WireError(f"cut short or damaged at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: Any, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, where the field starts, where its content starts, where it ends)."""
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == 2:
            length, at = _varint(data, at, end)
            stop = at + length
        elif kind == 0:
            _, stop = _varint(data, at, end)
        elif kind in (1, 5):
            stop = at + (8 if kind == 1 else 4)
        else:
            raise _WireError(f"unknown wire type {kind} at byte {start}")
        if stop > end:
            raise _WireError(f"cut short: a field at byte {start} ends {stop - end} bytes after its message")
        yield key >> 3, start, at, stop
        at = stop


def _without_data(data: Any, sizes: dict[str, dict[int, int]]) -> Iterator[bytes]:
    for number, start, inner, stop in _fields(data, 0, len(data)):
        if number == GRAPH:
            graph = b"".join(_graph_without_data(data, inner, stop, sizes))
            yield field_prefix(GRAPH, len(graph)) + graph
        else:
            yield data[start:stop]


def _graph_without_data(data: Any, at: int, end: int, sizes: dict[str, dict[int, int]]) -> Iterator[bytes]:
    import onnx

    for number, start, inner, stop in _fields(data, at, end):
        if number != INITIALISER:
            yield data[start:stop]
            continue
        parts = list(_fields(data, inner, stop))
        lengths: dict[int, int] = {}
        for n, _, i, e in parts:
            if n in DATA_FIELDS:
                lengths[n] = lengths.get(n, 0) + e - i
        length = sum(lengths.values())
        types = [_varint(data, i, e)[0] for n, _, i, e in parts if n == DATA_TYPE]
        keep = length <= (KEPT_INT64_BYTES if types == [INT64] else KEPT_BYTES)
        tensor = b"".join(data[s:e] for n, s, _, e in parts if keep or n not in DATA_FIELDS)
        sizes[onnx.TensorProto.FromString(tensor).name] = lengths
        yield field_prefix(INITIALISER, len(tensor)) + tensor


def field_prefix(field: int, length: int) -> bytes:
    """Return the bytes before a length-delimited field's content: its key and its length."""
    out, rest = bytearray([field << 3 | 2]), length
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def byte_size(tensor: onnx.TensorProto) -> int:
    """Return how many bytes a tensor's raw data has; -1 where its type or dims are no tensor's."""
    import onnx

    count = 1
    for size in tensor.dims:
        count *= size
    try:
        item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, ValueError):
        return -1
    return -1 if min([0, *tensor.dims]) < 0 else count * item


def type_name(data_type: int) -> str:
    """Return the name of an element type, also of one that ONNX does not know."""
    import onnx

    try:
        return onnx.TensorProto.DataType.Name(data_type)  # pyright: ignore[reportArgumentType]
    except ValueError:
        return f"number {data_type} (unknown)"


def topology_sha256(model: onnx.ModelProto) -> str:
    """Return a hash of the graph with initialiser data left out; names, dims and types of initialisers count."""
    import onnx

    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = light.graph
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    return hashlib.sha256(light.SerializeToString(deterministic=True)).hexdigest()
