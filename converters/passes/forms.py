"""Forms that several passes write: activations and norms the way Sentis computes, or fuses, them.

Operand order and constants are Sentis' own patterns (facts, `fusions`) where the fused layer is wanted, and another
form where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from converters.passes.emit import Emit, Refusal

GELU_OPSET, LAYER_NORM_OPSET = 20, 17  # where ONNX itself has them


def gelu_tanh(emit: Emit, x: str, to: str) -> None:
    """Write 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))) with x³ as x·x·x: a Pow would be fused back to GeluFast."""
    cube = emit("Mul", emit("Mul", x, x), x)
    inner = emit("Add", x, emit("Mul", cube, emit.number(0.044715, x)))
    tanh = emit("Tanh", emit("Mul", inner, emit.number(math.sqrt(2 / math.pi), x)))
    emit("Mul", emit("Mul", x, emit.number(0.5, x)), emit("Add", tanh, emit.number(1, x)), to=to)


def gelu_erf(emit: Emit, x: str, to: str) -> None:
    """Write the exact Gelu: the operator where the opset has it, else the chain that Sentis fuses to it."""
    if emit.place.opset >= GELU_OPSET:
        emit("Gelu", x, to=to)
        return
    erf = emit("Erf", emit("Div", x, emit.number(math.sqrt(2), x)))
    product = emit("Mul", x, emit("Add", erf, emit.number(1, x)))
    emit("Mul", product, emit.number(0.5, x), to=to)


def in_a_row(emit: Emit, position: int, sizes: Sequence[int]) -> str:
    """Write an input of some sizes as rank 1; what broadcasts over them is repeated.

    Raises:
        Refusal: its own sizes are not known.
    """
    name, shape = emit.place.name(position), emit.place.shape(position)
    if shape is None or None in shape:
        raise Refusal(f"the shape of {name!r} is not known")
    if tuple(shape) != tuple(sizes):
        name = emit("Expand", name, emit.ints(*sizes))
    return emit.reshaped(name, [-1])


def rms_norm(emit: Emit, x: str, scale: str, epsilon: float, to: str) -> None:
    """Write x / √(mean(x²) + ε) · scale over the last axis, with Div(1, ·) so that Sentis fuses it."""
    mean = emit.reduced("ReduceMean", emit("Pow", x, emit.number(2, x)), [-1])
    root = emit("Sqrt", emit("Add", mean, emit.number(epsilon, x)))
    emit("Mul", scale, emit("Mul", x, emit("Div", emit.number(1, x), root)), to=to)


def layer_norm(emit: Emit, x: str, scale: str, bias: str, epsilon: float, to: str) -> None:
    """Write a LayerNormalization over the last axis; before opset 17 the chain that Sentis fuses to it."""
    if emit.place.opset >= LAYER_NORM_OPSET:
        emit("LayerNormalization", x, scale, bias, to=to, axis=-1, epsilon=epsilon)
        return
    centred = emit("Sub", x, emit.reduced("ReduceMean", x, [-1]))
    variance = emit.reduced("ReduceMean", emit("Pow", centred, emit.number(2, x)), [-1])
    root = emit("Sqrt", emit("Add", variance, emit.number(epsilon, x)))
    emit("Add", emit("Mul", emit("Div", centred, root), scale), bias, to=to)


def moments(emit: Emit, x: str, axes: list[int], epsilon: float, mean: str, inverse: str) -> None:
    """Write the mean and 1 / √(variance + ε) over some axes; an empty name leaves one out."""
    if mean or inverse:
        average = emit.reduced("ReduceMean", x, axes, to=mean)
        if inverse:
            centred = emit("Sub", x, average)
            variance = emit.reduced("ReduceMean", emit("Mul", centred, centred), axes)
            emit("Reciprocal", emit("Sqrt", emit("Add", variance, emit.number(epsilon, x))), to=inverse)


def zeros_like(emit: Emit, name: str) -> str:
    """Return a constant of zeros with a tensor's shape.

    Raises:
        Refusal: its shape is not known.
    """
    shape = emit.place.view.shape(name)
    if shape is None or None in shape:
        raise Refusal(f"the shape of {name!r} is not known")
    return emit.array(np.zeros([size or 0 for size in shape], emit.dtype(name)))


def transposed(emit: Emit, name: str, what: str) -> str:
    """Return a tensor with its last two axes exchanged.

    Raises:
        Refusal: its rank is not known.
    """
    shape = emit.place.view.shape(name)
    if shape is None or len(shape) < 2:
        raise Refusal(f"the rank of {what} {name!r} is not known")
    rank = len(shape)
    return emit("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2])


ACTIVATIONS = {"Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip", "Elu", "Softsign", "Softplus", ""}


def activation(emit: Emit, x: str, name: str, parameters: list[float], to: str) -> None:
    """Write an activation that ONNX Runtime fused into another operator.

    Raises:
        Refusal: another one than those.
    """
    if name not in ACTIVATIONS:
        raise Refusal(f"its activation {name!r} is not known")
    if name == "Clip":
        emit.clipped(x, parameters[0], parameters[1], to=to)
    elif name in ("LeakyRelu", "Elu"):
        emit(name, x, to=to, alpha=parameters[0] if parameters else None)
    elif name == "HardSigmoid":
        both = dict(zip(("alpha", "beta"), parameters, strict=False))
        emit(name, x, to=to, **both)
    else:
        emit(name or "Identity", x, to=to)
