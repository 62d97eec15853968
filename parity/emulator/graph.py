"""The graph that ONNX Runtime runs in Sentis' place: ONNX nodes at one opset, and steps in numpy between them.

A tensor of Sentis is float32 or int32. Here every value has one of these types by its kind, `float` or `int`; `bool`,
`byte` (uint8) and `long` (int64) exist only between the nodes of one operator, where ONNX wants a condition or a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.emulator.prediction import Deviation, Rounding, Throws
from weights_bridge.compare import Array

if TYPE_CHECKING:
    import onnx

OPSET, IR_VERSION = 20, 10  # what the graph is written in, whatever the model's own opset
ELEMENTS = {"float": 1, "int": 6, "long": 7, "bool": 9, "byte": 2}  # kind to ONNX element type
DTYPES = {"float": np.float32, "int": np.int32, "long": np.int64, "bool": np.bool_, "byte": np.uint8}
FLT_MAX = float(np.finfo(np.float32).max)


@dataclass
class Step:
    """One ONNX node, or one function of arrays.

    Attributes:
        inputs: value names, empty for one that is not given.
        outputs: value names.
        node: for ONNX Runtime; None for a function.
        run: arrays to a list of arrays; a missing input is None.
        label: the node of the model that it stands for.
    """

    inputs: list[str]
    outputs: list[str]
    node: onnx.NodeProto | None = None
    run: Callable[..., list[Array]] | None = None
    label: str = ""


@dataclass(frozen=True)
class Probe:
    """Something that only the numbers show.

    Attributes:
        value: a bool of rank 0 that tells whether it happened.
        of: the output it is about; unused where that is not computed.
        deviation: what is reported when it happened; None where that is not known and nothing is predicted.
        unknown: why nothing is predicted when it happened.
    """

    value: str
    of: str
    deviation: Deviation | None = None
    unknown: str = ""


@dataclass
class Graph:
    """What is run, as far as it is written.

    Attributes:
        steps: in an order in which they can run.
        kinds: value name to `float`, `int`, `bool` or `long`.
        held: constants by name, as Sentis holds them.
        elements: graph input to its kind, in order.
        outputs: what the model puts out, as far as it is made.
        probes: what the numbers decide.
        deviations: what is known before it runs.
        notes: a difference of rounding to the number of its places.
        readers: constant to the (layer, node) that read it; a layer by Sentis' name.
    """

    steps: list[Step] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    held: dict[str, Array] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    deviations: list[Deviation] = field(default_factory=list)
    notes: dict[Rounding, int] = field(default_factory=dict)
    readers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    label: str = ""
    stem: str = ""
    _made: dict[tuple[Any, ...], str] = field(default_factory=dict)
    _count: int = 0

    def name(self) -> str:
        """Return a name that no value has."""
        while True:
            self._count += 1
            if (name := f"{self.stem}/sentis_{self._count}") not in self.kinds:
                return name

    def kind(self, name: str) -> str:
        """Return a value's kind.

        Raises:
            Throws: nothing made the value, as behind an output that Sentis never makes.
        """
        if name not in self.kinds:
            raise Throws(f"the key {name!r} was not present: nothing that Sentis makes has this name")
        return self.kinds[name]

    def hold(self, name: str, values: Array) -> str:
        """Make an array a constant; its type decides the kind."""
        kinds = {np.dtype(dtype): kind for kind, dtype in DTYPES.items()}
        self.held[name], self.kinds[name] = values, kinds[values.dtype]
        return name

    def const(self, values: Any, kind: str = "float") -> str:
        """Return the name of a small constant; equal ones are held once."""
        array = np.ascontiguousarray(values, DTYPES[kind]).reshape(np.shape(values))
        key = ("const", kind, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self.hold(self.name(), array)
        return self._made[key]

    def value(self, name: str) -> Array | None:
        """Return a constant's numbers, None for what is only known when it runs."""
        return self.held.get(name)

    def op(self, op: str, *inputs: str, to: str = "", kind: str = "", **attributes: Any) -> str:
        """Add a node with one output and return its name.

        Args:
            op: an ONNX operator at opset 20.
            inputs: value names; empty for one that is not given.
            to: name of the output; a fresh one by default.
            kind: of the output; that of the first input by default.
            attributes: those that are None are left out.
        """
        key = (op, inputs, kind, repr(sorted(attributes.items())))
        if not to and key in self._made:
            return self._made[key]
        made = self.many(op, inputs, [to or self.name()], [kind or self.kind(inputs[0])], **attributes)[0]
        self._made.setdefault(key, made)
        return made

    def many(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], kinds: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs."""
        import onnx

        for name in filter(None, inputs):
            self.kind(name)
        given = {name: value for name, value in attributes.items() if value is not None}
        node = onnx.helper.make_node(op, list(inputs), list(outputs), **given)
        self.steps.append(Step(list(inputs), list(outputs), node, None, self.label))
        self.kinds |= {name: kind for name, kind in zip(outputs, kinds, strict=True) if name}
        return list(outputs)

    def numpy(
        self,
        run: Callable[..., list[Array]],
        inputs: Sequence[str],
        outputs: Sequence[str],
        kinds: Sequence[str],
    ) -> list[str]:
        """Add a function of arrays: it gets one array per input and returns one per output."""
        for name in filter(None, inputs):
            self.kind(name)
        self.steps.append(Step(list(inputs), list(outputs), None, run, self.label))
        self.kinds |= {name: kind for name, kind in zip(outputs, kinds, strict=True) if name}
        return list(outputs)

    # between kinds

    def cast(self, name: str, kind: str, to: str = "") -> str:
        """Return a value as another kind; as it is where it has that kind and no other name is asked for."""
        if self.kind(name) == kind and not to:
            return name
        if (known := self.held.get(name)) is not None and known.size <= 1024 and not to:
            return self.const(known.astype(DTYPES[kind]), kind)
        return self._cast(name, kind, to)

    def _cast(self, name: str, kind: str, to: str) -> str:
        key = ("Cast", name, kind)
        if not to and key in self._made:
            return self._made[key]
        made = self.many("Cast", [name], [to or self.name()], [kind], to=ELEMENTS[kind])[0]
        self._made.setdefault(key, made)
        return made

    def truth(self, name: str) -> str:
        """Return whether a value is other than 0, as ONNX' bool."""
        return name if self.kind(name) == "bool" else self.op("Not", self.equal(name, 0), kind="bool")

    def equal(self, name: str, number: float) -> str:
        """Return where a value is a number, as ONNX' bool."""
        return self.op("Equal", name, self.const(number, self.kind(name)), kind="bool")

    def any(self, mask: str) -> str:
        """Return whether a bool is true anywhere, of rank 0."""
        return self._cast(self.op("ReduceMax", self.cast(mask, "byte"), keepdims=0), "bool", "")

    def either(self, *masks: str) -> str:
        """Return where one of some bools is true."""
        joined = masks[0]
        for mask in masks[1:]:
            joined = self.op("Or", joined, mask, kind="bool")
        return joined

    def mark(self) -> tuple[int, int, int]:
        """Return how far it is written, for `forget_since`."""
        return len(self.steps), len(self.probes), len(self.deviations)

    def forget_since(self, mark: tuple[int, int, int]) -> None:
        """Take back what was written since a mark."""
        gone = {name for step in self.steps[mark[0] :] for name in step.outputs}
        for written, count in zip((self.steps, self.probes, self.deviations), mark, strict=True):
            del written[count:]
        self._made = {key: name for key, name in self._made.items() if name not in gone}
        for name in gone:
            self.kinds.pop(name, None)

    def note(self, one: Rounding) -> None:
        """Count a difference of rounding."""
        self.notes[one] = self.notes.get(one, 0) + 1
