"""Patterns of layers, as text in the facts: `y = Sub(x, 1.0); Mul(y, Sigmoid(y))`.

Calls are layers, names are inputs (or what an assignment before made), numbers are constants: `2.0` a float, `-1` an
int. Keywords are literals. Every number is a node of its own, and as in Sentis' matcher one value of the graph never
stands for two nodes of a pattern.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.fusions.layers import Layer, LayerGraph


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a pattern.

    Attributes:
        op: a layer; empty for inputs and constants.
        name: of an input; empty otherwise.
        number: of a constant; None otherwise.
        inputs: of a layer.
        literals: that a layer must have.
    """

    op: str = ""
    name: str = ""
    number: int | float | None = None
    inputs: tuple[Node, ...] = ()
    literals: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.op:
            return self.name or str(self.number)
        words = [*map(str, self.inputs), *(f"{key}={value!r}" for key, value in self.literals.items())]
        return f"{self.op}({', '.join(words)})"

    def walk(self) -> Iterator[Node]:
        """Yield every node once, in the order of the text."""
        seen: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting.extend(reversed(node.inputs))


@functools.cache
def parsed(text: str) -> Node:
    """Return the root of a pattern.

    Raises:
        ValueError: a text that is no pattern.
    """
    bound: dict[str, Node] = {}
    *assignments, last = ast.parse(text.replace("; ", "\n")).body
    for one in assignments:
        if not isinstance(one, ast.Assign) or not isinstance(one.targets[0], ast.Name):
            raise ValueError(f"pattern {text!r}: wanted name = Layer(…)")
        bound[one.targets[0].id] = _node(one.value, bound)
    if not isinstance(last, ast.Expr):
        raise ValueError(f"pattern {text!r}: ends in no expression")
    return _node(last.value, bound)


def _node(tree: ast.expr, bound: dict[str, Node]) -> Node:
    if isinstance(tree, ast.Name):
        return bound.setdefault(tree.id, Node(name=tree.id))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        literals = {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg}
        return Node(tree.func.id, inputs=tuple(_node(one, bound) for one in tree.args), literals=literals)
    number = ast.literal_eval(tree)
    if isinstance(number, int | float):
        return Node(number=number)
    raise ValueError(f"pattern: {ast.unparse(tree)} is neither a layer, a name nor a number")


@dataclass
class Match:
    """Where a pattern lies in a graph.

    Attributes:
        root: the layer whose output the new one puts out.
        values: pattern node to value name.
        layers: the layers that go into the new one, the root among them.
    """

    root: Layer
    values: dict[Node, str]
    layers: list[Layer]

    def value(self, name: str) -> str:
        """Return what an input of the pattern stands for."""
        return next(value for node, value in self.values.items() if node.name == name)


def matches(root: Node, graph: LayerGraph) -> list[Match]:
    """Return where a pattern lies, in the graph's order, each layer in one match at most.

    What lies inside must be read by nothing outside and be no output; operands stand in the pattern's own order.
    """
    found, taken = [], set()
    for layer in graph.layers:
        if layer.op != root.op:
            continue
        values: dict[Node, str] = {}
        if not _fits(root, layer.output, graph, values):
            continue
        inner = _layers_of(values, graph)
        if is_contained(inner, layer, graph) and not taken & set(map(id, inner)):
            taken |= set(map(id, inner))
            found.append(Match(layer, values, inner))
    return found


def _layers_of(values: dict[Node, str], graph: LayerGraph) -> list[Layer]:
    made = {id(layer): layer for node, name in values.items() if node.op and (layer := graph.maker(name))}
    return list(made.values())


def is_contained(inner: list[Layer], root: Layer, graph: LayerGraph) -> bool:
    """Tell whether all but the root is read inside only."""
    ids = set(map(id, inner))
    for layer in inner:
        if layer is root:
            continue
        if layer.output in graph.outputs or any(id(reader) not in ids for reader in graph.readers(layer.output)):
            return False
    return True


def _fits(node: Node, value: str, graph: LayerGraph, values: dict[Node, str]) -> bool:
    if node in values:
        return values[node] == value
    if not value or value in values.values():
        return False
    if node.name:
        values[node] = value
        return True
    if node.number is not None:
        if not is_number(node.number, value, graph):
            return False
        values[node] = value
        return True
    layer = graph.maker(value)
    if layer is None or layer.op != node.op or len(layer.inputs) != len(node.inputs) or value != layer.output:
        return False
    if any(layer.literals.get(key) != wanted for key, wanted in node.literals.items()):
        return False
    before = dict(values)
    values[node] = value
    if all(_fits(one, name, graph, values) for one, name in zip(node.inputs, layer.inputs, strict=True)):
        return True
    values.clear()
    values.update(before)
    return False


def is_number(number: int | float, value: str, graph: LayerGraph) -> bool:
    """Tell whether a value is a tracked constant of one element of this kind and number; its rank does not count."""
    constant = graph.static(value)
    if constant is None or constant.numbers is None or len(constant.numbers) != 1:
        return False
    kind = "int" if isinstance(number, int) else "float"
    return constant.kind == kind and np.float32(constant.numbers[0]) == np.float32(number)
