"""Reading an ONNX file without its weights, and writing one tensor by tensor.

`onnx.load` holds every weight in memory and `SerializeToString` peaks at 4.4 times their size. Here a file is
read by walking the protobuf wire format over a memory map, and written from a graph without data plus one
array at a time, each put at the offset that the sizes alone decide.

Field numbers are those of onnx.proto: ModelProto.graph 7; GraphProto.initializer 5; TensorProto.data_type 2,
float_data 4, int32_data 5, int64_data 7, raw_data 9, double_data 10, uint64_data 11.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import written_whole

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
    return Skeleton(model, sizes, size)


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
            yield _prefix(GRAPH, len(graph)) + graph
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
        yield _prefix(INITIALISER, len(tensor)) + tensor


def _prefix(field: int, length: int) -> bytes:
    out, rest = bytearray([field << 3 | 2]), length
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_model(path: Path, model: onnx.ModelProto, data: Iterable[tuple[str, Array]]) -> None:
    """Write a model whole or not at all, holding one array at a time.

    The bytes are those of one plain `ModelProto` message in field order: any reader takes them.

    Args:
        path: the file.
        model: with every initialiser declared; those without data get theirs from `data`.
        data: (initialiser name, array of the declared dims and type), in any order, each once.

    Raises:
        StageError: the file would exceed 2 GiB, or data is missing, unknown or of another shape or type.
    """
    head, plans, tail = _layout(model)
    total = max([len(head), *(plan.at + plan.length for plan in plans.values())]) + len(tail)
    if total > LIMIT_BYTES:
        raise too_large(path, total)
    with written_whole(path) as beside, beside.open("r+b") as file:
        file.truncate(total)
        file.write(head)
        for plan in plans.values():
            file.seek(plan.at - len(plan.head))
            file.write(plan.head)
        file.seek(total - len(tail))
        file.write(tail)
        waiting = {name: plan for name, plan in plans.items() if plan.waits}
        for name, array in data:
            if name not in waiting:
                raise StageError(f"{path}: data for {name!r}, which no initialiser waits for")
            plan = waiting.pop(name)
            if tuple(array.shape) != plan.dims or array.nbytes != plan.length:
                raise StageError(f"{name}: found {array.shape} {array.dtype}, wanted {plan.dims} {plan.length} bytes")
            file.seek(plan.at)
            np.ascontiguousarray(array).tofile(file)
        if waiting:
            raise all_at_once(f"{path}: initialisers without data:", waiting)


@dataclass(frozen=True)
class _Plan:
    head: bytes
    at: int
    length: int
    dims: tuple[int, ...]
    waits: bool


def _layout(model: onnx.ModelProto) -> tuple[bytes, dict[str, _Plan], bytes]:
    """Return the bytes before the initialisers, where each one's data goes, and the bytes after them."""
    import onnx

    nodes = onnx.GraphProto(node=model.graph.node)
    rest = onnx.GraphProto()
    rest.CopyFrom(model.graph)
    for field in ("node", "initializer"):
        rest.ClearField(field)
    if rest.HasField("name"):
        nodes.name = rest.name
        rest.ClearField("name")
    before, ends = nodes.SerializeToString(), rest.SerializeToString()
    entries: list[tuple[onnx.TensorProto, bytes, int, bool]] = []
    for tensor in model.graph.initializer:
        waits = not tensor.raw_data
        length = byte_size(tensor) if waits else 0
        inner = tensor.SerializeToString() + (_prefix(RAW_DATA, length) if waits else b"")
        entries.append((tensor, _prefix(INITIALISER, len(inner) + length) + inner, length, waits))
    graph_bytes = len(before) + sum(len(head) + length for _, head, length, _ in entries) + len(ends)
    front, back = onnx.ModelProto(), onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.number < GRAPH:
            setattr(front, descriptor.name, value)
        elif descriptor.number > GRAPH:
            getattr(back, descriptor.name).MergeFrom(value)
    head = front.SerializeToString() + _prefix(GRAPH, graph_bytes) + before
    at, plans = len(head), {}
    for tensor, entry, length, waits in entries:
        at += len(entry)
        plans[tensor.name] = _Plan(entry, at, length, tuple(tensor.dims), waits)
        at += length
    return head, plans, ends + back.SerializeToString()


def byte_size(tensor: onnx.TensorProto) -> int:
    """Return how many bytes a tensor's raw data has."""
    import onnx

    count = 1
    for size in tensor.dims:
        count *= size
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def too_large(path: Path, size: int) -> StageError:
    """Return the error for a file beyond protobuf's limit."""
    gib = size / 2**30
    hint = "use --dtype fp16 (half the size), or a smaller model"
    return StageError(f"{path.name}: {gib:.2f} GiB of weights, a single .onnx file ends at 2 GiB", hint=hint)


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


def initialisers(model: onnx.ModelProto) -> Mapping[str, onnx.TensorProto]:
    """Return initialisers by name."""
    return {tensor.name: tensor for tensor in model.graph.initializer}
