"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws, Unknown

MOST_OPERANDS = 8


@form("MatMul", how="identical", says="numpy's rules, float32 sums")
def matmul(n: Node) -> None:
    n.floats(0, 1)
    if "MATMUL.CONST_RANK3_ADD" in n.found:
        raise Unknown(f"MatMul {n.label!r}: suspected to become a Dense that takes its weight as rank 2")
    n.same()


@form("Gemm", says="(α·A)·B + β·C: α is applied to A first", how="identical")
def gemm(n: Node) -> None:
    n.floats(0, 1, 2)
    g, given = n.graph, n.attributes
    a, b, c = n.x(), n.x(1), n.x(2)
    if (alpha := given.get("alpha", 1.0)) != 1.0:
        a = g.op("Mul", a, g.const(alpha))
    if c and (beta := given.get("beta", 1.0)) != 1.0:
        c = g.op("Mul", c, g.const(beta))
    turned: dict[str, Any] = {name: int(bool(given.get(name, 0))) for name in ("transA", "transB")}
    if not c:
        n.put("Gemm", a, b, **turned)
        return
    n.put("Add", g.op("Gemm", a, b, **turned), c)


@form("Einsum", says="without -> the labels of the output come in the order of first appearance")
def einsum(n: Node) -> None:
    n.floats(*range(len(n.inputs)))
    equation = "".join(str(n.attributes["equation"]).split())
    if len(n.inputs) > MOST_OPERANDS:
        raise Throws(f"Einsum {n.label!r}: {len(n.inputs)} operands, at most {MOST_OPERANDS}")
    if "->" not in equation:
        equation += "->" + implicit(equation)
    if not all(equation.split("->")[0].split(",")):  # ONNX Runtime has no operands of rank 0
        n.numpy(lambda *operands: [np.einsum(equation, *operands)], n.inputs)
        return
    n.put("Einsum", *n.inputs, equation=equation)


def implicit(equation: str) -> str:
    """Return the output's labels of an equation without them: those that appear once, in their order."""
    labels = equation.replace("...", ".").replace(",", "")
    once = "".join(label for label in labels if label != "." and labels.count(label) == 1)
    return ("..." if "." in labels else "") + once
