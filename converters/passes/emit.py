"""Writing nodes into a graph: fresh names, constants as raw initialisers, forms that depend on the opset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.scan.view import Place

if TYPE_CHECKING:
    import onnx

FLOATS = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16
FLOAT = 1
INT64 = 7


class Refusal(Exception):  # noqa: N818  (it is no error: the place is left)
    """Why a place is left as it is."""


class Emit:
    """Collects what replaces one node; nothing is in the graph until the pass puts it there.

    Attributes:
        nodes: the new nodes in order.
        constants: name to tensor of the new initialisers.
        results: those of them that take the place of an output of the node.
    """

    def __init__(self, place: Place, taken: set[str], tag: str) -> None:
        self.place = place
        self.taken = taken
        self.stem = f"{next((name for name in place.node.output if name), place.node.op_type)}/{tag}"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.results: set[str] = set()
        self._types: dict[str, int] = {}
        self._made: dict[tuple[Any, ...], list[str]] = {}
        self._held: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    @property
    def constant_bytes(self) -> int:
        """Bytes of the new initialisers."""
        return sum(len(tensor.raw_data) for tensor in self.constants.values())

    def name(self) -> str:
        """Return a name that nothing in the model has."""
        number = len(self.taken)
        while (name := f"{self.stem}_{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def __call__(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Write a node with one output and return its name; `to` names the output.

        What was written before with the same inputs and attributes is not written again.
        """
        key = (op, inputs, repr(sorted(attributes.items())))
        if not to and key in self._made:
            return self._made[key][0]
        self._made[key] = self.many(op, inputs, [to or self.name()], **attributes)
        return self._made[key][0]

    def many(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> list[str]:
        """Write a node with given outputs; attributes that are None are left out."""
        import onnx

        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(onnx.helper.make_node(op, list(inputs), list(outputs), self.name(), **given))
        source = inputs[1] if op == "Where" else inputs[0] if inputs else ""
        element = {"Cast": given.get("to"), "Shape": INT64, "ConstantOfShape": 0}.get(op) or self._element(source)
        self._types |= dict.fromkeys(outputs, element)
        return list(outputs)

    def outputs(self, count: int) -> list[str]:
        """Return fresh names for several outputs."""
        return [self.name() for _ in range(count)]

    def array(self, values: np.ndarray) -> str:
        """Return the name of a constant; equal ones are held once."""
        key = (values.dtype.str + values.dtype.name, values.shape, values.tobytes())
        if key not in self._held:
            name = self._held[key] = self.name()
            self._hold(name, values)
        return self._held[key]

    def result(self, to: str, values: np.ndarray) -> None:
        """Let a constant take the place of an output of the node."""
        if any(value.name == to for value in self.place.view.graph.output):
            self("Identity", self.array(values), to=to)
            return
        self._hold(to, values)
        self.results.add(to)

    def _hold(self, name: str, values: np.ndarray) -> None:
        import onnx

        tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)
        self.constants[name] = tensor
        self._types[name] = tensor.data_type

    def ints(self, *values: int) -> str:
        """Return an int64 constant of rank 1."""
        return self.array(np.array(values, np.int64))

    def number(self, value: float, like: str) -> str:
        """Return a constant of rank 0 of another tensor's float type."""
        return self.array(np.array(value, self.dtype(like)))

    def dtype(self, name: str) -> Any:
        """Return a float tensor's numpy type.

        Raises:
            Refusal: it is not known to be a float.
        """
        import onnx

        element = self.element(name)
        if element not in FLOATS:
            kind = onnx.TensorProto.DataType.Name(element) if element else "not known"  # pyright: ignore[reportArgumentType]
            raise Refusal(f"the type of {name!r} is {kind}, wanted a float")
        return onnx.helper.tensor_dtype_to_np_dtype(element)

    def element(self, name: str) -> int:
        """Return a tensor's element type; FLOAT where inference ended and the graph holds no other float type."""
        if known := self._element(name):
            return known
        held = {element for element in self.place.view.types.values() if element in FLOATS}
        return FLOAT if held <= {FLOAT} else 0

    def _element(self, name: str) -> int:
        return self._types.get(name, 0) or self.place.view.type(name)

    def clipped(self, data: str, low: float, high: float, to: str = "") -> str:
        """Write Clip; bounds are inputs from opset 11 on."""
        if self.place.opset >= 11:
            return self("Clip", data, self.number(low, data), self.number(high, data), to=to)
        return self("Clip", data, to=to, min=float(low), max=float(high))

    def cast(self, data: str, element: int, to: str = "") -> str:
        """Write a Cast; `to` names its output, as everywhere."""
        name = to or self.name()
        self.many("Cast", [data], [name], to=element)
        return name

    # forms that depend on the opset

    def reduced(self, op: str, data: str, axes: Sequence[int], to: str = "", keepdims: int = 1) -> str:
        """Write a reduction; axes are an input from opset 18 on (ReduceSum 13)."""
        if self.place.opset >= (13 if op == "ReduceSum" else 18):
            return self(op, data, self.ints(*axes), to=to, keepdims=keepdims)
        return self(op, data, to=to, axes=list(axes), keepdims=keepdims)

    def unsqueezed(self, data: str, axes: Sequence[int], to: str = "") -> str:
        """Write Unsqueeze; axes are an input from opset 13 on."""
        if self.place.opset >= 13:
            return self("Unsqueeze", data, self.ints(*axes), to=to)
        return self("Unsqueeze", data, to=to, axes=list(axes))

    def squeezed(self, data: str, axes: Sequence[int], to: str = "") -> str:
        """Write Squeeze; axes are an input from opset 13 on."""
        if self.place.opset >= 13:
            return self("Squeeze", data, self.ints(*axes), to=to)
        return self("Squeeze", data, to=to, axes=list(axes))

    def sliced(
        self, data: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] = (),
        to: str = "",
    ) -> str:  # fmt: skip
        """Write Slice; bounds are inputs from opset 10 on.

        Raises:
            Refusal: steps before opset 10.
        """
        if self.place.opset >= 10:
            bounds = [self.ints(*starts), self.ints(*ends), self.ints(*axes)]
            return self("Slice", data, *bounds, *([self.ints(*steps)] if steps else []), to=to)
        if any(step != 1 for step in steps):
            raise Refusal("Slice has no steps before opset 10")
        return self("Slice", data, to=to, starts=list(starts), ends=list(ends), axes=list(axes))

    def split(self, data: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Write Split into parts of given sizes; sizes are an input from opset 13 on."""
        if len(sizes) == 1:
            return [data]
        key = ("Split", data, tuple(sizes), axis)
        if key not in self._made:
            parts = self.outputs(len(sizes))
            if self.place.opset >= 13:
                self._made[key] = self.many("Split", [data, self.ints(*sizes)], parts, axis=axis)
            else:
                self._made[key] = self.many("Split", [data], parts, axis=axis, split=list(sizes))
        return self._made[key]

    def padded(self, data: str, pads: Sequence[int], value: float, to: str = "") -> str:
        """Write a Pad of one value; pads are an input from opset 11 on."""
        if self.place.opset >= 11:
            return self("Pad", data, self.ints(*pads), self.number(value, data), to=to)
        return self("Pad", data, to=to, pads=list(pads), value=float(value))

    def reshaped(self, data: str, shape: Iterable[int], to: str = "") -> str:
        """Write a Reshape to a constant shape: 0 keeps a size, -1 is what is left."""
        return self("Reshape", data, self.ints(*shape), to=to)

    def shaped_like(self, data: str, original: str, to: str = "") -> str:
        """Write a Reshape to another tensor's shape, a constant one where at most one of its sizes is unknown."""
        shape = self.place.view.shape(original)
        if shape is not None and sum(size is None for size in shape) <= 1 and 0 not in shape:
            return self.reshaped(data, [-1 if size is None else size for size in shape], to)
        return self("Reshape", data, self("Shape", original), to=to)
