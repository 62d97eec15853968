"""Normalisation: variances in one pass, as E[x²] − E[x]² in float32."""

from __future__ import annotations

import numpy as np

from parity.emulator.graph import Graph
from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws

CANCELS = 1e5  # mean² over variance from which the single pass shows


def spread(n: Node, x: str, axes: list[int], epsilon: float) -> tuple[str, str]:
    """Write mean and √(E[x²] − E[x]² + ε) over some axes, and what tells whether it cancels."""
    g = n.graph
    over = g.const(axes, "long")
    mean = g.op("ReduceMean", x, over, keepdims=1)
    squares = g.op("ReduceMean", g.op("Mul", x, x), over, keepdims=1)
    square = g.op("Mul", mean, mean)
    variance = g.op("Sub", squares, square)
    cancels = g.op("Greater", square, g.op("Mul", g.op("Abs", variance), g.const(CANCELS)), kind="bool")
    rule = "INSTANCENORM.CANCELLATION" if n.op == "InstanceNormalization" else "LAYERNORM.CANCELLATION"
    n.deviates_if(cancels, rule)
    return mean, g.op("Sqrt", g.op("Add", variance, g.const(epsilon)))


@form(
    "LayerNormalization",
    says="over the last axis, whatever `axis` says; variance E[x²] − E[x]²; scale and bias of rank 1, both given",
)
def layer_norm(n: Node) -> None:
    n.floats(0, 1, 2)
    if not n.x(2):
        raise Throws(f"LayerNormalization {n.label!r} without a bias: a NullReferenceException")
    g, x = n.graph, n.x()
    epsilon = n.attributes.get("eps", n.attributes.get("epsilon", 1e-5))
    mean, root = spread(n, x, [-1], float(epsilon))
    scaled = g.op("Mul", g.op("Div", g.op("Sub", x, mean), root), n.x(1))
    n.put("Add", scaled, n.x(2))
    if n.attributes.get("fused"):
        n.deviates("FUSION.LAYERNORM", "the chain becomes a LayerNormalization: variance in one pass", "optimiser")
    else:
        n.rounding("the variance in one pass, E[x²] − E[x]²")


@form("RMSNormalization", says="x / √(mean(x²) + ε)·scale over the last axis, whatever `axis` says; scale of rank 1")
def rms_norm(n: Node) -> None:
    fused = n.attributes.get("fused")
    scale, x = (n.x(0), n.x(1)) if fused else (n.x(1), n.x(0))
    n.floats(0, 1)
    g = n.graph
    epsilon = float(n.attributes.get("eps", n.attributes.get("epsilon", 1e-5)))
    squares = g.op("ReduceMean", g.op("Mul", x, x), g.const([-1], "long"), keepdims=1)
    root = g.op("Sqrt", g.op("Add", squares, g.const(epsilon)))
    n.put("Mul", g.op("Div", x, root), scale)
    n.rounding("x / √(mean(x²) + ε)·scale")


def per_channel(g: Graph, name: str, rank: int) -> str:
    """Return a value of one number per channel, shaped to stand beside a tensor of a rank."""
    shape = [1, -1] + [1] * (rank - 2) if rank > 1 else [-1]
    return g.op("Reshape", name, g.const(shape, "long"))


@form("InstanceNormalization", says="variance E[x²] − E[x]²; k = scale/√(var + ε); x·k + (bias − mean·k)")
def instance_norm(n: Node) -> None:
    n.floats(0, 1, 2)
    g, rank = n.graph, n.rank()
    mean, root = spread(n, n.x(), list(range(2, rank)), float(n.attributes.get("epsilon", 1e-5)))
    k = g.op("Div", per_channel(g, n.x(1), rank), root)
    shift = g.op("Sub", per_channel(g, n.x(2), rank), g.op("Mul", mean, k))
    n.put("Add", g.op("Mul", n.x(), k), shift)
    n.rounding("the variance in one pass, E[x²] − E[x]²")


@form(
    "BatchNormalization",
    says="(x − mean)/√(var + ε)·scale + bias, as x·s + b where all are constants; never training",
)
def batch_norm(n: Node) -> None:
    n.floats(0, 1, 2, 3, 4)
    g, rank, epsilon = n.graph, n.rank(), g_epsilon(n)
    scale, bias, mean, variance = (per_channel(g, n.x(at), rank) for at in range(1, 5))
    root = g.op("Sqrt", g.op("Add", variance, g.const(epsilon)))
    if all(n.value(at) is not None for at in range(1, 5)):
        s = g.op("Div", scale, root)
        n.put("Add", g.op("Mul", n.x(), s), g.op("Sub", bias, g.op("Mul", s, mean)))
        return
    centred = g.op("Div", g.op("Sub", n.x(), mean), root)
    n.put("Add", g.op("Mul", centred, scale), bias)


def g_epsilon(n: Node) -> float:
    """Return ε as float32."""
    return float(np.float32(n.attributes.get("epsilon", 1e-5)))


@form("LRN", how="identical", says="ONNX' window")
def lrn(n: Node) -> None:
    n.floats()
    defaults = {"alpha": 0.0001, "beta": 0.75, "bias": 1.0}
    given = {name: float(n.attributes.get(name, default)) for name, default in defaults.items()}
    n.same(size=int(n.attributes["size"]), **given)
