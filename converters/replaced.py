"""A graph file with other numbers in some of its constants, as ONNX Runtime opens it; nothing is written.

The graph goes in memory without weights: a tensor that stays is read by ONNX Runtime from the file where it lies, the
others are handed over. What nodes compute of constants alone (a Cast that widens fp16 weights) may be replaced as well:
its node goes, as it does at Sentis' import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.facts import facts, versions
from converters.onnx_file import byte_size, read_skeleton, type_name
from converters.scan.graphs import names_read, nodes_within
from converters.scan.model import opset_of
from converters.scan.view import data_fields, view_of
from weights_bridge.compare import Array
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

DTYPES = {"FLOAT": np.float32, "FLOAT16": np.float16}
HANDED_OVER = "handed over"  # where a side file's name would stand; ONNX Runtime opens none of this name


@dataclass(frozen=True)
class Replaced:
    """What ONNX Runtime is given.

    Attributes:
        model: the serialised graph.
        folder: where its files lie.
        values: name to the numbers that are handed over; they must live as long as the session.
    """

    model: bytes
    folder: Path
    values: Mapping[str, Array]


def replaced(path: Path, values: Mapping[str, Array]) -> Replaced:
    """Return a file's graph with other numbers.

    Args:
        path: the file.
        values: initialiser, or single output of a node, to its float32 numbers; what the file holds as float16 is
            rounded to it, because the nodes behind it compute in that type.

    Raises:
        StageError: unreadable, a name that nothing makes, or weights that cannot be left where they lie.
    """
    skeleton = read_skeleton(path)
    model, graph = skeleton.model, skeleton.model.graph
    types = view_of(model, facts(versions()[-1]), opset_of(model)).types
    _without_makers(graph, values, types)
    given = {name: _as_declared(name, array, types.get(name, 0)) for name, array in values.items()}
    for tensor in graph.initializer:
        if tensor.name in given:
            _point(tensor, HANDED_OVER)
        elif tensor.data_location != tensor.EXTERNAL and not data_fields(tensor) and byte_size(tensor) > 0:
            if tensor.name not in skeleton.data_at:
                what = f"{path}: the numbers of {tensor.name!r} do not lie in one piece"
                raise StageError(what, hint="write the model anew with raw data")
            _point(tensor, path.name, skeleton.data_at[tensor.name], byte_size(tensor))
    _no_large_tensors_in_nodes(path, model)
    return Replaced(model.SerializeToString(), path.parent, given)


def _without_makers(graph: onnx.GraphProto, values: Mapping[str, Array], types: Mapping[str, int]) -> None:
    """Take out the nodes that compute what is replaced, and initialisers that nothing reads any more."""
    made = set(values) - {tensor.name for tensor in graph.initializer}
    gone = [node for node in graph.node if len(node.output) == 1 and node.output[0] in made]
    if missing := sorted(made - {node.output[0] for node in gone}):
        raise StageError(f"{missing[0]!r} is no initialiser and no single output of a node: the optimiser makes it")
    kept = [node for node in graph.node if not made.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(kept)
    for name in sorted(made):
        graph.initializer.add(name=name, dims=values[name].shape, data_type=types.get(name, 0))
    read = {name for node in kept for name in names_read(node)} | {value.name for value in graph.output}
    used = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(used)


def _as_declared(name: str, array: Array, element: int) -> Array:
    if (kind := type_name(element)) not in DTYPES:
        raise StageError(f"{name!r} is of type {kind}: only floats are replaced")
    return np.ascontiguousarray(array, DTYPES[kind])


def _no_large_tensors_in_nodes(path: Path, model: onnx.ModelProto) -> None:
    """Refuse what ONNX Runtime could read from nowhere: a node's own tensor has no place outside of the graph."""
    inside = [*nodes_within(model.graph), *(node for function in model.functions for node in function.node)]
    for node in inside:
        for attribute in node.attribute:
            if attribute.HasField("t") and not data_fields(attribute.t) and byte_size(attribute.t) > 0:
                what = f"{path}: {node.op_type} of {node.output[0]!r} holds a large tensor itself"
                raise StageError(what, hint="make it an initialiser")


def _point(tensor: onnx.TensorProto, location: str, offset: int | None = None, length: int | None = None) -> None:
    """Say where an initialiser's data lie instead of holding them."""
    for one in ("raw_data", "float_data", "int32_data", "double_data", "external_data"):
        tensor.ClearField(one)
    tensor.data_location = tensor.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
