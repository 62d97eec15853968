"""Constants and casts."""

from __future__ import annotations

import numpy as np

from converters.onnx_file import type_name
from parity.emulator.graph import Graph
from parity.emulator.node import Node, as_kind
from parity.emulator.operators import form
from parity.emulator.prediction import Throws

LISTS = (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64), ("value_ints", np.int64))
INT_EDGE = 2.0**31  # the first float beyond int32


@form(
    "Constant",
    how="identical",
    says="value, value_float, value_floats, value_int, value_ints, in this order",
    where="importer",
)
def constant(n: Node) -> None:
    if (values := n.attributes.get("value")) is not None:
        n.graph.hold(n.y(), values)
        return
    for name, dtype in LISTS:
        if name in n.attributes:
            n.graph.hold(n.y(), as_kind(np.array(n.attributes[name], dtype)))
            return
    raise Throws(f"Constant {n.label!r} has no value that Sentis reads")


@form("ConstantOfShape", how="identical", says="the first element of value, float 0 by default", where="importer")
def constant_of_shape(n: Node) -> None:
    values = n.attributes.get("value")
    number = np.zeros(1, np.float32) if values is None else values.reshape(-1)[:1]
    kind = "float" if number.dtype == np.float32 else "int"
    n.put("Expand", n.graph.const(number, kind), n.graph.cast(n.x(), "long"), kind=kind)


def to_int(g: Graph, n: Node, x: str) -> str:
    """Write the truncation of floats to int32; what lies outside is undefined."""
    outside = g.op("Not", g.op("Less", g.op("Abs", x), g.const(INT_EDGE), kind="bool"))
    n.unknown_if(outside, "floats outside int32 are cast to integers: undefined")
    return g.op("Where", outside, g.const(0.0), x, kind="float")


def cast_to(n: Node, kind: str) -> None:
    """Write a cast to a kind; within one kind nothing happens."""
    g, x = n.graph, n.x()
    if n.kind() == kind:
        n.put("Identity", x)
    elif kind == "int":
        if "CAST.FOLD_ROUNDING" in n.found:
            cut = g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))
            apart = g.op("Not", g.op("Equal", g.op("Round", x), cut, kind="bool"))
            n.unknown_if(apart, "in shape arithmetic the import rounds to even where the run time truncates")
        g.cast(to_int(g, n, x), "int", n.y())
    else:
        g.cast(x, "float", n.y())


@form(
    "Cast",
    says="float to int32 truncates; within floats and within integers nothing is rounded, wrapped or made 0 and 1",
)
def cast(n: Node) -> None:
    target = type_name(int(n.attributes["to"]))
    kind = n.known.kind(target)
    if not kind:
        raise Throws(f"Cast {n.label!r} to {target}: an importer error")
    cast_to(n, kind)
    g, x = n.graph, n.y()
    if target == "BOOL":
        beyond = g.op("Not", g.op("Or", g.equal(x, 0), g.equal(x, 1), kind="bool"))
        if n.kind() == "float":
            broken = g.op("Not", g.op("Equal", g.op("Floor", n.x()), n.x(), kind="bool"))
            beyond = g.op("Or", beyond, broken, kind="bool")
        n.deviates_if(beyond, "CAST.TO_BOOL")
    elif kind == "int" and target in RANGES:
        low, high = RANGES[target]
        outside = g.op("Or", *(g.op(*one, kind="bool") for one in _beyond(g, x, low, high)), kind="bool")
        n.deviates_if(outside, "CAST.NARROW_INT")
    elif target in ("FLOAT16", "BFLOAT16"):
        n.rounding("a cast to half precision as none at all", "digits stay that ONNX Runtime rounds away")


RANGES = {"INT8": (-128, 127), "UINT8": (0, 255), "INT16": (-(2**15), 2**15 - 1), "UINT16": (0, 2**16 - 1)}
RANGES["UINT32"] = (0, 2**31 - 1)


def _beyond(g: Graph, x: str, low: int, high: int) -> list[tuple[str, str, str]]:
    return [("Less", x, g.const(low, "int")), ("Greater", x, g.const(high, "int"))]


@form("CastLike", says="as Cast, to the kind of the second input")
def cast_like(n: Node) -> None:
    cast_to(n, n.kind(1))


@form("Identity", "Dropout", how="identical", says="nothing; Dropout never drops and has no mask")
def identity(n: Node) -> None:
    n.put("Identity", n.x())
