"""Writing an ONNX file tensor by tensor.

`SerializeToString` of a whole model peaks at 4.4 times its weights. Here the graph is written without data and
each array is put at the offset that the sizes alone decide, so one array at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.onnx_file import LIMIT_BYTES, byte_size
from converters.wire import GRAPH, INITIALISER, RAW_DATA, field_prefix
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import written_whole

if TYPE_CHECKING:
    import onnx


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
        inner = tensor.SerializeToString() + (field_prefix(RAW_DATA, length) if waits else b"")
        entries.append((tensor, field_prefix(INITIALISER, len(inner) + length) + inner, length, waits))
    graph_bytes = len(before) + sum(len(head) + length for _, head, length, _ in entries) + len(ends)
    front, back = onnx.ModelProto(), onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.number < GRAPH:
            setattr(front, descriptor.name, value)
        elif descriptor.number > GRAPH:
            getattr(back, descriptor.name).MergeFrom(value)
    head = front.SerializeToString() + field_prefix(GRAPH, graph_bytes) + before
    at, plans = len(head), {}
    for tensor, entry, length, waits in entries:
        at += len(entry)
        plans[tensor.name] = _Plan(entry, at, length, tuple(tensor.dims), waits)
        at += length
    return head, plans, ends + back.SerializeToString()


def too_large(path: Path, size: int) -> StageError:
    """Return the error for a file beyond protobuf's limit."""
    gib = size / 2**30
    hint = "use --dtype fp16 (half the size), or a smaller model"
    return StageError(f"{path.name}: {gib:.2f} GiB of weights, a single .onnx file ends at 2 GiB", hint=hint)
