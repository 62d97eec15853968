"""Einsum of two operands as MatMul, with the Transposes and Reshapes it takes.

Labels are of four kinds: in both operands and the output (batch), in both only (summed), in one and the output. Where
a kind has several labels they are reshaped to one, which needs sizes that are numbers.
"""

from __future__ import annotations

from typing import Any

from converters.facts import Facts
from converters.fusions.folding import shape_constant
from converters.fusions.layers import Layer, LayerGraph, Size

Groups = list[list[str]]


def einsum(graph: LayerGraph, known: Facts) -> None:
    """Rewrite each Einsum that is a product of two."""
    row = next(fusion for fusion in known["fusions"] if fusion["pass"] == "einsum")
    for layer in graph.find("Einsum"):
        if made := _product(graph, layer):
            graph.note(row, "MatMul", layer.output, layer.nodes)
            at = graph.layers.index(layer)
            graph.remove([layer])
            rest = graph.layers[at:]
            del graph.layers[at:]
            for one in made:
                graph.add(one)
            graph.layers += rest


def _product(graph: LayerGraph, layer: Layer) -> list[Layer]:
    terms = _terms(graph, layer)
    if terms is None:
        return []
    a, b, out = terms
    shared = set(a) & set(b)
    if set(a) - shared - set(out) or set(b) - shared - set(out):
        return []  # a label in one operand alone: no product
    batch = [label for label in out if label in shared]
    summed = [label for label in a if label in shared and label not in out]
    rows = [label for label in out if label in a and label not in b]
    columns = [label for label in out if label in b and label not in a]
    lead = [batch] if batch else []
    sizes = _sizes(graph, layer, terms)
    made: list[Layer] = []
    operands = []
    for name, term, groups in (
        (layer.inputs[0], a, [*lead, rows, summed]),
        (layer.inputs[1], b, [*lead, summed, columns]),
    ):
        brought = _brought(graph, layer, name, term, groups, sizes, made)
        if brought is None:
            return []
        operands.append(brought)
    groups = [*lead, rows, columns]
    return _taken_back(graph, layer, operands, out, groups, sizes, made)


def _terms(graph: LayerGraph, layer: Layer) -> tuple[list[str], list[str], list[str]] | None:
    """Return the labels of both operands and the output; implicit outputs come in the order of their appearance."""
    equation = str(layer.literals.get("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(layer.inputs) != 2 or len(terms) != 2 or "." in equation:
        return None
    if any(graph.rank(name) != len(term) for name, term in zip(layer.inputs, terms, strict=True)):
        return None
    if any(len(set(term)) < len(term) for term in terms):
        return None
    once = [label for label in dict.fromkeys("".join(terms)) if "".join(terms).count(label) == 1]
    return list(terms[0]), list(terms[1]), list(right) if arrow else once


def _sizes(graph: LayerGraph, layer: Layer, terms: Any) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for name, term in zip(layer.inputs, terms[:2], strict=True):
        found |= {label: size for label, size in zip(term, graph.sizes[name], strict=True) if size is not None}
    return found


def _brought(
    graph: LayerGraph, layer: Layer, name: str, term: list[str], groups: Groups, sizes: dict[str, Size], made: list
) -> str | None:
    """Add what brings an operand into the order and number of axes that MatMul takes; None where it cannot be done."""
    order = [label for group in groups for label in group]
    base = f"{layer.output}:{name}"
    if order != term:
        perm = tuple(term.index(label) for label in order)
        made.append(Layer("Transpose", [name], [f"{base}:turned"], {"perm": perm}, layer.nodes))
        name = made[-1].output
        _know(graph, name, [sizes.get(label) for label in order])
    if all(len(group) == 1 for group in groups):
        return name
    shape = [_joint(sizes, group) for group in groups]
    if None in shape:
        return None
    constant, value = shape_constant(base, [size for size in shape if size is not None])
    graph.hold(constant, value)
    made.append(Layer("Reshape", [name, constant], [f"{base}:shaped"], {}, layer.nodes))
    _know(graph, made[-1].output, list(shape))
    return made[-1].output


def _taken_back(
    graph: LayerGraph,
    layer: Layer,
    operands: list[str],
    out: list[str],
    groups: Groups,
    sizes: dict[str, Size],
    made: list[Layer],
) -> list[Layer]:
    order = [label for group in groups for label in group]
    steps: list[tuple[str, list[str], dict[str, Any]]] = [("MatMul", operands, {})]
    if any(len(group) != 1 for group in groups):
        shape = [sizes.get(label) for label in order]
        if not all(isinstance(size, int) for size in shape):
            return []
        constant, value = shape_constant(layer.output, [size for size in shape if isinstance(size, int)])
        graph.hold(constant, value)
        steps.append(("Reshape", ["", constant], {}))
    if order != out:
        steps.append(("Transpose", [""], {"perm": tuple(order.index(label) for label in out)}))
    value_name = ""
    for at, (op, inputs, literals) in enumerate(steps):
        given = [name or value_name for name in inputs]
        value_name = layer.output if at == len(steps) - 1 else f"{layer.output}:{at}"
        made.append(Layer(op, given, [value_name], literals, layer.nodes))
        if value_name != layer.output:
            shaped = [_joint(sizes, group) for group in groups] if op == "MatMul" else [sizes.get(one) for one in order]
            _know(graph, value_name, shaped)
    return made


def _joint(sizes: dict[str, Size], group: list[str]) -> int | None:
    product = 1
    for label in group:
        size = sizes.get(label)
        if not isinstance(size, int):
            return None
        product *= size
    return product


def _know(graph: LayerGraph, name: str, sizes: list[Any]) -> None:
    graph.kinds[name], graph.sizes[name] = "float", tuple(sizes)
