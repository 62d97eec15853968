"""Sentis' rewrites of one layer at a time: what does nothing goes, what has a scalar constant becomes ScalarMad.

Conditions as read in the optimiser of the version whose facts are given; the operators they name are Sentis' layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from converters.facts import Facts
from converters.fusions.layers import Constant, Layer, LayerGraph

TRIVIAL = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceLogSumExp")


def simplify(graph: LayerGraph, known: Facts) -> None:
    """Replace layers by simpler ones, each kind of them in the optimiser's order."""
    row = {fusion["name"]: fusion for fusion in known["fusions"]}
    for layer in _doing_nothing(graph):
        squeezes = layer.op in TRIVIAL and not layer.literals["keepdims"] and not layer.literals["noop_with_empty_axes"]
        op, inputs = ("Squeeze", layer.inputs[:2]) if squeezes else ("Identity", layer.inputs[:1])
        graph.note(row["NoOp"], op if squeezes else "", layer.output, layer.nodes)
        graph.replace([layer], Layer(op, inputs, layer.outputs, nodes=layer.nodes))
    for layer in graph.find("BatchNormalization"):
        if all(name in graph.constants for name in layer.inputs[1:5]):
            _become(graph, layer, row["BatchNormFold"], "ScaleBias", 3)
    for layer in graph.find("Gather"):
        index = graph.static(layer.inputs[1])
        if index is not None and index.count == 1 and len(index.sizes) <= 1:
            _become(graph, layer, row["GatherSingle"], "Narrow" if index.sizes else "Select", 2)
    for layer in graph.find("Pow"):
        _power(graph, layer, row["PowConst"])
    for op in ("Add", "Sub", "Mul", "Div"):
        for layer in graph.find(op):
            _scalar(graph, layer, row["DivByConst" if op == "Div" else "ScalarMad"])


def _become(graph: LayerGraph, layer: Layer, row: dict[str, Any], op: str, inputs: int, **literals: Any) -> None:
    graph.note(row, op, layer.output, layer.nodes)
    graph.replace([layer], Layer(op, layer.inputs[:inputs], layer.outputs, literals, layer.nodes))


def _doing_nothing(graph: LayerGraph) -> Iterator[Layer]:
    for layer in graph.find("Concat"):
        if len(layer.inputs) == 1:
            yield layer
    for layer in graph.find("Transpose"):
        if (perm := layer.literals.get("perm")) is not None and list(perm) == list(range(len(perm))):
            yield layer
    for layer in graph.find("Reshape"):
        if _reshapes_nothing(graph, layer):
            yield layer
    for layer in graph.find("Expand"):
        if _expands_nothing(graph, layer):
            yield layer
    for layer in graph.find("ScalarMad"):
        if layer.literals["scale"] == 1 and layer.literals["bias"] == 0:
            yield layer
    for layer in graph.find("Tile"):
        repeats = graph.static(layer.inputs[1])
        if repeats is not None and set(repeats.numbers or ()) <= {1}:
            yield layer
    for layer in graph.find(*TRIVIAL):
        if _reduces_nothing(graph, layer):
            yield layer
    for layer in graph.find("Cast"):
        if layer.literals["to"] and graph.kinds.get(layer.inputs[0]) == layer.literals["to"]:
            yield layer
    for layer in graph.find("CastLike"):
        kinds = {graph.kinds.get(name) for name in layer.inputs}
        if len(kinds) == 1 and kinds & {"float", "int"}:
            yield layer


def _reshapes_nothing(graph: LayerGraph, layer: Layer) -> bool:
    """One size may differ: its value follows from the others."""
    before, after = graph.sizes.get(layer.inputs[0]), graph.sizes.get(layer.output)
    if before is None or after is None or len(before) != len(after):
        return False
    shape = graph.static(layer.inputs[1])
    asked = shape.numbers if shape is not None and shape.numbers is not None else (None,) * len(after)
    kept = [
        (a is not None and a == b) or (not layer.literals.get("allowzero") and wanted == 0)
        for a, b, wanted in zip(before, after, asked, strict=False)
    ]
    return kept.count(False) <= 1


def _expands_nothing(graph: LayerGraph, layer: Layer) -> bool:
    before, after = graph.sizes.get(layer.inputs[0]), graph.sizes.get(layer.output)
    if before is None or after is None or len(before) != len(after):
        return False
    shape = graph.static(layer.inputs[1])
    asked = shape.numbers if shape is not None and shape.numbers is not None else ()
    same = [a is not None and a == b for a, b in zip(before, after, strict=True)]
    return all(one or (at < len(asked) and asked[at] == 1) for at, one in enumerate(same))


def _reduces_nothing(graph: LayerGraph, layer: Layer) -> bool:
    axes = graph.static(layer.inputs[1]) if len(layer.inputs) > 1 and layer.inputs[1] else None
    given = len(layer.inputs) > 1 and layer.inputs[1] and (axes is None or axes.count)
    if not given:
        return bool(layer.literals.get("noop_with_empty_axes"))
    sizes = graph.sizes.get(layer.inputs[0])
    if axes is None or sizes is None:
        return False
    return all(-len(sizes) <= axis < len(sizes) and sizes[int(axis)] == 1 for axis in axes.numbers or ())


def _power(graph: LayerGraph, layer: Layer, row: dict[str, Any]) -> None:
    exponent = graph.static(layer.inputs[1])
    rank = graph.rank(layer.output)
    if exponent is None or exponent.count != 1 or rank is None or len(exponent.sizes) > rank:
        return
    number, base = (exponent.numbers or (0,))[0], graph.kinds.get(layer.inputs[0])
    table = row["exponents"] if exponent.kind == "float" and base == "float" else row["int_exponents"]
    if exponent.kind == "float" and base != "float":
        return
    if op := table.get(f"{number:g}"):
        _become(graph, layer, row, op, 1)


def _scalar(graph: LayerGraph, layer: Layer, row: dict[str, Any]) -> None:
    """x + c, x − c, c − x, x · c and x / c of floats are scale · x + bias; so are the first four of integers."""
    kind = graph.kinds.get(layer.output) or ""
    positions = [(0, 1)] if layer.op == "Div" else [(0, 1), (1, 0)]
    for given, at in positions:
        constant, rank = graph.static(layer.inputs[at]), graph.rank(layer.inputs[given])
        if constant is None or constant.count != 1 or rank is None or len(constant.sizes) > rank:
            continue
        if not kind or (layer.op == "Div" and kind != "float"):
            continue
        number = (constant.numbers or (0,))[0]
        scale, bias = _scale_and_bias(layer.op, number, turned=given == 1)
        literals = {"kind": kind, "scale": scale, "bias": bias}
        graph.note(row, "ScalarMad", layer.output, layer.nodes)
        graph.replace([layer], Layer("ScalarMad", [layer.inputs[given]], layer.outputs, literals, layer.nodes))
        return


def _scale_and_bias(op: str, number: float, *, turned: bool) -> tuple[float, float]:
    if op == "Add":
        return 1, number
    if op == "Sub":
        return (-1, number) if turned else (1, -number)
    if op == "Mul":
        return number, 0
    return (1 / number if number else float("inf")), 0


def drop_no_ops(graph: LayerGraph, known: Facts) -> None:
    """Take out Identity layers; one that only hands an input to an output stays."""
    del known
    for layer in list(graph.find("Identity")):
        if layer.output in graph.outputs and layer.inputs[0] in graph.inputs:
            continue
        graph.drop(layer, layer.inputs[0])


def drop_unused(graph: LayerGraph, known: Facts) -> None:
    """Take out layers that lead to no output."""
    del known
    for layer in reversed(graph.layers[:]):
        if not any(name and (graph.readers(name) or name in graph.outputs) for name in layer.outputs):
            graph.remove([layer])


def shape_constant(name: str, sizes: list[int]) -> tuple[str, Constant]:
    """Return the name and value of a constant that a rewrite makes for a layer."""
    return f"{name}:shape", Constant("int", (len(sizes),), tuple(sizes))
