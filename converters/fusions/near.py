"""What the optimiser nearly fuses, and why it does not: the same patterns, looked for with less strictness.

A pattern is tried in every spelling the facts list (`Reciprocal` for `Div(1, ·)`, `x · x` for `Pow(x, 2)`), with its
operands in either order, through layers that do nothing, with constants that are nearly right. What had to be
forgiven is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from converters.facts import Facts
from converters.fusions.importing import imported
from converters.fusions.layers import Layer, LayerGraph
from converters.fusions.patterns import Node, is_contained, is_number, matches, parsed
from converters.fusions.spellings import Reason, variants

if TYPE_CHECKING:
    import onnx

COMMUTATIVE = {"Add", "Mul"}
PASSED_THROUGH = {"Identity", "Cast"}  # Dropout is an Identity
NEARLY = 0.01  # constants within this share of the pattern's


@dataclass(frozen=True)
class Miss:
    """A place that is nearly a pattern.

    Attributes:
        fusion: the row of the facts.
        layer: what it would become.
        nodes: the ONNX nodes.
        reasons: all of them must be mended.
        numbers: what would change in the numbers if it were fused.
    """

    fusion: str
    layer: str
    nodes: tuple[str, ...]
    reasons: tuple[Reason, ...]
    numbers: str


def misses(model: onnx.ModelProto, known: Facts) -> list[Miss]:
    """Return the places that are nearly a pattern, each once, in the graph's order.

    Args:
        model: one whose operators are all handled.
        known: the facts of a version.
    """
    graph, _ = imported(model, known)
    found: list[tuple[int, Miss]] = []
    rows = sorted((row for row in known["fusions"] if "match" in row), key=lambda row: -size_of(row))
    taken: dict[int, int] = {}  # a layer that a pattern takes is free for a larger one
    for row in reversed(rows):
        for match in matches(parsed(row["match"]), graph):
            taken |= dict.fromkeys(map(id, match.layers), size_of(row))
    at = {id(layer): index for index, layer in enumerate(graph.layers)}
    spellings = tuple((one["form"], one["found"], one["why"], one["mend"]) for one in known["spellings"])
    for row in rows:
        size, spelled = size_of(row), variants(row["match"], spellings)
        roots = {root.op for root, _ in spelled}
        for layer in graph.layers:
            if layer.op not in roots or taken.get(id(layer), 0) >= size:
                continue
            inner, reasons = _nearest(spelled, layer, graph)
            if inner and all(taken.get(id(one), 0) < size for one in inner):
                taken |= dict.fromkeys(map(id, inner), size)
                found.append((at[id(layer)], _miss(row, sorted(inner, key=lambda one: at[id(one)]), reasons)))
    return [miss for _, miss in sorted(found, key=lambda pair: pair[0])]


def _miss(row: dict[str, Any], inner: list[Layer], reasons: tuple[Reason, ...]) -> Miss:
    nodes = tuple(dict.fromkeys(node for layer in inner for node in layer.nodes))
    return Miss(row["name"], row["becomes"], nodes, reasons, row["numbers"])


def size_of(row: dict[str, Any]) -> int:
    """Return how many layers a fusion's pattern has."""
    return sum(bool(node.op) for node in parsed(row["match"]).walk())


def _nearest(
    spelled: list[tuple[Node, tuple[Reason, ...]]], layer: Layer, graph: LayerGraph
) -> tuple[list[Layer], tuple[Reason, ...]]:
    """Return the layers and reasons of the spelling that needs the fewest; none where none fits."""
    best: tuple[list[Layer], tuple[Reason, ...]] = ([], ())
    for root, why in spelled:
        if root.op != layer.op:
            continue
        for state in _loosely(root, layer.output, graph, _State({}, why, ())):
            inner = list({id(one): one for one in state.layers}.values())
            reasons = tuple(dict.fromkeys((*state.reasons, *_outside(inner, layer, graph))))
            if reasons and (not best[0] or len(reasons) < len(best[1])):
                best = inner, reasons
    return best


def _outside(inner: list[Layer], root: Layer, graph: LayerGraph) -> Iterator[Reason]:
    if is_contained(inner, root, graph):
        return
    ids = set(map(id, inner))
    for layer in inner:
        if layer is root:
            continue
        readers = [one for one in graph.readers(layer.output) if id(one) not in ids]
        if readers or layer.output in graph.outputs:
            where = f"{readers[0].op} {readers[0].nodes[0]!r}" if readers else "an output of the model"
            yield Reason(f"{layer.op} is also read by {where}", "let nothing outside read it", layer.nodes[0])


@dataclass(frozen=True)
class _State:
    values: dict[Node, str]
    reasons: tuple[Reason, ...]
    layers: tuple[Layer, ...]

    def bound(self, node: Node, value: str, *reasons: Reason) -> _State:
        return replace(self, values=self.values | {node: value}, reasons=(*self.reasons, *reasons))


def _loosely(node: Node, value: str, graph: LayerGraph, state: _State) -> Iterator[_State]:
    """Yield every way in which a pattern node can stand for a value, with what must be forgiven."""
    if not value:
        return
    if node in state.values:
        if state.values[node] == value:
            yield state
        return
    shared = [one for one, held in state.values.items() if held == value]
    if node.name:
        if not shared:
            yield state.bound(node, value)
    elif node.number is not None:
        yield from _constant(node, value, graph, state, bool(shared))
    elif not shared:
        yield from _layer(node, value, graph, state)


def _constant(node: Node, value: str, graph: LayerGraph, state: _State, shared: bool) -> Iterator[_State]:
    assert node.number is not None
    if is_number(node.number, value, graph):
        why = f"the constant {node.number:g} stands twice in the pattern and once in the graph ({value!r})"
        reason = Reason(why, "give each of the two a constant of its own")
        yield state.bound(node, value, *([reason] if shared else []))
        return
    held = graph.static(value)
    if held is None or held.numbers is None or len(held.numbers) != 1:
        return
    found, wanted_kind = held.numbers[0], "int" if isinstance(node.number, int) else "float"
    if held.kind != wanted_kind and found == node.number:
        reason = Reason(
            f"the constant {value!r} is of kind {held.kind}, wanted {wanted_kind}", f"write it as {wanted_kind}"
        )
        yield state.bound(node, value, reason)
    elif abs(found - node.number) <= NEARLY * abs(node.number):
        exact = f"{node.number!r} as float32" if isinstance(node.number, float) else str(node.number)
        yield state.bound(node, value, Reason(f"the constant {value!r} is {found!r}, wanted {exact}", f"write {exact}"))
    elif isinstance(node.number, int) and node.number == -1 and _is_last_axis(found, value, graph):
        yield state.bound(node, value, Reason(f"the axis is {found:g}, wanted -1", "write the last axis as -1"))


def _is_last_axis(found: float, value: str, graph: LayerGraph) -> bool:
    ranks = {graph.rank(reader.inputs[0]) for reader in graph.readers(value) if reader.op.startswith("Reduce")}
    return found >= 0 and ranks == {int(found) + 1}


def _layer(node: Node, value: str, graph: LayerGraph, state: _State) -> Iterator[_State]:
    layer = graph.maker(value)
    if layer is None:
        return
    if layer.op in PASSED_THROUGH and node.op not in PASSED_THROUGH:
        reason = Reason(f"{layer.op} lies in between", "take it out: it goes only after the patterns", layer.nodes[0])
        passed = replace(state, reasons=(*state.reasons, reason), layers=(*state.layers, layer))
        yield from _loosely(node, layer.inputs[0], graph, passed)
        return
    if layer.op != node.op or len(layer.inputs) != len(node.inputs):
        return
    reasons = [
        Reason(f"{key} of {layer.op} is {layer.literals.get(key)!r}, wanted {wanted!r}", "", layer.nodes[0])
        for key, wanted in node.literals.items()
        if layer.literals.get(key) != wanted
    ]
    if any("keepdims" not in reason.why for reason in reasons):
        return
    here = replace(state.bound(node, value, *reasons), layers=(*state.layers, layer))
    yield from _operands(node, layer.inputs, graph, here)
    if layer.op in COMMUTATIVE and layer.inputs[0] != layer.inputs[1]:
        why = f"the operands of {layer.op} stand the other way round"
        swapped = Reason(why, f"write {_shown(node)}", layer.nodes[0])
        yield from _operands(node, layer.inputs[::-1], graph, replace(here, reasons=(*here.reasons, swapped)))


def _shown(node: Node) -> str:
    return f"{node.op}({', '.join(one.op + '(·)' if one.op else str(one) for one in node.inputs)})"


def _operands(node: Node, names: list[str], graph: LayerGraph, state: _State) -> Iterator[_State]:
    states = [state]
    for one, name in zip(node.inputs, names, strict=True):
        states = [after for before in states for after in _loosely(one, name, graph, before)]
    yield from states
