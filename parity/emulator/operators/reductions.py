"""Reductions, ArgMax, ArgMin and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.emulator.graph import FLT_MAX
from parity.emulator.node import Node
from parity.emulator.operators import form

AXES_INPUT_FROM = {"ReduceSum": 13}  # all others 18
INTEGERS = {"ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}
UNCHANGED = {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum"}  # by a reduction over nothing
ELEMENTWISE = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}


@form(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
    says="axes as attribute or input by opset; all −inf → −3.4e38 (ReduceMax), all +inf → 3.4e38 (ReduceMin); "
    "a mean of nothing is 0; without axes and with noop_with_empty_axes the input itself where the version says so",
)  # fmt: skip
def reduction(n: Node) -> None:
    if n.op not in INTEGERS:
        n.floats()
    fixed = n.attributes.get("axes")
    axes = n.graph.const(list(fixed), "long") if fixed is not None else ""
    if not axes and n.x(1):
        axes = n.graph.cast(n.x(1), "long")
    empty = not axes or (n.value(1) is not None and n.value(1).size == 0 and fixed is None)  # pyright: ignore[reportOptionalMemberAccess]
    if empty and n.attributes.get("noop_with_empty_axes", 0):
        _nothing(n)
        return
    inputs = [n.x(), axes] if axes and not empty else [n.x()]
    given: dict[str, Any] = {"keepdims": int(n.attributes.get("keepdims", 1))}
    if n.attributes.get("noop_with_empty_axes", 0) and axes and n.value(1) is None:  # they may be empty when it runs
        given["noop_with_empty_axes"] = 1
    _reduced(n, inputs, given)


def _nothing(n: Node) -> None:
    """Write a reduction over no axis: the input itself, or its elements' part where a version mends it."""
    x, rule = n.x(), f"{n.op.upper()}.NOOP"
    if n.op in UNCHANGED or rule in n.known.rules:
        n.put("Identity", x)
        if rule in n.known.rules:
            n.deviates(rule)
    elif n.op == "ReduceSumSquare":
        n.put("Mul", x, x)
    elif n.op in ELEMENTWISE:
        n.put(ELEMENTWISE[n.op], x)
    else:
        n.put("Identity", x)


def _reduced(n: Node, inputs: list[str], given: dict[str, Any]) -> None:
    g, kind = n.graph, n.kind()
    if kind == "float" and n.op in ("ReduceMax", "ReduceMin"):
        found = g.op(n.op, *inputs, **given)
        end, infinite = (-FLT_MAX, -np.inf) if n.op == "ReduceMax" else (FLT_MAX, np.inf)
        ended = g.equal(found, infinite)
        holds = g.op("Greater", g.op("Size", n.x(), kind="long"), g.const(0, "long"), kind="bool")
        ended = g.op("And", ended, holds, kind="bool")
        n.put("Where", ended, g.const(end), found, kind=kind)
        what = "a slice of one infinity only gives the largest float"
        n.deviates_if(ended, f"{n.op.upper()}.INF", what)
        return
    if n.op == "ReduceMean":
        found = g.op(n.op, *inputs, **given)
        holds = g.op("Greater", g.op("Size", n.x(), kind="long"), g.const(0, "long"), kind="bool")
        n.put("Where", holds, found, g.const(0.0), kind=kind)
        return
    if kind == "int" and n.op in ("ReduceL1", "ReduceSumSquare"):  # ONNX Runtime lacks one of them on int32
        x = inputs[0]
        part = g.op("Abs", x) if n.op == "ReduceL1" else g.op("Mul", x, x)
        n.put("ReduceSum", part, *inputs[1:], **given)
        return
    n.put(n.op, *inputs, **given)
    if n.op in ("ReduceMax", "ReduceMin"):
        n.unknown_if(g.equal(g.op("Size", n.x(), kind="long"), 0), "what a reduction over no integers gives")


@form("ArgMax", "ArgMin", how="identical", says="the first index wins unless select_last_index; int32")
def arg(n: Node) -> None:
    names = {"axis": 0, "keepdims": 1, "select_last_index": 0}
    given: dict[str, Any] = {name: int(n.attributes.get(name, default)) for name, default in names.items()}
    n.graph.cast(n.graph.op(n.op, n.x(), kind="long", **given), "int", n.y())


@form("CumSum", how="identical", says="one after the other in float32")
def cumsum(n: Node) -> None:
    given: dict[str, Any] = {name: int(n.attributes.get(name, 0)) for name in ("exclusive", "reverse")}
    n.put("CumSum", n.x(), n.x(1), **given)


@form("GlobalAveragePool", "GlobalMaxPool", how="identical", says="as ONNX")
def global_pool(n: Node) -> None:
    n.floats()
    n.same()
