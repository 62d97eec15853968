"""Protobuf's wire format walked without a decoder: a model's message copied without the data of its large tensors.

Field numbers are those of onnx.proto: ModelProto.graph 7, training_info 20, functions 25; GraphProto.node 1,
initializer 5, sparse_initializer 15; NodeProto.output 2, attribute 5; AttributeProto.t 5, g 6, tensors 10, graphs 11,
sparse_tensor 22, sparse_tensors 23; FunctionProto.node 7; SparseTensorProto.values 1, indices 2;
TensorProto.data_type 2, float_data 4, int32_data 5, int64_data 7, name 8, raw_data 9, double_data 10, uint64_data 11.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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


class WireError(Exception):
    """Bytes that are no message, with the place where that shows."""


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise WireError(f"cut short or damaged at byte {at}")
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
            raise WireError(f"unknown wire type {kind} at byte {start}")
        if stop > end:
            raise WireError(f"cut short: a field at byte {start} ends {stop - end} bytes after its message")
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
class Reader:
    """Copies messages without the data of large tensors, and writes down what it left out."""

    data: Any
    data_fields: dict[str, dict[int, int]] = field(default_factory=dict)
    node_data: dict[str, list[dict[int, int]]] = field(default_factory=dict)
    data_at: dict[str, int] = field(default_factory=dict)

    def light(self, kind: str, at: int, end: int, owner: str = "", depth: int = 0, *, told: bool = True) -> bytes:
        """Return one message; `owner` is the first output of the node around it, `told` false inside of functions."""
        if depth > DEEPEST:
            raise WireError(f"messages nested deeper than {DEEPEST} at byte {at}")
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


def walk(data: Any) -> None:
    """Look at the bytes that `read_skeleton` looks at; what is damaged is left for it to say."""
    with contextlib.suppress(WireError):
        Reader(data).light("model", 0, len(data))
