"""Activations, written as the CPU kernels compute them (`semantics` of 2.4: strict float mode, pointwise)."""

from __future__ import annotations

import numpy as np

from parity.emulator.graph import FLT_MAX, Graph
from parity.emulator.node import Node
from parity.emulator.operators import form

SQRT_HALF = float(np.float32(np.sqrt(0.5)))
ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)  # Abramowitz and Stegun 7.1.26
CUBE, SCALE = 0.044714998453855515, 0.7978845834732056  # of GeluFast
TANH_LIMIT = 16.0


def big(graph: Graph, x: str, limit: float = FLT_MAX) -> str:
    """Return where a value is larger than a limit in size, infinities included."""
    return graph.op("Greater", graph.op("Abs", x), graph.const(limit), kind="bool")


def tanh(graph: Graph, x: str) -> str:
    """Write tanh(clamp(x, -16, 16)); the clamp drops NaN and keeps its upper bound."""
    inside = graph.op("Clip", x, graph.const(-TANH_LIMIT), graph.const(TANH_LIMIT))
    nan = graph.op("IsNaN", x, kind="bool")
    return graph.op("Tanh", graph.op("Where", nan, graph.const(TANH_LIMIT), inside, kind="float"))


def erf(graph: Graph, x: str) -> str:
    """Write the polynomial of Abramowitz and Stegun 7.1.26: the powers of t one after the other, summed."""
    size = graph.op("Abs", x)
    t = graph.op("Reciprocal", graph.op("Add", graph.op("Mul", size, graph.const(0.3275911)), graph.const(1.0)))
    power = t
    total = graph.op("Mul", power, graph.const(ERF[0]))
    for factor in ERF[1:]:
        power = graph.op("Mul", power, t)
        total = graph.op("Add", total, graph.op("Mul", power, graph.const(factor)))
    shrink = graph.op("Exp", graph.op("Neg", graph.op("Mul", size, size)))
    rest = graph.op("Sub", graph.const(1.0), graph.op("Mul", total, shrink))
    return graph.op("Mul", graph.op("Sign", x), rest)


def sigmoid(graph: Graph, x: str) -> str:
    """Write 1 / (1 + exp(-x))."""
    grown = graph.op("Exp", graph.op("Neg", x))
    return graph.op("Div", graph.const(1.0), graph.op("Add", grown, graph.const(1.0)))


@form("Relu", says="0.5·(v + |v|)")
def relu(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    n.put("Mul", g.op("Add", x, g.op("Abs", x)), g.const(0.5))
    n.deviates_if(g.op("IsInf", x, kind="bool", detect_positive=0), "RELU.INF")
    n.deviates_if(g.op("Greater", x, g.const(FLT_MAX / 2), kind="bool"), "RELU.BIG")


@form("LeakyRelu", says="a·v + b·|v| with a = ½(1 + α), b = ½(1 − α)")
def leaky_relu(n: Node) -> None:
    n.floats()
    g, x, alpha = n.graph, n.x(), n.attributes.get("alpha", 0.01)
    straight = g.op("Mul", x, g.const(0.5 * (1 + alpha)))
    n.put("Add", straight, g.op("Mul", g.op("Abs", x), g.const(0.5 * (1 - alpha))))
    n.deviates_if(g.op("IsInf", x, kind="bool"), "LEAKYRELU.INF")


@form("Tanh", says="tanh(clamp(v, −16, 16)); NaN → 1")
def tanh_layer(n: Node) -> None:
    n.floats()
    n.put("Identity", tanh(n.graph, n.x()))
    n.deviates_if(n.graph.op("IsNaN", n.x(), kind="bool"), "TANH.NAN", "NaN gives 1: the clamp to ±16 drops it")


@form("Erf", says="Abramowitz-Stegun 7.1.26, about 1.5e-7 off")
def erf_layer(n: Node) -> None:
    n.floats()
    n.put("Identity", erf(n.graph, n.x()))
    n.deviates("ERF.POLYNOMIAL", "the polynomial of Abramowitz and Stegun 7.1.26, about 1.5e-7 off")


@form("Gelu", says="(erf(v/√2) + 1)·v·0.5 with the polynomial of Erf; `tanh` as GeluFast")
def gelu(n: Node) -> None:
    if n.attributes.get("approximate") == "tanh":
        gelu_fast(n)
        return
    n.floats()
    g, x = n.graph, n.x()
    inner = g.op("Add", erf(g, g.op("Mul", x, g.const(SQRT_HALF))), g.const(1.0))
    n.put("Mul", g.op("Mul", inner, x), g.const(0.5))
    n.deviates("GELU.POLYNOMIAL", "erf is the polynomial of Abramowitz and Stegun 7.1.26, about 1e-7·|v| off")
    n.deviates_if(g.op("IsInf", x, kind="bool", detect_positive=0), "GELU.NEG_INF")


@form("GeluFast", says="(v·0.5)·(tanh(clamp((v + v³·0.044715)·0.79788, −16, 16)) + 1)")
def gelu_fast(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    cube = g.op("Mul", g.op("Pow", x, g.const(3.0)), g.const(CUBE))
    inner = g.op("Mul", g.op("Add", x, cube), g.const(SCALE))
    n.put("Mul", g.op("Mul", x, g.const(0.5)), g.op("Add", tanh(g, inner), g.const(1.0)))
    fused = n.attributes.get("fused")
    n.deviates("POW.GELU_FAST" if fused else "GELU.TANH", where="optimiser" if fused else "importer")


@form("Swish", says="v / (1 + exp(−v)); α is read from 2.6 on")
def swish(n: Node) -> None:
    n.floats()
    g, x, alpha = n.graph, n.x(), float(n.attributes.get("alpha", 1.0))
    inner = x if alpha == 1 else g.op("Mul", x, g.const(alpha))
    n.put("Div", x, g.op("Add", g.op("Exp", g.op("Neg", inner)), g.const(1.0)))
    n.rounding("v / (1 + exp(−v))")


@form("Sigmoid", says="1 / (1 + exp(−v))")
def sigmoid_layer(n: Node) -> None:
    n.floats()
    n.put("Identity", sigmoid(n.graph, n.x()))
    n.rounding("1 / (1 + exp(−v))")


@form("Softplus", says="log(1 + exp(−|v|)) + max(v, 0), without log1p")
def softplus(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    grown = g.op("Exp", g.op("Neg", g.op("Abs", x)))
    n.put("Add", g.op("Log", g.op("Add", grown, g.const(1.0))), g.op("Max", x, g.const(0.0)))
    n.rounding("log(1 + x) instead of log1p, up to 6e-8 off")


@form("Softsign", says="v / (1 + |v|)")
def softsign(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    n.put("Div", x, g.op("Add", g.op("Abs", x), g.const(1.0)))


@form("Mish", says="v·tanh(log(1 + exp(v)))")
def mish(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    n.put("Mul", x, g.op("Tanh", g.op("Log", g.op("Add", g.op("Exp", x), g.const(1.0)))))
    n.rounding("log(1 + exp(v))")


@form("Elu", says="v ≤ 0 ? α·(exp(v) − 1) : v")
def elu(n: Node) -> None:
    n.floats()
    g, x, alpha = n.graph, n.x(), n.attributes.get("alpha", 1.0)
    below = g.op("Mul", g.op("Sub", g.op("Exp", x), g.const(1.0)), g.const(alpha))
    n.put("Where", g.op("LessOrEqual", x, g.const(0.0), kind="bool"), below, x, kind="float")
    n.rounding("exp(v) − 1 instead of expm1")


@form("Celu", says="max(0, v) + min(0, α·(exp(v/α) − 1))")
def celu(n: Node) -> None:
    n.floats()
    g, x, alpha = n.graph, n.x(), n.attributes.get("alpha", 1.0)
    grown = g.op("Exp", g.op("Div", x, g.const(alpha)))
    below = g.op("Mul", g.op("Sub", grown, g.const(1.0)), g.const(alpha))
    n.put("Add", g.op("Max", x, g.const(0.0)), g.op("Min", below, g.const(0.0)))
    n.rounding("exp(v) − 1 instead of expm1")


@form("Selu", says="v ≤ 0 ? γ·(α·exp(v) − α) : γ·v; other defaults below opset 6")
def selu(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    defaults = (1.6732, 1.0507) if n.opset < 6 else (1.67326319, 1.05070102)
    alpha, gamma = n.attributes.get("alpha", defaults[0]), n.attributes.get("gamma", defaults[1])
    below = g.op("Sub", g.op("Mul", g.op("Exp", x), g.const(alpha)), g.const(alpha))
    chosen = g.op("Where", g.op("LessOrEqual", x, g.const(0.0), kind="bool"), below, x, kind="float")
    n.put("Mul", chosen, g.const(gamma))
    n.rounding("α·exp(v) − α")


@form("HardSigmoid", says="max(0, min(1, α·v + β)); NaN → 1")
def hard_sigmoid(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    line = g.op("Add", g.op("Mul", x, g.const(n.attributes.get("alpha", 0.2))), g.const(n.attributes.get("beta", 0.5)))
    inside = g.op("Clip", line, g.const(0.0), g.const(1.0))
    nan = g.op("IsNaN", line, kind="bool")
    n.put("Where", nan, g.const(1.0), inside, kind="float")
    n.deviates_if(nan, "HARDSIGMOID.NAN", "NaN gives 1")


@form("HardSwish", says="v·max(0, min(1, 0.16666667·v + 0.5))")
def hard_swish(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    line = g.op("Add", g.op("Mul", x, g.const(0.16666667)), g.const(0.5))
    n.put("Mul", x, g.op("Clip", line, g.const(0.0), g.const(1.0)))


@form("ThresholdedRelu", says="v > α ? v : 0")
def thresholded_relu(n: Node) -> None:
    n.floats()
    g, x = n.graph, n.x()
    above = g.op("Greater", x, g.const(n.attributes.get("alpha", 1.0)), kind="bool")
    n.put("Where", above, x, g.const(0.0), kind="float")


@form("Shrink", how="identical", says="v < −λ ? v + bias : v > λ ? v − bias : 0")
def shrink(n: Node) -> None:
    n.floats()
    n.same(bias=n.attributes.get("bias", 0.0), lambd=n.attributes.get("lambd", 0.5))


@form("PRelu", says="x ≥ 0 ? x : x·slope; the slope may not enlarge the output")
def prelu(n: Node) -> None:
    n.floats(0, 1)
    g, x = n.graph, n.x()
    straight = g.op("GreaterOrEqual", x, g.const(0.0), kind="bool")
    n.put("Where", straight, x, g.op("Mul", x, n.x(1)), kind="float")


@form(
    "Softmax", "LogSoftmax", "Hardmax", says="along one axis, -1 where none is given, at every opset", where="importer"
)
def softmax(n: Node) -> None:
    n.floats()
    n.same(axis=int(n.attributes.get("axis", -1)))
