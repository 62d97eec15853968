"""Functions of one number."""

from __future__ import annotations

from parity.emulator.graph import Graph
from parity.emulator.node import Node
from parity.emulator.operators import form

LOSES_DIGITS = -10.0  # from here on Asinh's relative error shows
GONE = -100.0


@form("Abs", "Neg", how="identical", says="as ONNX, on int32 too")
def signed(n: Node) -> None:
    n.same()


@form(
    "Acos", "Asin", "Atan", "Cos", "Sin", "Tan", "Ceil", "Floor", "Exp", "Log", "Sqrt", "Reciprocal",
    how="identical", says="as ONNX",
)  # fmt: skip
def plain(n: Node) -> None:
    n.floats()
    n.same()


@form("Round", how="identical", says="half to even")
def rounded(n: Node) -> None:
    n.floats()
    n.same()


@form("Sign", says="as ONNX; NaN → 0")
def sign(n: Node) -> None:
    g, x = n.graph, n.x()
    if n.kind() == "int":
        n.same()
        return
    nan = g.op("IsNaN", x, kind="bool")
    n.put("Where", nan, g.const(0.0), g.op("Sign", x), kind="float")
    n.deviates_if(nan, "SIGN.NAN", "NaN gives 0")


def _root(g: Graph, x: str, sign_of_one: float) -> str:
    squared = g.op("Add", g.op("Mul", x, x), g.const(sign_of_one))
    return g.op("Log", g.op("Add", x, g.op("Sqrt", squared)))


@form("Asinh", says="log(v + √(v² + 1)): no digits left below about −100, −inf below −4096")
def asinh(n: Node) -> None:
    n.floats()
    g = n.graph
    n.put("Identity", _root(g, n.x(), 1.0))
    n.rounding("log(v + √(v² + 1)), which cancels for negative v")
    n.deviates_if(g.op("Less", n.x(), g.const(GONE), kind="bool"), "ASINH.NEGATIVE")


@form("Acosh", says="log(v + √(v·v − 1))")
def acosh(n: Node) -> None:
    n.floats()
    n.put("Identity", _root(n.graph, n.x(), -1.0))
    n.rounding("log(v + √(v·v − 1)), which cancels near 1")


@form("Atanh", says="0.5·log((1 + v) / (1 − v))")
def atanh(n: Node) -> None:
    n.floats()
    g, x, one = n.graph, n.x(), n.graph.const(1.0)
    quotient = g.op("Div", g.op("Add", one, x), g.op("Sub", one, x))
    n.put("Mul", g.op("Log", quotient), g.const(0.5))
    n.rounding("0.5·log((1 + v) / (1 − v)), which cancels for small v")


@form("Cosh", "Sinh", says="0.5·(exp(v) ± exp(−v))")
def hyperbolic(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    both = g.op("Add" if n.op == "Cosh" else "Sub", g.op("Exp", x), g.op("Exp", g.op("Neg", x)))
    n.put("Mul", both, g.const(0.5))
    n.rounding("0.5·(exp(v) ± exp(−v))")


@form("Rsqrt", says="1 / √v", where="optimiser")
def rsqrt(n: Node) -> None:
    n.floats()
    n.put("Reciprocal", n.graph.op("Sqrt", n.x()))
    n.rounding("1 / √v at once")
