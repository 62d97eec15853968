"""Scanning tensors: types, ranks, integers, external files, duplicate names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.finding import Finding
from converters.onnx_file import RAW_DATA, Skeleton, byte_size, type_name

if TYPE_CHECKING:
    import onnx

TYPED_FIELDS = {4: "float_data", 5: "int32_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}
CLAMP = "mlx-sentis fix --only clamp_int64"
INLINE = "mlx-sentis fix --only inline_weights"


def tensor_findings(skeleton: Skeleton, path: Path, known: dict[str, Any]) -> list[Finding]:
    """Return the findings about initialisers, constants, inputs and declared shapes."""
    model = skeleton.model
    found = [*_inputs(model, known), *_ranks(model, known), *_names(model)]
    positions: dict[str, int] = {}
    for tensor in model.graph.initializer:
        found += _initialiser(tensor, skeleton, known)
        if tensor.data_location == tensor.EXTERNAL:
            found += _external(tensor, path, positions)
    for label, tensor in _attribute_tensors(model.graph.node):
        found += _types(label, tensor.data_type, known)
        found += _typed_field(label, tensor, _field_of(tensor), known)
        found += _integers(label, tensor, known)
        if tensor.data_location == tensor.EXTERNAL:
            what = "a constant in an external file is read from byte 0, whatever its offset"
            severity = "deviation" if _entry(tensor, "offset", 0) else "warning"
            found.append(Finding("EXTERNAL.CONSTANT", severity, label, what, INLINE, "D"))
    if sparse := len(model.graph.sparse_initializer):
        what = f"{sparse} sparse initialisers, which Sentis does not read"
        found.append(Finding("TENSOR.SPARSE", "error", "sparse_initializer", what, "store them dense"))
    return found


def _inputs(model: onnx.ModelProto, known: dict[str, Any]) -> Iterator[Finding]:

    given = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type" or not value.type.tensor_type.HasField("shape"):
            if value.name not in given:
                what = f"an input without a tensor shape ({kind or 'no type'}): the import throws"
                yield Finding("INPUT.NO_SHAPE", "error", value.name, what, "declare a tensor with a shape")
            continue
        name = type_name(value.type.tensor_type.elem_type)
        if name not in known["input_types"]:
            what = f"an input of type {name}; run-time tensors are float32 or int32"
            yield Finding("INPUT.TYPE", "error", value.name, what, "convert it outside the graph")


def _ranks(model: onnx.ModelProto, known: dict[str, Any]) -> Iterator[Finding]:
    most = known["max_rank"]
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        ranks[value.name] = len(value.type.tensor_type.shape.dim)
    sizes = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 1}
    for node in model.graph.node:
        if node.op_type == "Reshape" and len(node.input) > 1 and node.output:
            ranks[node.output[0]] = max(ranks.get(node.output[0], 0), sizes.get(node.input[1], 0))
        if node.op_type == "Transpose" and node.output:
            axes = [len(attribute.ints) for attribute in node.attribute if attribute.name == "perm"]
            ranks[node.output[0]] = max([ranks.get(node.output[0], 0), *axes])
    for name, rank in ranks.items():
        if rank > most:
            what = f"rank {rank}; Sentis ends at {most}"
            yield Finding("TENSOR.RANK", "error", name, what, "merge dimensions before this place")


def _names(model: onnx.ModelProto) -> Iterator[Finding]:
    seen: set[str] = set()
    for tensor in model.graph.initializer:
        if tensor.name in seen:
            what = "two initialisers of one name: the import aborts"
            yield Finding("TENSOR.DUPLICATE", "error", tensor.name, what, "rename one")
        seen.add(tensor.name)


def _initialiser(tensor: onnx.TensorProto, skeleton: Skeleton, known: dict[str, Any]) -> Iterator[Finding]:
    fields = skeleton.data_fields.get(tensor.name, {})
    yield from _types(tensor.name, tensor.data_type, known)
    typed = next((TYPED_FIELDS[field] for field in fields if field in TYPED_FIELDS), "")
    yield from _typed_field(tensor.name, tensor, typed, known)
    yield from _integers(tensor.name, tensor, known)
    raw = fields.get(RAW_DATA)
    if raw is not None and raw != (wanted := byte_size(tensor)):
        what = f"{raw} bytes of data, its shape {tuple(tensor.dims)} wants {wanted}"
        yield Finding("TENSOR.BYTES", "error", tensor.name, what, "write the file again")


def _types(label: str, data_type: int, known: dict[str, Any]) -> Iterator[Finding]:

    name = type_name(data_type)
    if name not in known["initialiser_types"]["raw"]:
        what = f"a constant of type {name}: the import aborts"
        yield Finding("TENSOR.TYPE", "error", label, what, "store it as FLOAT or INT32")


def _typed_field(label: str, tensor: onnx.TensorProto, field: str, known: dict[str, Any]) -> Iterator[Finding]:

    name = type_name(tensor.data_type)
    types = known["initialiser_types"]
    if field and name in types["raw"] and name not in types["typed"].get(field, ()):
        what = f"{name} stored in {field}, where Sentis does not look: the import aborts"
        yield Finding("TENSOR.TYPED_FIELD", "error", label, what, "store it as raw data (onnx.numpy_helper.from_array)")


def _field_of(tensor: onnx.TensorProto) -> str:
    return next((name for name in TYPED_FIELDS.values() if len(getattr(tensor, name))), "")


def _integers(label: str, tensor: onnx.TensorProto, known: dict[str, Any]) -> Iterator[Finding]:
    import onnx

    has_data = bool(tensor.raw_data) or bool(tensor.int64_data)
    if tensor.data_type != onnx.TensorProto.INT64 or not has_data or tensor.data_location == tensor.EXTERNAL:
        return
    try:
        values = onnx.numpy_helper.to_array(tensor)
    except ValueError:
        return  # TENSOR.BYTES says why
    low, high = known["integer_range"]
    outside = values[(values < low) | (values > high)]
    if outside.size:
        sentinel = bool(np.isin(outside, (np.iinfo(np.int64).max, np.iinfo(np.int64).min, 2**63 - 2)).all())
        what = f"{outside.size} int64 values outside int32, the first {int(outside[0])}: Sentis saturates them"
        yield Finding("INT64.RANGE", "warning" if sentinel else "deviation", label, what, CLAMP)


def _attribute_tensors(nodes: Any) -> Iterator[tuple[str, onnx.TensorProto]]:
    for node in nodes:
        label = node.name or (node.output[0] if node.output else node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield label, attribute.t
            if attribute.HasField("g"):
                yield from _attribute_tensors(attribute.g.node)


def _entry(tensor: onnx.TensorProto, key: str, default: int) -> int:
    texts = {entry.key: entry.value for entry in tensor.external_data}
    try:
        return int(texts.get(key, default))
    except ValueError:
        return -1


def _external(tensor: onnx.TensorProto, path: Path, positions: dict[str, int]) -> Iterator[Finding]:
    """Replay the importer: per file, the next `length` bytes, whatever `offset` says."""
    texts = {entry.key: entry.value for entry in tensor.external_data}
    location = texts.get("location", "")
    offset, length, wanted = _entry(tensor, "offset", 0), _entry(tensor, "length", -1), byte_size(tensor)
    side = path.parent / location
    outside = not location or "\0" in location or Path(location).is_absolute() or ".." in Path(location).parts
    if wanted < 0:
        return  # TENSOR.TYPE says why
    if outside or not side.resolve().is_relative_to(path.parent.resolve()):
        what = f"external file {location!r} lies outside the model's folder"
        yield Finding("EXTERNAL.PATH", "error", tensor.name, what, "move it beside the model", "D")
        return
    at = positions.get(location, 0)
    positions[location] = at + max(length, 0)
    if not side.is_file():
        what = f"external file {location!r} is not there: the import throws"
        yield Finding("EXTERNAL.MISSING", "error", tensor.name, what, "put it beside the model, then inline", "D")
        return
    if length != wanted:
        what = f"length {length if length >= 0 else 'absent'}, its shape wants {wanted} bytes"
        yield Finding("EXTERNAL.LENGTH", "error", tensor.name, what, INLINE, "D")
    if offset + wanted > side.stat().st_size:
        what = f"{location} ends before byte {offset + wanted}"
        yield Finding("EXTERNAL.SHORT", "error", tensor.name, what, "copy the whole file", "D")
    if offset != at:
        what = f"offset {offset} in {location}; Sentis ignores it and reads from {at}: wrong weights, no message"
        yield Finding("EXTERNAL.OFFSET", "deviation", tensor.name, what, INLINE, "D")
    elif at == 0:  # once per file
        what = f"weights in {location}; a changed or late file needs a re-import by hand"
        yield Finding("EXTERNAL.DATA", "warning", tensor.name, what, INLINE, "D")
