"""What is known about a graph before it runs: who makes and reads each tensor, its type, shape and small constants.

Types and shapes come from onnx's own inference over the graph as Sentis sees it: the domain of a node is ignored,
functions are not read, nodes are sorted. Where inference ends (an operator nobody knows) nothing is known behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.onnx_file import type_name
from converters.scan import sizes
from converters.scan.graphs import graphs_in, names_read
from converters.scan.inference import inferred
from converters.scan.schemas import attribute_value

if TYPE_CHECKING:
    import onnx

    from converters.facts import Facts
    from converters.scan.sizes import Size


@dataclass
class View:
    """One graph, and the graph around it.

    Attributes:
        graph: the graph, nodes in their file's order.
        outer: the view of the graph around it, None for the model's own.
        types: tensor name to ONNX element type.
        dims: tensor name to sizes, None for one that is not known.
        sizes: the same with the names that sizes bear.
        makers: tensor name to the node that makes it.
        readers: tensor name to (node, input position); -1 for a node whose bodies read it.
    """

    graph: onnx.GraphProto
    outer: View | None = None
    types: dict[str, int] = field(default_factory=dict)
    dims: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    sizes: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = field(default_factory=dict)
    _values: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def initialisers(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @cached_property
    def inputs(self) -> set[str]:
        """Names the caller feeds: inputs that no initialiser stands in for."""
        return {value.name for value in self.graph.input} - set(self.initialisers)

    def type(self, name: str) -> int:
        """Return a tensor's element type, 0 where it is not known."""
        return self.types.get(name, 0) or (self.outer.type(name) if self.outer else 0)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Return a tensor's sizes (None for an unknown one), None where not even its rank is known."""
        known = self.dims.get(name)
        return known if known is not None or self.outer is None else self.outer.shape(name)

    def maker(self, name: str) -> onnx.NodeProto | None:
        """Return the node that makes a tensor."""
        return self.makers.get(name) or (self.outer.maker(name) if self.outer else None)

    def value(self, name: str) -> np.ndarray | None:
        """Return a constant's numbers where they are in the file and were read, None otherwise."""
        if name not in self._values:
            self._values[name] = self._value(name)
        return self._values[name]

    def is_wanted(self, name: str) -> bool:
        """Tell whether something reads a tensor, or the model puts it out."""
        return bool(name) and (bool(self.readers.get(name)) or any(one.name == name for one in self.graph.output))

    def is_constant(self, name: str) -> bool:
        """Tell whether a tensor is an initialiser or a Constant node's, read or not."""
        maker = self.maker(name)
        return name in self.initialisers or (maker is not None and maker.op_type == "Constant")

    def _value(self, name: str) -> np.ndarray | None:
        if (tensor := self.initialisers.get(name)) is not None:
            return array_of(tensor)
        maker = self.makers.get(name)
        if maker is None:
            return self.outer.value(name) if self.outer else None
        return constant_value(maker) if maker.op_type == "Constant" else None


def array_of(tensor: onnx.TensorProto) -> np.ndarray | None:
    """Return a tensor's numbers, None where its data is elsewhere, was not read, or does not fit."""
    import onnx

    empty = 0 in tensor.dims
    if tensor.data_location == tensor.EXTERNAL or (not empty and len(data_fields(tensor)) != 1):
        return None
    if tensor.data_type in (0, onnx.TensorProto.STRING) or min([0, *tensor.dims]) < 0:
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError, AttributeError):
        return None  # its type or bytes are a finding of their own


def data_fields(tensor: onnx.TensorProto) -> list[str]:
    """Return the names of the fields that hold a tensor's data."""
    names = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return [name for name in names if len(getattr(tensor, name))] + (["raw_data"] if tensor.raw_data else [])


def constant_value(node: onnx.NodeProto) -> np.ndarray | None:
    """Return what a Constant node holds, in the order that Sentis looks for it; None where it holds no numbers."""
    given = {attribute.name: attribute for attribute in node.attribute}
    if "value" in given:
        return array_of(given["value"].t)
    for name, field_name, kind in (
        ("value_float", "f", np.float32),
        ("value_floats", "floats", np.float32),
        ("value_int", "i", np.int64),
        ("value_ints", "ints", np.int64),
    ):
        if name in given:
            return np.array(getattr(given[name], field_name), kind)
    return None


def view_of(model: onnx.ModelProto, known: Facts, opset: int) -> View:
    """Return what is known about a model's graph."""
    return _filled(View(model.graph), inferred(model, known, opset).graph)


def inner_views(view: View, node: onnx.NodeProto) -> Iterator[View]:
    """Yield views of the graphs in a node's attributes: of their types only what is declared is known."""
    for attribute in node.attribute:
        for graph in graphs_in(attribute):
            yield _filled(View(graph, view), graph)


def _filled(view: View, typed: onnx.GraphProto) -> View:
    for value in (*typed.value_info, *typed.output, *typed.input):
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        tensor = value.type.tensor_type
        view.types[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            view.dims[value.name] = tuple(None if size is None or size < 0 else size for size in sizes)
            pairs = zip(view.dims[value.name], tensor.shape.dim, strict=True)
            view.sizes[value.name] = tuple(dim.dim_param or None if size is None else size for size, dim in pairs)
    for tensor in view.graph.initializer:
        view.types[tensor.name], view.dims[tensor.name] = tensor.data_type, tuple(tensor.dims)
        view.sizes[tensor.name] = tuple(tensor.dims)
    for node in view.graph.node:
        for name in filter(None, node.output):
            view.makers.setdefault(name, node)
        for position, name in enumerate(node.input):
            if name:
                view.readers.setdefault(name, []).append((node, position))
        for name in set(names_read(node)) - set(node.input):
            view.readers.setdefault(name, []).append((node, -1))
    return view


@dataclass(frozen=True)
class Place:
    """A node in its graph: what the predicates ask.

    Attributes:
        node: the node.
        view: its graph.
        opset: the model's opset as Sentis takes it.
        known: the facts of the version.
    """

    node: onnx.NodeProto
    view: View
    opset: int
    known: Facts

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attribute name to value, those without that are of another type than ONNX gives them."""
        named = {a.name: attribute_value(self.node.op_type, a) for a in self.node.attribute}
        return {name: value for name, value in named.items() if value is not None}

    def name(self, position: int) -> str:
        """Return an input's name, empty where it is not given."""
        return self.node.input[position] if position < len(self.node.input) else ""

    @property
    def positions(self) -> list[int]:
        """Positions of the inputs that are given."""
        return [position for position, name in enumerate(self.node.input) if name]

    def kind(self, position: int) -> str:
        """Return `float`, `int`, or empty where it is not known."""
        element = self.view.type(self.name(position))
        return self.known.kind(type_name(element)) if element else ""

    def shape(self, position: int) -> tuple[int | None, ...] | None:
        """Return an input's sizes, None where its rank is not known."""
        return self.view.shape(self.name(position)) if self.name(position) else None

    def rank(self, position: int) -> int | None:
        """Return an input's rank, None where it is not known."""
        shape = self.shape(position)
        return None if shape is None else len(shape)

    def value(self, position: int) -> np.ndarray | None:
        """Return a constant input's numbers, None where they are not known."""
        return self.view.value(self.name(position)) if self.name(position) else None

    def sizes(self, position: int) -> list[Size] | None:
        """Return an input's numbers where they are constant or computed from shapes; see `scan.sizes`."""
        return sizes.computed(self.view, self.name(position)) if self.name(position) else None

    def ints(self, attribute: str, position: int) -> list[int] | None:
        """Return integers from an attribute or else from a constant input; None where neither is known."""
        if isinstance(given := self.attributes.get(attribute), list):
            return [int(item) for item in given]
        value = self.value(position)
        return None if value is None else [int(item) for item in value.reshape(-1)]
