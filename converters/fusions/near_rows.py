"""Rows of two layers that nearly become one: a Relu behind a convolution, a product and what is added to it."""

from __future__ import annotations

from collections.abc import Iterator

from converters.facts import Facts
from converters.fusions.layers import Layer, LayerGraph
from converters.fusions.near import Miss
from converters.fusions.rows import row_named
from converters.fusions.spellings import Reason


def missed_rows(graph: LayerGraph, known: Facts) -> Iterator[Miss]:
    """Yield what the optimiser's own result still holds apart.

    Args:
        graph: after the optimiser.
        known: the facts of a version.
    """
    row = row_named(known, "FuseRelu")
    for relu in graph.find("Relu"):
        before = graph.maker(relu.inputs[0])
        if before is not None and before.op in row["behind"] and not before.literals.get("activation"):
            yield _miss(row, before.op, [before, relu], _read_elsewhere(graph, before, relu))
    row = row_named(known, "DenseFromMatMul")
    for product in graph.find("MatMul", "MatMul2D"):
        weights = graph.constants.get(product.inputs[1])
        for added in graph.readers(product.output):
            bias = [name for name in added.inputs if name != product.output and name in graph.constants]
            if added.op == "Add" and bias and weights is not None and len(weights.sizes) == 2:
                yield _miss(row, "Dense", [product, added], _no_dense(graph, product, added, bias[0]))


def _miss(row: dict, layer: str, layers: list[Layer], reason: Reason) -> Miss:
    nodes = tuple(dict.fromkeys(node for one in layers for node in one.nodes))
    return Miss(row["name"], layer, nodes, (reason,), row["numbers"])


def _read_elsewhere(graph: LayerGraph, layer: Layer, reader: Layer) -> Reason:
    others = [one for one in graph.readers(layer.output) if one is not reader]
    where = f"{others[0].op} {others[0].nodes[0]!r}" if others else "an output of the model"
    return Reason(f"{layer.op} is also read by {where}", "let nothing else read it", layer.nodes[0])


def _no_dense(graph: LayerGraph, product: Layer, added: Layer, bias: str) -> Reason:
    if not graph.used_once(product.output):
        return _read_elsewhere(graph, product, added)
    if product.literals.get("transA"):
        return Reason("the left side is transposed", "transpose it in front of the product", product.nodes[0])
    sizes = list(graph.constants[bias].sizes)
    return Reason(f"what is added has sizes {sizes}, wanted a vector", "add a vector of the last size", added.nodes[0])
