"""A node as Sentis' importer sees it: the attributes it reads and nothing else, kinds instead of types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.facts import Facts, facts, versions
from parity.emulator.graph import Graph, Probe
from parity.emulator.prediction import LAST_DIGITS, Deviation, Rounding, Throws, Unknown
from weights_bridge.compare import Array


@dataclass
class Node:
    """One node, or one layer that the optimiser made of several.

    Attributes:
        op: operator of the node, whatever its domain, or name of the layer.
        label: what the node is called.
        inputs: value names, empty for one that is not given.
        outputs: value names.
        attributes: what the importer reads, substitutions for unknown modes made.
        opset: the model's, as Sentis takes it.
        graph: what is written to.
        known: the facts of the version.
        shapes: tensor name to sizes, None for an unknown one; as far as onnx infers them.
        found: ids that the scanner found at this node.
        first: the model's tensor number 0, which window operators read.
        types: tensor name to ONNX element type, as far as onnx infers them.
    """

    op: str
    label: str
    inputs: list[str]
    outputs: list[str]
    attributes: Mapping[str, Any]
    opset: int
    graph: Graph
    known: Facts
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    found: frozenset[str] = frozenset()
    first: str = ""
    types: Mapping[str, int] = field(default_factory=dict)

    # what it has

    def x(self, position: int = 0) -> str:
        """Return an input's name, empty where it is not given."""
        return self.inputs[position] if position < len(self.inputs) else ""

    def y(self, position: int = 0) -> str:
        """Return an output's name, empty where nobody asks for it."""
        return self.outputs[position] if position < len(self.outputs) else ""

    def kind(self, position: int = 0) -> str:
        """Return an input's kind, `float` or `int`."""
        return self.graph.kind(self.x(position))

    def value(self, position: int) -> Array | None:
        """Return a constant input's numbers, None for what is only known when it runs."""
        return self.graph.value(self.x(position)) if self.x(position) else None

    def shape(self, position: int = 0) -> tuple[int | None, ...] | None:
        """Return an input's sizes as far as they are known, None where its rank is not."""
        name = self.x(position)
        held = self.graph.value(name)
        return held.shape if held is not None else self.shapes.get(name)

    def rank(self, position: int = 0) -> int:
        """Return an input's rank.

        Raises:
            Unknown: onnx' inference did not come to it.
        """
        shape = self.shape(position)
        if shape is None:
            raise Unknown(f"{self.op} {self.label!r}: the rank of {self.x(position)!r} is not known")
        return len(shape)

    def floats(self, *positions: int) -> None:
        """Refuse integers where Sentis computes on floats only.

        Raises:
            Throws: one of the inputs is an integer.
        """
        for position in positions or (0,):
            if self.x(position) and self.kind(position) != "float":
                raise Throws(f"{self.op} {self.label!r} runs on floats only, input {position} is an integer")

    def same_kinds(self, *positions: int) -> str:
        """Return the kind that inputs share.

        Raises:
            Throws: they are of both kinds.
        """
        kinds = {self.graph.kind(self.x(position)) for position in positions or range(len(self.inputs))}
        if len(kinds) != 1:
            raise Throws(f"{self.op} {self.label!r}: operands of both kinds are never promoted")
        return kinds.pop()

    def ints(self, attribute: str, position: int) -> list[int] | None:
        """Return integers from an attribute that is read, or else from a constant input."""
        given = self.attributes.get(attribute)
        if isinstance(given, list | tuple):
            return [int(item) for item in given]
        value = self.value(position)
        return None if value is None else [int(item) for item in value.reshape(-1)]

    # what it writes

    def put(self, op: str, *inputs: str, kind: str = "", **attributes: Any) -> str:
        """Write a node whose output is the first of this one."""
        return self.graph.op(op, *inputs, to=self.y(), kind=kind, **attributes)

    def same(self, **attributes: Any) -> None:
        """Write the same operator with the same inputs, of the first input's kind."""
        self.put(self.op, *self.inputs, **attributes)

    def numpy(self, run: Callable[..., Sequence[Array]], inputs: Sequence[str], *kinds: str) -> None:
        """Write a function of arrays whose outputs are this node's; kinds of all outputs, `float` by default."""
        outputs = [name for name in self.outputs if name]
        wanted = [at for at, name in enumerate(self.outputs) if name]
        given = kinds or ("float",)

        def chosen(*arrays: Array) -> list[Array]:
            found = run(*arrays)
            return [found[at] for at in wanted]

        self.graph.numpy(chosen, inputs, outputs, [given[at] for at in wanted])

    # what it says

    def deviation(self, rule: str, what: str = "", where: str = "kernel") -> Deviation:
        """Return a deviation of this node: a rule of the facts, or a form of the emulator with its own words."""
        return deviation(self.known, rule, self.label, self.op, self.y(), what, where)

    def deviates(self, rule: str, what: str = "", where: str = "kernel") -> None:
        """Record a deviation that is sure."""
        self.graph.deviations.append(self.deviation(rule, what, where))

    def deviates_if(self, mask: str, rule: str, what: str = "", where: str = "kernel") -> None:
        """Record a deviation where a bool is true anywhere when it runs."""
        found = self.deviation(rule, what, where)
        self.graph.probes.append(Probe(self.graph.any(mask), self.y(), found))

    def unknown_if(self, mask: str, why: str) -> None:
        """Predict nothing where a bool is true anywhere when it runs."""
        said = f"{self.op} {self.label!r}: {why}"
        self.graph.probes.append(Probe(self.graph.any(mask), self.y(), None, said))

    def rounding(self, computes: str, effect: str = LAST_DIGITS) -> None:
        """Note a difference of rounding.

        Args:
            computes: what Sentis computes here, said behind this word.
            effect: what may be seen of it.
        """
        self.graph.note(Rounding(self.op, computes, effect, tuple(self.attributes.get("fused", ()))))


def deviation(
    known: Facts, rule: str, label: str, op: str, output: str, what: str = "", where: str = "kernel"
) -> Deviation:
    """Return a deviation with its source and confidence, as the facts have them."""
    if (told := known.rules.get(rule)) is not None:
        return Deviation(label, op, output, rule, what or told.what, *origin(known, told.subject, told.verified))
    return Deviation(label, op, output, rule, what, *origin(known, where, where in known["read"]))


def origin(known: Facts, subject: str, verified: bool) -> tuple[str, str]:
    """Return where a part of the package was read, and how sure that makes it for a version.

    Args:
        known: the facts of the version that is predicted for.
        subject: `importer`, `inference`, `optimiser`, `kernel`, or what a rule of the whole model is about.
        verified: whether it was read in this very version.
    """
    if verified:
        return known["source"], f"read in {known.version}"
    read = known
    while subject not in read["read"] and read.version != versions()[0]:
        read = facts(read["base"])
    return read["source"], f"read in {read.version}, not verified for {known.version}"


def as_kind(values: Array) -> Array:
    """Return an array as Sentis holds it: float32, or int32 with saturated 64-bit integers; bools are 0 and 1."""
    if values.dtype.kind == "f" or values.dtype.name == "bfloat16":
        return values.astype(np.float32)
    if values.dtype.kind == "b":
        return values.astype(np.int32)
    if values.dtype.itemsize < 4 or values.dtype == np.int32:
        return values.astype(np.int32)
    low = np.iinfo(np.int32).min if values.dtype.kind == "i" else 0
    return np.clip(values, low, np.iinfo(np.int32).max).astype(np.int32)
