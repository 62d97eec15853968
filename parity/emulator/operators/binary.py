"""Arithmetic of two or more tensors; integers are int32 and wrap."""

from __future__ import annotations

import numpy as np

from parity.emulator.graph import FLT_MAX, Graph
from parity.emulator.node import Node
from parity.emulator.operators import form
from parity.emulator.prediction import Throws

INT64 = 7  # ONNX' element type
NARROW = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767)}  # UINT8, INT8, UINT16, INT16
INT_MIN, INT_MAX = float(np.iinfo(np.int32).min), float(np.iinfo(np.int32).max)
POWERS = {-1.0: "Reciprocal", 0.5: "Sqrt"}  # exponents that the optimiser replaces


@form("Add", "Sub", "Mul", how="identical", says="as ONNX; int32 wraps; operands are aligned at their last dimensions")
def arithmetic(n: Node) -> None:
    kind = n.same_kinds()
    n.same()
    if kind == "int" and n.types.get(n.x()) == INT64:
        g = n.graph
        wide = g.op(n.op, *(g.cast(name, "long") for name in n.inputs))
        wrapped = g.op("Not", g.op("Equal", wide, g.cast(n.y(), "long"), kind="bool"))
        n.deviates_if(wrapped, "INT64.WRAP", "int64 arithmetic is done in int32 and wraps")
    elif kind == "int" and (bounds := NARROW.get(n.types.get(n.x(), 0))) is not None:
        g = n.graph
        below, above = (
            g.op(op, n.y(), g.const(at, "int"), kind="bool") for op, at in zip(("Less", "Greater"), bounds, strict=True)
        )
        n.deviates_if(g.op("Or", below, above, kind="bool"), f"{n.op.upper()}.NARROW", "nothing wraps at 8 or 16 bits")


@form("Div", says="int32 truncates; x / c of a scalar c is x·(1/c); division of integers by zero is undefined")
def div(n: Node) -> None:
    g = n.graph
    if n.same_kinds() == "int":
        zero = g.equal(n.x(1), 0)
        n.put("Div", n.x(), g.op("Where", zero, g.const(1, "int"), n.x(1), kind="int"))
        n.unknown_if(zero, "integers are divided by zero: undefined, the CPU may crash")
        return
    divisor = n.value(1)
    if divisor is not None and divisor.size == 1 and divisor.ndim == 0 and n.value(0) is None and divisor.item():
        n.put("Mul", n.x(), g.const(np.float32(1.0) / np.float32(divisor.item())))
        n.rounding("x / c as x·(1/c)")
        return
    n.same()


@form(
    "FloorDiv",
    "TruncDiv",
    says="the quotient rounded down, or towards zero, without a pass through int32",
    where="optimiser",
)
def rounded_div(n: Node) -> None:
    g = n.graph
    if n.same_kinds() == "int":
        _floor_div_int(n)
        return
    quotient = g.op("Div", n.x(), n.x(1))
    if n.op == "FloorDiv":
        n.put("Floor", quotient)
        return
    towards_zero = g.op("Mul", g.op("Sign", quotient), g.op("Floor", g.op("Abs", quotient)))
    n.put("Identity", towards_zero)
    n.deviates_if(
        _outside_int(g, quotient), "FUSION.TRUNCDIV", "a quotient beyond int32 no longer overflows", "optimiser"
    )


def _floor_div_int(n: Node) -> None:
    g = n.graph
    zero = g.equal(n.x(1), 0)
    divisor = g.op("Where", zero, g.const(1, "int"), n.x(1), kind="int")
    rest = g.op("Mod", n.x(), divisor)
    n.put("Div", g.op("Sub", n.x(), rest), divisor)
    n.unknown_if(zero, "integers are divided by zero: undefined, the CPU may crash")


def _outside_int(g: Graph, x: str) -> str:
    return g.op("Greater", g.op("Abs", x), g.const(INT_MAX), kind="bool")


@form("Mod", says="fmod=0: ((x % y) + y) % y, for floats too; fmod=1: C remainder; integers modulo zero are undefined")
def mod(n: Node) -> None:
    g, fmod = n.graph, int(n.attributes.get("fmod", 0))
    if n.same_kinds() == "int":
        zero = g.equal(n.x(1), 0)
        n.put("Mod", n.x(), g.op("Where", zero, g.const(1, "int"), n.x(1), kind="int"), fmod=fmod)
        n.unknown_if(zero, "integers modulo zero: undefined, the CPU may crash")
        return
    rest = g.op("Mod", n.x(), n.x(1), fmod=1)
    if fmod:
        n.put("Identity", rest)
        return
    n.put("Mod", g.op("Add", rest, n.x(1)), n.x(1), fmod=1)
    what = "((x % y) + y) % y of an infinite y is NaN"
    n.deviates_if(g.op("IsInf", n.x(1), kind="bool"), "MOD.FLOAT_FMOD0", what)


@form("Pow", says="powf; an int base passes through float32 and is truncated; exponents -1, ±0.5, 1, 2 are replaced")
def pow_(n: Node) -> None:
    g, exponent = n.graph, n.value(1)
    number = float(exponent.reshape(-1)[0]) if exponent is not None and exponent.size == 1 else None
    if n.kind() == "int":
        _int_pow(n, number)
        return
    if number == 2.0:
        n.put("Mul", n.x(), n.x())
    elif number == -0.5:
        n.put("Reciprocal", g.op("Sqrt", n.x()))
    elif number == 1.0:
        n.put("Identity", n.x())
    elif number in POWERS:
        n.put(POWERS[number], n.x())
    else:
        n.put("Pow", n.x(), g.cast(n.x(1), "float"))


def _int_pow(n: Node, number: float | None) -> None:
    g = n.graph
    if number in (-1.0, 0.5, -0.5):
        raise Throws(f"Pow {n.label!r} of integers becomes a layer that runs on floats only")
    if number == 1.0:
        n.put("Identity", n.x())
        return
    if number == 2.0:
        n.put("Mul", n.x(), n.x())
        return
    powered = g.op("Pow", g.cast(n.x(), "float"), g.cast(n.x(1), "float"))
    n.put("Identity", g.cast(powered, "int"))
    n.deviates_if(g.op("Greater", g.op("Abs", powered), g.const(2.0**24), kind="bool"), "POW.INT")


def dropping(g: Graph, op: str, a: str, b: str, to: str = "") -> str:
    """Write Max or Min in which a NaN gives way to the other operand."""
    if g.kind(a) == "int":
        return g.op(op, a, b, to=to)
    first, second = g.op("IsNaN", a, kind="bool"), g.op("IsNaN", b, kind="bool")
    rest = g.op("Where", second, a, g.op(op, a, b), kind="float")
    return g.op("Where", first, b, rest, to=to, kind="float")


@form("Max", "Min", says="two at a time; a NaN gives way to the other operand")
def extremum(n: Node) -> None:
    g, kind = n.graph, n.same_kinds()
    joined, *rest = n.inputs
    for name in rest:
        joined = dropping(g, n.op, joined, name)
    n.put("Identity", joined)
    if kind == "float" and rest:
        nans = [g.any(g.op("IsNaN", name, kind="bool")) for name in dict.fromkeys(n.inputs)]
        n.deviates_if(g.either(*nans), f"{n.op.upper()}.NAN", "a NaN gives way to the other operand")


@form("Sum", says="((x₁ + x₂) + …), the last input is added first; one input comes out doubled", where="importer")
def total(n: Node) -> None:
    g = n.graph
    n.same_kinds()
    joined, *rest = n.inputs
    for name in rest[:-1]:
        joined = g.op("Add", joined, name)
    n.put("Add", rest[-1] if rest else joined, joined)
    if not rest:
        n.deviates("SUM.SINGLE_INPUT")


@form("Mean", says="the sum times float32(1/n)")
def mean(n: Node) -> None:
    n.floats(*range(len(n.inputs)))
    g = n.graph
    joined, *rest = n.inputs
    for name in rest:
        joined = g.op("Add", joined, name)
    n.put("Mul", joined, g.const(np.float32(1.0 / len(n.inputs))))


@form("Clip", says="min(max, max(v, min)); a missing bound is ±3.4e38, or the ends of int32; NaN → lower bound")
def clip(n: Node) -> None:
    g, kind = n.graph, n.kind()
    ends = (-FLT_MAX, FLT_MAX) if kind == "float" else (INT_MIN, INT_MAX)
    bounds = []
    for at, (name, end) in enumerate(zip(("min", "max"), ends, strict=True)):
        if n.opset < 11:
            bounds.append(g.const(n.attributes.get(name, end), kind))
        else:
            bounds.append(n.x(at + 1) or g.const(end, kind))
    if any(g.kind(bound) != kind for bound in bounds):
        raise Throws(f"Clip {n.label!r}: bounds are read as the type of the data")
    low, high = bounds
    n.put("Identity", dropping(g, "Min", high, dropping(g, "Max", n.x(), low)))
    if kind == "float":
        n.deviates_if(g.op("IsNaN", n.x(), kind="bool"), "CLIP.NAN")


@form("ImageScaler", says="x·scale + bias of the channel", how="identical")
def image_scaler(n: Node) -> None:
    n.floats()
    g = n.graph
    bias = np.asarray(n.attributes["bias"], np.float32)
    shape = (1, -1) + (1,) * (n.rank() - 2)
    scaled = g.op("Mul", n.x(), g.const(n.attributes.get("scale", 1.0)))
    n.put("Add", scaled, g.const(bias.reshape(shape)))
