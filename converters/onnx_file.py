"""Reading an ONNX file without its weights: a walk over the protobuf wire format in a memory map.

Field numbers are those of onnx.proto: ModelProto.graph 7, training_info 20, functions 25; GraphProto.node 1,
initializer 5, sparse_initializer 15; NodeProto.output 2, attribute 5; AttributeProto.t 5, g 6, tensors 10, graphs 11,
sparse_tensor 22, sparse_tensors 23; FunctionProto.node 7; SparseTensorProto.values 1, indices 2;
TensorProto.data_type 2, float_data 4, int32_data 5, int64_data 7, name 8, raw_data 9, double_data 10, uint64_data 11.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

LIMIT_BYTES = 2**31 - 1  # a protobuf message's own limit; Sentis' importer has it too
KEPT_BYTES = 4096  # data of tensors up to here is read: shapes, axes, scalars
KEPT_INT64_BYTES = 1 << 24
GRAPH, INITIALISER, RAW_DATA, DATA_TYPE, TENSOR_NAME, NODE_OUTPUT = 7, 5, 9, 2, 8, 2
TYPED_FIELDS = {4: "float_data", 5: "int32_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}
DATA_FIELDS = {*TYPED_FIELDS, RAW_DATA}
AS_IN_MEMORY = {4, RAW_DATA, 10}  # packed float_data and double_data lie in the file as raw data do
INT64 = 7
NODE_TENSOR_DEPTH = 3  # model, graph, node, attribute: the attributes of the graph's own nodes
DEEPEST = 100  # messages within each other, where protobuf itself ends
DROPPED = 20  # ModelProto.training_info: a second graph, which nothing here reads
INNER = {  # message -> field -> message that may hold a tensor
    "model": {GRAPH: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", INITIALISER: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}


@dataclass(frozen=True)
class Skeleton:
    """An ONNX file without the data of its large tensors.

    Attributes:
        model: the model; a large tensor has name, dims and type only.
        data_fields: initialiser name to data field number to the bytes it takes in the file.
        node_data: first output of a node to the same for each of its large tensors, in the file's order; nodes of the
            graph and of bodies in it (where two bodies may use one name), not those of functions.
        file_bytes: size of the file.
        data_at: name of an initialiser, or first output of a node, of the graph itself to the byte in the file where
            the data of its large tensor begins, where that is one piece of little-endian numbers.
    """

    model: onnx.ModelProto
    data_fields: dict[str, dict[int, int]]
    node_data: dict[str, list[dict[int, int]]]
    file_bytes: int
    data_at: dict[str, int] = field(default_factory=dict)


def read_skeleton(path: Path) -> Skeleton:
    """Read everything but the data of large tensors.

    Raises:
        StageError: missing, empty, a Git LFS pointer, a web page, cut short, or not an ONNX file.
    """
    import onnx
    from google.protobuf.message import DecodeError

    size = _checked_size(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data)
            light = reader.light("model", 0, len(data))
        model = onnx.ModelProto.FromString(light)
    except (DecodeError, _WireError) as error:
        hint = "the file is cut short or no ONNX model; fetch or write it again and compare the size"
        raise StageError(f"{path}: not readable as ONNX ({size} bytes): {error}", hint=hint) from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise StageError(f"{path}: no graph in it ({size} bytes)", hint="give an .onnx model file")
    if (text := _not_utf8(model)) is not None:
        raise StageError(f"{path}: a name that is not UTF-8: {text!r}", hint="fetch or write the file again")
    return Skeleton(model, reader.data_fields, reader.node_data, size, reader.data_at)


def loaded(path: Path) -> onnx.ModelProto:
    """Read a model with the data that is in its file; side files are left where they are.

    Raises:
        StageError: no model, see `read_skeleton`, or one that protobuf cannot read whole.
    """
    import onnx

    skeleton = read_skeleton(path)  # says what is wrong with a file that is no model
    if skeleton.file_bytes > LIMIT_BYTES:
        size = f"{skeleton.file_bytes / 2**30:.2f} GiB"
        hint = "export it with side files or in fp16; `mlx-sentis scan` reads it all the same"
        raise StageError(f"{path}: {size}, protobuf reads a file of less than 2 GiB only", hint=hint)
    return onnx.load(str(path), load_external_data=False)


def walk(data: Any) -> None:
    """Look at the bytes that `read_skeleton` looks at; what is damaged is left for it to say."""
    with contextlib.suppress(_WireError):
        _Reader(data).light("model", 0, len(data))


def _not_utf8(message: Any) -> bytes | None:
    """Return a text of a message that protobuf could not decode (it then hands out bytes), None for none."""
    for described, value in message.ListFields():
        if described.type not in (described.TYPE_STRING, described.TYPE_MESSAGE):
            continue
        values = [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        for item in values:
            if described.type == described.TYPE_MESSAGE:
                if (found := _not_utf8(item)) is not None:
                    return found
            elif isinstance(item, bytes):
                return item[:40]
    return None


def _checked_size(path: Path) -> int:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for, without end
            raise StageError(f"{path}: a pipe or device, wanted an .onnx file", hint="give an existing .onnx file")
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


@dataclass
class _Written:
    """What a file holds of one tensor: its name, bytes by data field, (field, first byte) pieces."""

    name: str = ""
    lengths: dict[int, int] = field(default_factory=dict)
    pieces: list[tuple[int, int]] = field(default_factory=list)
    kept: bool = True


@dataclass
class _Reader:
    """Copies messages without the data of large tensors, and writes down what it left out."""

    data: Any
    data_fields: dict[str, dict[int, int]] = field(default_factory=dict)
    node_data: dict[str, list[dict[int, int]]] = field(default_factory=dict)
    data_at: dict[str, int] = field(default_factory=dict)

    def light(self, kind: str, at: int, end: int, owner: str = "", depth: int = 0, *, told: bool = True) -> bytes:
        """Return one message; `owner` is the first output of the node around it, `told` false inside of functions."""
        if depth > DEEPEST:
            raise _WireError(f"messages nested deeper than {DEEPEST} at byte {at}")
        parts: list[bytes] = []
        inner = INNER[kind]
        owner = "" if kind in ("graph", "node", "sparse") else owner
        told = told and kind != "function"
        for number, start, content, stop in _fields(self.data, at, end):
            if kind == "model" and number == DROPPED:
                continue
            if kind == "node" and number == NODE_OUTPUT and not owner:
                owner = self.data[content:stop].decode("utf-8", "replace")
            initialiser = kind == "graph" and number == INITIALISER and depth == 1  # its data's fields are written down
            opened = initialiser or (kind == "model" and number == GRAPH) or stop - content > KEPT_BYTES
            if number not in inner or not opened:
                parts.append(self.data[start:stop])
            elif inner[number] == "tensor":
                tensor, written = self._tensor(content, stop)
                parts += (field_prefix(number, len(tensor)), tensor)
                self._tell(written, owner if told else "", depth, initialiser)
            else:
                message = self.light(inner[number], content, stop, owner, depth + 1, told=told)
                parts += (field_prefix(number, len(message)), message)
        return b"".join(parts)

    def _tensor(self, at: int, end: int) -> tuple[bytes, _Written]:
        """Return a tensor, without its data where that is large, and what the file holds of it."""
        parts = list(_fields(self.data, at, end))
        written, types = _Written(), []
        for n, _, content, stop in parts:
            if n in DATA_FIELDS:
                written.lengths[n] = written.lengths.get(n, 0) + stop - content
                written.pieces.append((n, content))
            elif n == TENSOR_NAME:
                written.name = self.data[content:stop].decode("utf-8", "replace")
            elif n == DATA_TYPE:
                types.append(_varint(self.data, content, stop)[0])
        keep = sum(written.lengths.values()) <= (KEPT_INT64_BYTES if types == [INT64] else KEPT_BYTES)
        written.kept = keep
        return b"".join(self.data[s:e] for n, s, _, e in parts if keep or n not in DATA_FIELDS), written

    def _tell(self, written: _Written, owner: str, depth: int, initialiser: bool) -> None:
        """Write down what was left out of an initialiser of the graph, or of a tensor of the node `owner`."""
        if initialiser:
            self.data_fields[written.name] = written.lengths
        elif owner and not written.kept:
            self.node_data.setdefault(owner, []).append(written.lengths)
        at_top = initialiser or (owner and depth == NODE_TENSOR_DEPTH)
        if at_top and not written.kept and len(written.pieces) == 1 and written.pieces[0][0] in AS_IN_MEMORY:
            self.data_at[written.name if initialiser else owner] = written.pieces[0][1]


def field_prefix(number: int, length: int) -> bytes:
    """Return the bytes before a length-delimited field's content: its key and its length."""
    return _varint_bytes(number << 3 | 2) + _varint_bytes(length)


def _varint_bytes(rest: int) -> bytes:
    out = bytearray()
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
