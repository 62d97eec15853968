"""Inputs on which passes are proven: sizes are guessed, numbers drawn around 0, at zero, and at a scale of 1e4."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

Tensors = dict[str, Array]
DYNAMIC_SIZES = (3, 4, 5, 6, 7)  # small and different from each other, so that a swapped axis shows
LARGER = (64, 160, 512, 1600)  # for pictures and sound: strides and windows need room
LARGE = 1e4
MOST_RANK, MOST_WRITTEN = 8, 6


def guessed_sizes(model: onnx.ModelProto) -> Iterator[dict[str, int]]:
    """Yield sizes of dynamic dimensions: all different, all equal, each in turn twice the others, larger ones.

    At last those that shapes in the graph name: torch's older exporter writes the traced sizes into attention layers,
    and such a model runs with no others.
    """
    names = list(dict.fromkeys(key for value in _fed(model) for key, _ in _dims(value) if key))
    different = {name: DYNAMIC_SIZES[i % len(DYNAMIC_SIZES)] for i, name in enumerate(names)}
    if {"query", "past", "total"} <= set(names):
        different["total"] = different["query"] + different["past"]
    equal = dict.fromkeys(names, 3)
    yield different
    if not names:
        return
    yield equal
    yield dict.fromkeys(names, 1)
    yield from ({**equal, name: 6} for name in names)
    first = {key for value in _fed(model) for key, _ in _dims(value)[:1]}
    last = {key for value in _fed(model) for key, _ in _dims(value)[-1:]}
    for size in LARGER:
        yield {name: size if name in last else 1 for name in names}
        yield {name: 1 if name in first else size for name in names}
        yield {**dict.fromkeys(names, size)}
    for chosen in itertools.product(_written_sizes(model), repeat=len(names)) if len(names) <= 2 else ():
        yield dict(zip(names, chosen, strict=True))


def _written_sizes(model: onnx.ModelProto) -> list[int]:
    """Return the sizes that constants of shapes name most often: those that Reshape, Expand and Concat read."""
    import onnx

    held = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = (node for node in model.graph.node if node.op_type == "Constant")
    held |= {node.output[0]: a.t for node in constants for a in node.attribute if a.name == "value"}
    counts = Counter[int]()
    for node in model.graph.node:
        for name in node.input if node.op_type in ("Reshape", "Expand", "Concat") else ():
            shape = held.get(name)
            if shape is None or shape.data_type != onnx.TensorProto.INT64 or math.prod(shape.dims) > MOST_RANK:
                continue
            with contextlib.suppress(ValueError, TypeError):  # a damaged constant names nothing
                sizes = onnx.numpy_helper.to_array(shape).reshape(-1)
                counts.update(int(one) for one in sizes if 1 < one <= LARGER[-1])
    return [size for size, _ in counts.most_common(MOST_WRITTEN)]


def elements(model: onnx.ModelProto, sizes: dict[str, int]) -> int:
    """Return how many numbers all inputs together have; sizes that are not named count as 1."""
    shapes = ([sizes.get(name, 1) if name else size for name, size in _dims(value)] for value in _fed(model))
    return sum(math.prod(shape) for shape in shapes)


def _fed(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]


def _dims(value: onnx.ValueInfoProto) -> list[tuple[str, int]]:
    """Return (name, size) of each dimension; a dynamic one without a name gets one."""
    dims = value.type.tensor_type.shape.dim
    known = [dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims]
    return [
        ("", dim.dim_value) if fixed else (dim.dim_param or f"{value.name}:{axis}", 0)
        for axis, (dim, fixed) in enumerate(zip(dims, known, strict=True))
    ]


def random_inputs(model: onnx.ModelProto, sizes: dict[str, int], seed: int = 0) -> Tensors:
    """Return one array per input of a model.

    Args:
        model: gives names, types and shapes.
        sizes: dynamic size by name.
        seed: of the numbers.
    """
    rng = np.random.default_rng(seed)
    limit = _index_limit(model)
    return {value.name: _array(value, sizes, limit, rng) for value in _fed(model)}


def zeros(inputs: Tensors) -> Tensors:
    """Return inputs of the same shapes and types, all zero."""
    return {name: np.zeros_like(array) for name, array in inputs.items()}


def large(model: onnx.ModelProto, sizes: dict[str, int]) -> Tensors:
    """Return other random inputs, floats at a scale of 1e4."""
    inputs = random_inputs(model, sizes, seed=1)
    return {name: (array * LARGE).astype(array.dtype) if is_float(array) else array for name, array in inputs.items()}


def is_float(array: Array) -> bool:
    """Tell whether an array holds floats, those of ml_dtypes included."""
    return array.dtype.kind not in "iubSUO"


def _index_limit(model: onnx.ModelProto) -> int:
    """Return the shortest first axis that a Gather reads, so that indices stay inside every table."""
    dims = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    lengths = [dims[n.input[0]][0] for n in model.graph.node if n.op_type == "Gather" and len(dims.get(n.input[0], ()))]
    return max(1, min(lengths, default=2))


def _array(value: onnx.ValueInfoProto, sizes: dict[str, int], limit: int, rng: np.random.Generator) -> Array:
    import onnx

    if value.type.WhichOneof("value") != "tensor_type":
        raise StageError(f"{value.name}: the input is no tensor")
    kind = value.type.tensor_type
    shape = tuple(sizes.get(name, 2) if name else size for name, size in _dims(value))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "OSU":
        raise StageError(f"{value.name}: the input holds texts")
    if dtype.kind in "iu":
        return rng.integers(0, limit, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)
