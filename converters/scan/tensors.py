"""Findings about constants: their types and fields, bytes, numbers outside of what Sentis holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from converters.facts import Facts
from converters.finding import Finding
from converters.onnx_file import Skeleton, byte_size, type_name
from converters.scan.graphs import nodes_within
from converters.scan.operators import SHOWN_NAME, label_of
from converters.scan.view import View, array_of, data_fields
from converters.wire import RAW_DATA, TYPED_FIELDS

if TYPE_CHECKING:
    import onnx

SENTINELS = (2**63 - 1, 2**63 - 2, -(2**63), 1 - 2**63)  # "to the end" and the like
BOUNDS = {("Slice", 1), ("Slice", 2)}  # inputs that are clamped to the axis by definition: starts and ends
CARRYING = {"Concat", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast"}
FOLLOWED_AT_MOST = 100
EXTERNAL = 1  # TensorProto.data_location


def tensor_findings(skeleton: Skeleton, view: View, known: Facts) -> Iterator[Finding]:
    """Yield the findings about initialisers and about constants in nodes."""
    seen: set[str] = set()
    for tensor in view.graph.initializer:
        label = tensor.name[:SHOWN_NAME]
        if tensor.name in seen:
            yield known.finding("TENSOR.DUPLICATE", label, "two initialisers of one name")
        seen.add(tensor.name)
        yield from _constant(label, tensor, skeleton.data_fields.get(tensor.name, {}), known)
        yield from _numbers(label, tensor.name, tensor, view, known)
    for label, name, tensor, lengths in _in_nodes(skeleton):
        yield from _constant(label, tensor, lengths, known)
        yield from _numbers(label, name, tensor, view, known)
    if sparse := len(view.graph.sparse_initializer):
        yield known.finding("TENSOR.SPARSE", "sparse_initializer", f"{sparse} sparse initialisers")


def _in_nodes(skeleton: Skeleton) -> Iterator[tuple[str, str, onnx.TensorProto, dict[int, int]]]:
    """Yield (label, name of the output, tensor, bytes by field) of tensors in nodes, those in bodies included."""
    unread = {name: list(lengths) for name, lengths in skeleton.node_data.items()}
    for node in nodes_within(skeleton.model.graph):
        name = node.output[0] if node.output else ""
        for attribute in node.attribute:
            tensors = [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
            for tensor in tensors:
                lengths = {number: 1 for number, field in TYPED_FIELDS.items() if len(getattr(tensor, field))}
                raw = {RAW_DATA: len(tensor.raw_data)} if tensor.raw_data else {}
                left_out = unread.get(name) if not lengths | raw else None
                yield label_of(node), name, tensor, left_out.pop(0) if left_out else lengths | raw


def _constant(label: str, tensor: onnx.TensorProto, lengths: dict[int, int], known: Facts) -> Iterator[Finding]:
    name, types = type_name(tensor.data_type), known["initialiser_types"]
    if name not in types["raw"]:
        yield known.finding("TENSOR.TYPE", label, f"type {name}")
    typed = next((TYPED_FIELDS[field] for field in lengths if field in TYPED_FIELDS), "")
    if typed and name in types["raw"] and name not in types["typed"].get(typed, ()):
        yield known.finding("TENSOR.TYPED_FIELD", label, f"{name} in {typed}")
    wanted, raw = byte_size(tensor), lengths.get(RAW_DATA)
    if raw is not None and raw != wanted:
        yield known.finding("TENSOR.BYTES", label, f"{raw} bytes, its shape {_dims(tensor)} wants {wanted}")
    if wanted > known["constant_limit_bytes"]:
        yield known.finding("TENSOR.SIZE", label, f"a constant of {wanted / 2**30:.2f} GiB")
    elif not lengths and wanted and name in types["raw"] and tensor.data_location != EXTERNAL:
        yield known.finding("TENSOR.BYTES", label, f"no data, its shape {_dims(tensor)} wants some")


def _dims(tensor: onnx.TensorProto) -> str:
    return str(tuple(tensor.dims[:9]))


def _numbers(label: str, name: str, tensor: onnx.TensorProto, view: View, known: Facts) -> Iterator[Finding]:
    import onnx

    kind = tensor.data_type
    if kind not in (onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE):
        return
    values = array_of(tensor)
    if values is None:
        absent = tensor.data_location == tensor.EXTERNAL or not data_fields(tensor)
        if kind == onnx.TensorProto.INT64 and absent and byte_size(tensor) > 0:
            yield known.finding("INT64.UNREAD", label, f"{byte_size(tensor) // 8} numbers")
        return
    if kind == onnx.TensorProto.DOUBLE:
        low, high = known["double_range"]
        outside = values[(values < low) | (values > high)]  # infinities too
        if outside.size:
            yield known.finding("DOUBLE.RANGE", label, f"{outside.size} doubles, the first {float(outside[0]):g}")
        return
    low, high = known["integer_range"]
    outside = values[(values < low) | (values > high)]
    if outside.size:
        bounds, computing = _readers(view, name)
        harmless = not computing and (bounds or bool(np.isin(outside, SENTINELS).all()))
        evidence = f"{outside.size} int64 values outside int32, the first {int(outside[0])}"
        evidence += f", read by {computing}" if computing else ""
        yield known.finding("INT64.RANGE", label, evidence, sure=not harmless)


def _readers(view: View, name: str) -> tuple[bool, str]:
    """Tell whether a tensor is a bound of slices, and the operator that computes with it, empty for none.

    Operators that only carry it are followed.
    """
    waiting, seen, bounds = [name], set[str](), False
    while waiting and len(seen) < FOLLOWED_AT_MOST:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for node, position in view.readers.get(current, ()):
            if node.op_type in CARRYING and (position == 0 or node.op_type == "Concat"):
                waiting += node.output
            elif (node.op_type, position) in BOUNDS:
                bounds = True
            else:
                return bounds, node.op_type
    return bounds, ""
