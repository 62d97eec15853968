"""From an ONNX graph to layers, as the importer does it: one layer per node, a few with more.

Which operator becomes which layer stands in the facts (`imports`); what stands here is how many of them. The domain of
a node is ignored, nodes are sorted, functions and bodies are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.facts import Facts
from converters.fusions.layers import Constant, Layer, LayerGraph, Size
from converters.onnx_file import type_name
from converters.scan.graphs import sorted_order
from converters.scan.model import opset_of
from converters.scan.operators import label_of
from converters.scan.schemas import least_ends
from converters.scan.view import Place, constant_value, view_of
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

REDUCTIONS = {"ReduceSum": 13}  # axes are an input from this opset on, for all others from 18
REDUCTION_INPUTS_FROM = 18
INPUT_FROM = {  # operator to the opset from which these integers are inputs; below they are attributes
    "Squeeze": (13, ("axes",)),
    "Unsqueeze": (13, ("axes",)),
    "Reshape": (5, ("shape",)),
    "Slice": (10, ("starts", "ends", "axes")),
    "TopK": (10, ("k",)),
    "Pad": (11, ("pads",)),
}
CHAINS = {"Max": "Max", "Min": "Min", "Sum": "Add"}  # the last input is joined first
GENERATED = "unk__"  # how onnx's inference names sizes it knows nothing about


def imported(model: onnx.ModelProto, known: Facts) -> tuple[LayerGraph, list[str]]:
    """Return the layers before anything is optimised, and the operators that stop the import.

    Args:
        model: whole, or without the data of large tensors.
        known: the facts of a version.

    Raises:
        StageError: the nodes go round in a circle.
    """
    opset = opset_of(model)
    view = view_of(model, known, opset)
    order = sorted_order(model.graph)
    if order is None:
        raise StageError("the nodes read each other in a circle", hint="write the model again")
    graph = LayerGraph(outputs=[value.name for value in model.graph.output])
    graph.inputs = [value.name for value in model.graph.input if value.name in view.inputs]
    for name in {*view.types, *view.sizes}:
        graph.kinds[name] = known.kind(type_name(view.type(name)))
    graph.sizes = {name: tuple(map(_named, sizes)) for name, sizes in view.sizes.items()}
    for tensor in model.graph.initializer:
        graph.hold(tensor.name, _constant(view.value(tensor.name), graph.kinds[tensor.name], tuple(tensor.dims), known))
    unknown = []
    for index in order:
        place = Place(model.graph.node[index], view, opset, known)
        if _lacks(place):
            unknown.append(f"{place.node.op_type} {label_of(place.node)!r}: inputs or outputs are missing")
        elif place.node.op_type == "Constant":
            _add_constant(graph, place, known)
        elif place.node.op_type in known.operators:
            for layer in _layers(graph, place):
                _know(graph, layer, place.node.output[0])
                graph.add(layer)
        else:
            unknown.append(f"{place.node.op_type} {label_of(place.node)!r}: not handled")
            graph.add(_layer(place.node.op_type, place))
    return graph, unknown


def _lacks(place: Place) -> bool:
    """Tell whether a node has not even what its operator wants at least; domains do not count."""
    node = place.node
    handled = node.op_type in place.known.operators or node.op_type == "Constant"
    inputs, outputs = least_ends("", node.op_type, place.opset) if handled else (0, 1)
    given = len(node.input) >= inputs and all(node.input[:inputs])
    low, names = INPUT_FROM.get(node.op_type, (0, ()))
    if names and place.opset < low and names[0] not in place.attributes and len(node.input) < 2:
        given = node.op_type == "Squeeze"  # which alone may do without
    return not given or len(node.output) < max(1, outputs) or not node.output[0]


def _know(graph: LayerGraph, layer: Layer, output: str) -> None:
    """Give an inner value kind and sizes: those of what it scales, or those of the node's output."""
    if layer.output == output or layer.output in graph.sizes:
        return
    like = layer.inputs[0] if layer.op == "ScalarMad" else output
    graph.kinds[layer.output] = graph.kinds.get(like, "")
    if like in graph.sizes:
        graph.sizes[layer.output] = graph.sizes[like]


def _named(size: Size) -> Size:
    return None if isinstance(size, str) and size.startswith(GENERATED) else size


def _constant(numbers: np.ndarray | None, kind: str, sizes: tuple[int, ...], known: Facts) -> Constant:
    small = numbers is not None and numbers.size <= known["tracked_elements"]
    return Constant(kind, sizes, tuple(numbers.reshape(-1).tolist()) if small and numbers is not None else None)


def _add_constant(graph: LayerGraph, place: Place, known: Facts) -> None:
    name, numbers = place.node.output[0], constant_value(place.node)
    kind = graph.kinds.get(name) or ("float" if numbers is None or numbers.dtype.kind == "f" else "int")
    sizes = numbers.shape if numbers is not None else tuple(s if isinstance(s, int) else 0 for s in _sizes(graph, name))
    graph.kinds[name] = kind
    graph.hold(name, _constant(numbers, kind, tuple(sizes), known))


def _sizes(graph: LayerGraph, name: str) -> tuple[Size, ...]:
    return graph.sizes.get(name, ())


def _layer(op: str, place: Place, inputs: list[str] | None = None, **literals: Any) -> Layer:
    node = place.node
    given = list(node.input) if inputs is None else inputs
    return Layer(op, given, list(node.output) or [label_of(node)], literals, (label_of(node),))


def _layers(graph: LayerGraph, place: Place) -> Iterator[Layer]:
    """Yield the layers of one node; inner values are named after its output."""
    node, attributes = place.node, place.attributes
    op = node.op_type
    if op == "Gemm":
        yield from _gemm(place)
    elif op in CHAINS:
        yield from _chain(place, CHAINS[op])
    elif op == "Mean":
        yield from _mean(place)
    elif op == "Gelu":
        yield _layer("GeluFast" if attributes.get("approximate") == "tanh" else "Gelu", place)
    elif op.startswith("Reduce"):
        literals = {name: int(attributes.get(name, default)) for name, default in _REDUCTION.items()}
        input_from = REDUCTIONS.get(op, REDUCTION_INPUTS_FROM)
        yield _layer(op, place, _with_attributes(graph, place, input_from, ("axes",)), **literals)
    elif op in INPUT_FROM and place.opset < INPUT_FROM[op][0]:
        yield _layer(op, place, _with_attributes(graph, place, *INPUT_FROM[op]))
    elif op == "Cast":
        yield _layer(op, place, to=place.known.kind(type_name(attributes.get("to", 0))))
    elif op == "Mod":
        yield _layer(op, place, fmod=int(attributes.get("fmod", 0)))
    elif op == "Transpose":
        perm = attributes.get("perm")
        yield _layer(op, place, perm=None if perm is None else tuple(perm))
    else:
        name = place.known["imports"].get(op, op)
        yield _layer(name, place, **{key: _plain(value) for key, value in attributes.items()})


_REDUCTION = {"keepdims": 1, "noop_with_empty_axes": 0}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _with_attributes(graph: LayerGraph, place: Place, input_from: int, names: tuple[str, ...]) -> list[str]:
    """Return the inputs of an operator whose integers were attributes below an opset: each a constant of its own."""
    inputs = list(place.node.input)
    if place.opset >= input_from:
        return inputs
    for at, name in enumerate(names, start=1):
        given = place.attributes.get(name)
        if given is None or len(inputs) > at:
            continue
        numbers = tuple(given) if isinstance(given, list) else (given,)
        made = f"{place.node.output[0]}:{name}"
        graph.kinds[made], graph.sizes[made] = "int", (len(numbers),)
        graph.hold(made, Constant("int", (len(numbers),), numbers))
        inputs.append(made)
    return inputs


def _gemm(place: Place) -> Iterator[Layer]:
    """alpha · A and beta · C are ScalarMad layers, the sum an Add of its own."""
    node, attributes = place.node, place.attributes
    (a, b, *_), out = node.input, node.output[0]
    c = place.name(2)
    turned = {name: bool(attributes.get(name, 0)) for name in ("transA", "transB")}
    for name, factor in (("a", attributes.get("alpha", 1.0)), ("c", attributes.get("beta", 1.0) if c else 1.0)):
        if factor != 1.0:
            scaled = _layer("ScalarMad", place, [a if name == "a" else c], scale=factor, bias=0.0, kind="float")
            scaled.outputs = [f"{out}:{name}"]
            a, c = (scaled.output, c) if name == "a" else (a, scaled.output)
            yield scaled
    product = _layer("MatMul2D", place, [a, b], **turned)
    if not c:
        yield product
        return
    product.outputs = [f"{out}:product"]
    yield product
    yield _layer("Add", place, [product.output, c])


def _chain(place: Place, op: str) -> Iterator[Layer]:
    """Two at a time; one input alone is joined with itself, which doubles a Sum."""
    joined, *rest = place.node.input
    for at, name in enumerate(rest[:-1]):
        layer = _layer(op, place, [joined, name])
        layer.outputs = [joined := f"{place.node.output[0]}:{at}"]
        yield layer
    yield _layer(op, place, [rest[-1] if rest else joined, joined])


def _mean(place: Place) -> Iterator[Layer]:
    joined, *rest = place.node.input
    for at, name in enumerate(rest):
        layer = _layer("Add", place, [joined, name])
        layer.outputs = [joined := f"{place.node.output[0]}:{at}"]
        yield layer
    yield _layer("ScalarMad", place, [joined], scale=1.0 / len(place.node.input), bias=0.0, kind="float")
