"""Sentis' rewrites of layers in a row: Dense, linear layers with constants, Relu, Transposes, duplicates."""

from __future__ import annotations

from typing import Any

from converters.facts import Facts
from converters.fusions.folding import RANDOM
from converters.fusions.layers import Constant, Layer, LayerGraph

WEIGHTED = ("Dense", "Conv", "ScaleBias", "ScalarMad")  # linear in their first input only
EITHER = ("Add", "Sub", "Mul", "Div")  # linear in whichever input is no constant


def row_named(known: Facts, name: str) -> dict[str, Any]:
    """Return a fusion's row of the facts."""
    return next(fusion for fusion in known["fusions"] if fusion["name"] == name)


def merge_transposes(graph: LayerGraph, known: Facts) -> None:
    """Join a Transpose with those it reads; they stay where others read them."""
    row = row_named(known, "TransposeMerge")
    for layer in reversed(list(graph.find("Transpose"))):
        chain = [layer]
        while (before := graph.maker(chain[-1].inputs[0])) is not None and before.op == "Transpose":
            chain.append(before)
        perms = [one.literals["perm"] for one in chain]
        if len(chain) == 1 or None in perms or graph.maker(layer.output) is not layer:
            continue
        joined = perms[-1]
        for perm in reversed(perms[:-1]):
            joined = tuple(joined[at] for at in perm)
        nodes = tuple(node for one in reversed(chain) for node in one.nodes)
        made = Layer("Transpose", chain[-1].inputs[:1], layer.outputs, {"perm": joined}, nodes)
        graph.note(row, "Transpose", layer.output, nodes)
        graph.replace([layer], made)
        for one in chain[1:]:
            if not graph.readers(one.output) and one.output not in graph.outputs:
                graph.remove([one])


def dense(graph: LayerGraph, known: Facts) -> None:
    """Join a product with constant weights and the Add behind it."""
    for product in graph.find("MatMul", "MatMul2D"):
        weights = graph.constants.get(product.inputs[1])
        if product.literals.get("transA") or weights is None or not graph.used_once(product.output):
            continue
        (added,) = graph.readers(product.output)
        if added.op not in ("Add", "ScalarMad"):
            continue
        bias = "" if added.op == "ScalarMad" else _other(added, product.output)
        if len(weights.sizes) > 2 and product.op == "MatMul" and added.op == "Add":
            name, fits = "DenseBatched", _batched(graph, product.inputs[0], weights, bias)
        else:
            name, fits = "DenseFromMatMul", _is_bias(graph, product.inputs[0], added, bias)
        if fits:
            row, nodes = row_named(known, name), product.nodes + added.nodes
            op = row["becomes"]
            graph.note(row, op, added.output, nodes)
            inputs = [product.inputs[0], product.inputs[1], bias or f"{added.output}:bias"]
            if not bias:
                graph.hold(inputs[2], Constant("float", weights.sizes[-1:]))
            graph.replace([product, added], Layer(op, inputs, added.outputs, nodes=nodes))


def _other(layer: Layer, name: str) -> str:
    return layer.inputs[1] if layer.inputs[0] == name else layer.inputs[0]


def _batched(graph: LayerGraph, x: str, weights: Constant, bias: str) -> bool:
    shapes = [graph.sizes.get(x), graph.sizes.get(bias)]
    leading = weights.sizes[:-2]
    return all(one is not None and len(one) == len(weights.sizes) and one[:-2] == leading for one in shapes)


def _is_bias(graph: LayerGraph, x: str, added: Layer, bias: str) -> bool:
    if added.op == "ScalarMad":
        return added.literals["kind"] == "float" and added.literals["scale"] == 1
    sizes = graph.sizes.get(bias)
    if sizes is None or not sizes or not all(isinstance(size, int) for size in sizes):
        return False
    rank = graph.rank(x)
    return all(size == 1 for size in sizes[:-1]) and len(sizes) <= (2 if rank is None else rank)


def linear(graph: LayerGraph, known: Facts) -> None:
    """Join linear layers with constants in a row, from the end of the graph to its beginning."""
    row = row_named(known, "LinearFold")
    pairs = [pair.split() for pair in row["pairs"]]
    waiting = list(graph.layers)
    while waiting:
        after = waiting.pop()
        if graph.maker(after.output) is not after or (at := _open_input(graph, after)) is None:
            continue
        before = graph.maker(after.inputs[at])
        if before is None or _open_input(graph, before) is None or not graph.used_once(before.output):
            continue
        if before.literals.get("activation"):
            continue
        becomes = next((c for a, b, c in pairs if _is(graph, before, a) and _is(graph, after, b, before)), "")
        if becomes:
            waiting.append(_joined(graph, before, after, becomes, row))


def _open_input(graph: LayerGraph, layer: Layer) -> int | None:
    """Return the position of the one input that is no constant; None where the layer is not linear."""
    if layer.op not in WEIGHTED + EITHER:
        return None
    positions = [at for at, name in enumerate(layer.inputs) if name and name not in graph.constants]
    if len(positions) != 1 or (layer.op in WEIGHTED and positions[0]):
        return None
    return positions[0]


def _is(graph: LayerGraph, layer: Layer, wanted: str, before: Layer | None = None) -> bool:
    op, _, condition = wanted.partition(":")
    if layer.op != op:
        return False
    if condition in ("bias0", "scale1"):
        key, number = ("bias", 0) if condition == "bias0" else ("scale", 1)
        return layer.literals["kind"] == "float" and layer.literals[key] == number
    if condition == "rank2":
        return graph.rank(layer.output) == 2
    if condition == "channels" and before is not None:
        kernel, bias = graph.constants[before.inputs[1]], graph.constants.get(_other(layer, before.output))
        return bias is not None and _per_channel(kernel.sizes, bias.sizes)
    return True


def _per_channel(kernel: tuple[int, ...], bias: tuple[int, ...]) -> bool:
    """Tell whether a constant holds one number per output channel: all its other sizes are 1."""
    spatial = len(kernel) - 2
    if not spatial + 1 <= len(bias) <= len(kernel):
        return False
    return bias[-spatial - 1] == kernel[0] and Constant("float", bias).count == kernel[0]


def _joined(graph: LayerGraph, before: Layer, after: Layer, op: str, row: dict[str, Any]) -> Layer:
    kept = before if before.op == op else after
    literals = dict(kept.literals)
    if op == "ScalarMad":
        scale, bias = (before.literals[key] for key in ("scale", "bias"))
        literals["scale"] = after.literals["scale"] * scale
        literals["bias"] = after.literals["scale"] * bias + after.literals["bias"]
    if after.literals.get("activation"):
        literals["activation"] = after.literals["activation"]
    at = _open_input(graph, before) or 0
    position = _open_input(graph, kept) or 0
    inputs = list(kept.inputs)
    inputs[position] = before.inputs[at]
    for place, name in enumerate(inputs):
        if place != position and name in graph.constants:  # its numbers are new ones
            inputs[place] = fresh = f"{after.output}:{place}"
            sizes = graph.constants[name].sizes
            if before.op == after.op == "Dense":  # rows of the first weight, columns of the second
                sizes = (*sizes[:-1], *graph.constants[after.inputs[1]].sizes[-1:])
            graph.hold(fresh, Constant(graph.constants[name].kind, sizes))
    nodes = before.nodes + after.nodes
    graph.note(row, op, after.output, nodes)
    made = Layer(op, inputs, after.outputs, literals, nodes)
    graph.replace([before, after], made)
    return made


def activations(graph: LayerGraph, known: Facts) -> None:
    """Let a layer apply the Relu behind it."""
    row = row_named(known, "FuseRelu")
    for relu in reversed(list(graph.find("Relu"))):
        before = graph.maker(relu.inputs[0])
        if before is None or before.op not in row["behind"] or not graph.used_once(before.output):
            continue
        nodes = before.nodes + relu.nodes
        graph.note(row, before.op, relu.output, nodes)
        literals = before.literals | {"activation": "Relu"}
        graph.replace([before, relu], Layer(before.op, before.inputs, relu.outputs, literals, nodes))


def duplicates(graph: LayerGraph, known: Facts) -> None:
    """Keep one of layers that compute the same."""
    row = row_named(known, "Duplicate")
    seen: dict[Any, Layer] = {}
    for layer in graph.layers[:]:
        if layer.op in RANDOM:
            continue
        literals = tuple(sorted((key, repr(value)) for key, value in layer.literals.items()))
        key = (layer.op, tuple(_identity(graph, name) for name in layer.inputs), literals, len(layer.outputs))
        first = seen.setdefault(key, layer)
        if first is not layer:
            graph.note(row, "", layer.output, layer.nodes)
            for old, new in zip(layer.outputs, first.outputs, strict=True):
                graph.rename(old, new)
            graph.remove([layer])


def _identity(graph: LayerGraph, name: str) -> Any:
    """Return what tells two inputs apart: a small constant's kind, sizes and numbers, else its name."""
    constant = graph.static(name)
    if constant is None or constant.numbers is None or any(number != number for number in constant.numbers):
        return name
    return constant.kind, constant.sizes, constant.numbers
