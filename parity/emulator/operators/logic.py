"""Comparisons give int32 0 and 1; And, Or and Xor work on all bits."""

from __future__ import annotations

from typing import Any

from parity.emulator.graph import Graph
from parity.emulator.node import Node
from parity.emulator.operators import form

BITS = {"And": "BitwiseAnd", "Or": "BitwiseOr", "Xor": "BitwiseXor"}


@form("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", how="identical", says="as ONNX, as int32 0 and 1")
def comparison(n: Node) -> None:
    n.same_kinds()
    n.graph.cast(n.graph.op(n.op, *n.inputs, kind="bool"), "int", n.y())


@form("NotEqual", says="x ≠ y", where="optimiser")
def not_equal(n: Node) -> None:
    equal = n.graph.op("Equal", *n.inputs, kind="bool")
    n.graph.cast(n.graph.op("Not", equal), "int", n.y())


def _beyond(g: Graph, x: str) -> str:
    """Return where a number is neither 0 nor 1."""
    return g.op("Not", g.op("Or", g.equal(x, 0), g.equal(x, 1), kind="bool"))


@form("And", "Or", "Xor", says="of all bits of int32: another truth where an operand holds more than 0 and 1")
def bits(n: Node) -> None:
    n.put(BITS[n.op], *n.inputs)
    beyond = [n.graph.any(_beyond(n.graph, name)) for name in dict.fromkeys(n.inputs)]
    n.deviates_if(n.graph.either(*beyond), f"{n.op.upper()}.NONBOOL")


@form("Not", how="identical", says="x = 0 ? 1 : 0")
def not_(n: Node) -> None:
    n.graph.cast(n.graph.equal(n.x(), 0), "int", n.y())


@form("BitwiseAnd", "BitwiseOr", "BitwiseXor", how="identical", says="as ONNX, on int32")
def bitwise(n: Node) -> None:
    n.same()


@form("BitwiseNot", says="inverts all 32 bits, of unsigned numbers too")
def bitwise_not(n: Node) -> None:
    n.same()


@form("IsNaN", how="identical", says="as ONNX, as int32 0 and 1")
def is_nan(n: Node) -> None:
    n.floats()
    n.graph.cast(n.graph.op("IsNaN", n.x(), kind="bool"), "int", n.y())


@form("IsInf", how="identical", says="as ONNX, as int32 0 and 1")
def is_inf(n: Node) -> None:
    n.floats()
    wanted: dict[str, Any] = {name: int(n.attributes.get(name, 1)) for name in ("detect_negative", "detect_positive")}
    n.graph.cast(n.graph.op("IsInf", n.x(), kind="bool", **wanted), "int", n.y())


@form("Where", how="identical", says="cond ≠ 0 ? x : y")
def where(n: Node) -> None:
    kind = n.same_kinds(1, 2)
    n.put("Where", n.graph.truth(n.x()), n.x(1), n.x(2), kind=kind)


@form("Atan2", says="atan2(y, x): quadrant edges at 0 differ from the chain", where="optimiser")
def atan2(n: Node) -> None:
    import numpy as np

    x, y = n.inputs  # in the order of the pattern's text
    n.numpy(lambda a, b: [np.arctan2(b, a)], [x, y])
    n.deviates_if(
        n.graph.equal(x, 0.0), "FUSION.ATAN2", "quadrant edges at 0 differ from the chain of ONNX", "optimiser"
    )
