"""Constants in a type and a field that Sentis reads.

Why: fp16, bool and int8 in typed fields, bf16, 16-bit and unsigned integers, and sparse tensors abort the import;
doubles are clamped to ±2³¹. Typed fields become raw data. Other types become FLOAT or INT32 with a Cast back to the
old type behind them, so that every reader and the model's own inputs keep their types (Sentis takes such a Cast for
nothing); where every reader is a Cast, it reads the new constant itself. Does not fire on integers outside int32, nor
on strings, complex numbers and 8-bit floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from converters.onnx_file import byte_size, type_name
from converters.passes.base import Context, Outcome, Pass
from converters.passes.rewrite import names_of
from converters.scan.graphs import names_read
from converters.scan.view import array_of, data_fields

if TYPE_CHECKING:
    import onnx

HIGHEST = 2**31 - 1
AS_FLOAT, AS_INT = ("BFLOAT16",), ("INT16", "UINT16", "UINT32", "UINT64")


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Look at each initialiser and each Constant node."""
    outcome = Outcome()
    _dense(model.graph, outcome)
    for name, tensor in _tensors(model.graph):
        if tensor.data_location == tensor.EXTERNAL or not context.room():
            continue
        why = _mend(model.graph, name, tensor, context)
        if why is None:
            continue
        if why:
            outcome.left[name] = why
        else:
            outcome.changed += 1
            outcome.places.append(name)
            context.spend(0)
    return outcome


def _tensors(graph: onnx.GraphProto) -> list[tuple[str, onnx.TensorProto]]:
    held = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type in ("Constant", "ConstantOfShape") and node.output:
            held += [(node.output[0], a.t) for a in node.attribute if a.name == "value" and a.HasField("t")]
    return held


def _mend(graph: onnx.GraphProto, name: str, tensor: onnx.TensorProto, context: Context) -> str | None:
    """Mend one tensor; return None where nothing is wrong, a reason where it is left, empty where it is done."""
    types, kind = context.known["initialiser_types"], type_name(tensor.data_type)
    target = _target(tensor, kind, context)
    if target is None:
        typed = next((field for field in data_fields(tensor) if field != "raw_data"), "")
        if not typed or kind not in types["raw"] or kind in types["typed"].get(typed, ()):
            return None
        target = tensor.data_type
    values = array_of(tensor)
    if values is None:
        return f"{kind}: its data does not fit its shape, or is no number"
    if not target:
        return f"{kind} has no number type that Sentis reads"
    if target == tensor.data_type:
        _store(tensor, values)
        return ""
    if values.size and values.dtype.kind == "u" and int(values.max()) > HIGHEST:
        return f"{kind}: it holds values outside int32"
    old = tensor.data_type
    if any(node.op_type == "ConstantOfShape" and name in node.output for node in graph.node):
        return f"{kind} in a ConstantOfShape"
    _store(tensor, values.astype(np.float32 if target == 1 else np.int32))
    for declared in [value for value in graph.input if value.name == name]:
        graph.input.remove(declared)  # a default that a caller might have replaced; Sentis takes it for a constant
    for told in [value for value in graph.value_info if value.name == name]:
        graph.value_info.remove(told)
    if not _only_cast(graph, name):
        _cast_back(graph, name, old)
    return ""


def _target(tensor: onnx.TensorProto, kind: str, context: Context) -> int | None:
    """Return the type to store a tensor as, 0 where there is none, None where its own is right."""
    import onnx

    if kind in AS_FLOAT:
        return onnx.TensorProto.FLOAT
    if kind in AS_INT:
        return onnx.TensorProto.INT32
    if kind == "DOUBLE" and byte_size(tensor) >= 0:
        values, (low, high) = array_of(tensor), context.known["double_range"]
        return onnx.TensorProto.FLOAT if values is not None and bool(((values < low) | (values > high)).any()) else None
    return None if kind in context.known["initialiser_types"]["raw"] else 0


def _store(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    import onnx

    name, doc = tensor.name, tensor.doc_string
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
    if doc:
        tensor.doc_string = doc


def _only_cast(graph: onnx.GraphProto, name: str) -> bool:
    readers = [node for node in graph.node if name in set(names_read(node))]
    outputs = {value.name for value in graph.output}
    return bool(readers) and name not in outputs and all(node.op_type == "Cast" for node in readers)


def _cast_back(graph: onnx.GraphProto, name: str, element: int) -> None:
    """Give a constant another name, and its old name to a Cast of it."""
    import onnx

    taken, number = names_of(graph), 0
    while (stored := f"{name}/raw_tensors_{number}") in taken:
        number += 1
    at = 0
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.name = stored
    for position, node in enumerate(graph.node):
        if name in node.output:
            node.output[0] = stored
            at = position + 1
    graph.node.insert(at, onnx.helper.make_node("Cast", [stored], [name], f"{name}/raw_tensors", to=element))


def _dense(graph: onnx.GraphProto, outcome: Outcome) -> None:
    """Store sparse initialisers as plain ones."""
    import onnx

    for sparse in list(graph.sparse_initializer):
        name, dims = sparse.values.name, list(sparse.dims)
        values, places = array_of(sparse.values), array_of(sparse.indices)
        if values is None or places is None:
            outcome.left[name] = "its values or indices are not readable"
            continue
        dense = np.zeros(dims, values.dtype)
        if places.ndim == 2:
            dense[tuple(places.T)] = values
        else:
            dense.reshape(-1)[places] = values
        graph.initializer.append(onnx.numpy_helper.from_array(dense, name))
        graph.sparse_initializer.remove(sparse)
        outcome.changed += 1
        outcome.places.append(name)


FINDINGS = ("TENSOR.TYPED_FIELD", "TENSOR.TYPE", "TENSOR.SPARSE", "DOUBLE.RANGE")
PASS = Pass("raw_tensors", "Sentis reads few types, and most of them as raw data only", FINDINGS, run)
