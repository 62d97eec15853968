"""Checks about constant numbers: ranges, counts, indices, thresholds, activation parameters."""

from __future__ import annotations

import math

import numpy as np

from converters.scan.answers import Answer, Found, check, whole
from converters.scan.view import Place

EXACT_FLOATS = 2**24  # the first whole number behind which float32 leaves gaps
ALPHA = {"affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
BETA = {"scaledtanh": 1.0, "hardsigmoid": 0.5}


@check
def long_range(place: Place) -> Answer:
    """A range of integers longer than 2^24, where its three bounds are constants."""
    bounds = [whole(place.value(position)) for position in range(3)]
    if any(bound is None or len(bound) != 1 for bound in bounds):
        return None
    start, limit, delta = (bound[0] for bound in bounds if bound)
    if not delta or not all(math.isfinite(one) for one in (start, limit, delta)):
        return None
    length = math.ceil((limit - start) / delta)
    return Found(f"{length} numbers") if length > EXACT_FLOATS and place.kind(0) != "float" else None


@check
def k_over_axis(place: Place) -> Answer:
    """More values asked for than the axis has."""
    k, shape = place.ints("k", 1), place.shape(0)
    axis = place.attributes.get("axis", -1)
    if not k or not shape or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return Found(f"k = {k[0]}, the axis has {size}") if size is not None and k[0] > size else None


@check
def indices_may_repeat(place: Place) -> Answer:
    """Indices that are not known to differ from each other."""
    value = place.value(1)
    if value is None or value.ndim == 0:
        return Found("indices may repeat", sure=False)
    rows = [tuple(row) for row in value.reshape(-1, value.shape[-1]).tolist()]
    return Found("indices repeat") if len(set(rows)) < len(rows) else None


@check
def no_boxes_wanted(place: Place) -> Answer:
    """No number of boxes, or none."""
    if not place.name(2):
        return Found("max_output_boxes_per_class is not given")
    value = whole(place.value(2))
    return Found("max_output_boxes_per_class is 0") if value and value[0] == 0 else None


@check
def negative_dft_axis(place: Place) -> Answer:
    """An axis below 0 that is not -2."""
    value = whole(place.value(2))
    return Found(f"axis {value[0]:g}") if value and value[0] < 0 and value[0] != -2 else None


@check
def window_known(place: Place) -> Answer:
    """A window that is absent or a constant: then the import computes its transform."""
    if not place.name(2):
        return Found("no window")
    return Found("a constant window") if place.view.is_constant(place.name(2)) else None


@check
def cube_of_gelu_fast(place: Place) -> Answer:
    """The cube of the tanh chain that the optimiser fuses: x³ · 0.044715 + x, · √(2/π), Tanh, + 1, times x · 0.5."""
    x = place.name(0)
    if not _is(place, place.name(1), 3.0):
        return None
    at = next(iter(place.node.output), "")
    for op, others in _GELU_CHAIN:
        readers = place.view.readers.get(at, ())
        if len(readers) != 1 or readers[0][0].op_type != op:
            return None
        reader, position = readers[0]
        other = reader.input[1 - position] if len(reader.input) == 2 and position >= 0 else ""
        if others == "x" and other != x:
            return None
        if isinstance(others, float) and not _is(place, other, others):
            return None
        at = next(iter(reader.output), "")
    last = place.view.readers.get(at, ())
    if len(last) != 1 or last[0][0].op_type != "Mul" or len(last[0][0].input) != 2 or last[0][1] < 0:
        return None
    half = place.view.maker(last[0][0].input[1 - last[0][1]])
    if half is None or half.op_type != "Mul" or x not in half.input:
        return None
    return Found(f"the tanh form of Gelu, {next(iter(last[0][0].output), '')!r}")


# operator behind the cube, and its other operand
_GELU_CHAIN: tuple[tuple[str, str | float], ...] = (
    ("Mul", 0.044714998453855515), ("Add", "x"), ("Mul", 0.7978845834732056), ("Tanh", ""), ("Add", 1.0),
)  # fmt: skip


def _is(place: Place, name: str, number: float) -> bool:
    value = place.view.value(name)
    return value is not None and value.size == 1 and np.float32(value.reshape(())) == np.float32(number)


@check
def activation_parameters(place: Place) -> Answer:
    """alpha or beta of an LSTM's activations that differ from ONNX' defaults."""
    activations = [str(name).lower() for name in place.attributes.get("activations", ["sigmoid", "tanh", "tanh"])]
    for name, defaults in (("activation_alpha", ALPHA), ("activation_beta", BETA)):
        given = place.attributes.get(name)
        if not given:
            continue
        wanted = [defaults[activation] for activation in activations if activation in defaults]
        if [round(float(item), 6) for item in given] != wanted[: len(given)]:
            return Found(f"{name} = {[round(float(item), 6) for item in given][:6]}")
    return None
