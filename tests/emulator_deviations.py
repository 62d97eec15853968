"""Every rule of a silent deviation as data: a made input on which it shows, or why it cannot be shown here.

`SHOWN`: rule to a model and inputs. What Sentis is predicted to put out differs from ONNX, and the rule says so.
`NOT_SHOWN`: rule to the reason. `NOT_CURED`: rule to why the pass that claims it does not give ONNX' numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
F32, I32, I64, BOOL, U8, U32 = 1, 6, 7, 9, 2, 12
INF, NAN = np.inf, np.nan


@dataclass(frozen=True)
class Shown:
    """A model on which a rule shows.

    Attributes:
        nodes: of the graph, `y` is its output.
        inputs: one array per input, of the type that the model declares.
        constants: initialisers.
        opset: of the model.
        version: of Sentis.
        reference: what ONNX says, where ONNX Runtime does not run it.
        beside: writes side files and changes the model.
        any_opset: the opset is not one that the version documents; what its code does was read all the same.
    """

    nodes: list[onnx.NodeProto]
    inputs: dict[str, np.ndarray]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 18
    version: str = "2.6"
    reference: np.ndarray | None = None
    beside: Callable[[onnx.ModelProto, Path], None] | None = None
    any_opset: bool = False


def narrow(op: str, left: np.ndarray, right: np.ndarray) -> Shown:
    """Return arithmetic in few bits, its result as floats."""
    return Shown([node(op, ["x", "z"], ["b"]), node("Cast", ["b"], ["y"], to=F32)], {"x": left, "z": right})


def one(op: str, *arrays: Any, held: tuple[int, ...] = (), outputs: int = 1, **given: Any) -> Shown:
    """Return a case of one node; arrays in `held` are constants, None is a missing input."""
    settings = {key: given.pop(key) for key in ("opset", "version", "reference", "any_opset") if key in given}
    names = ["" if array is None else f"x{at}" for at, array in enumerate(arrays)]
    made = node(op, names, ["y", *(f"y{at}" for at in range(1, outputs))], "node", **given)
    there = {name: np.asarray(array) for name, array in zip(names, arrays, strict=True) if name}
    constants = {f"x{at}": there.pop(f"x{at}") for at in held}
    return Shown([made], there, constants, **settings)


def f(*values: Any) -> np.ndarray:
    """Return floats."""
    return np.array(values, np.float32)


def spread(*shape: int) -> np.ndarray:
    """Return floats that differ from each other, negative ones among them."""
    count = int(np.prod(shape))
    return ((np.arange(count, dtype=np.float32) * 37 % 101) / 25 - 2).reshape(shape)


def _constant_beside(model: onnx.ModelProto, folder: Path) -> None:
    """Move the value of a Constant behind another tensor in a side file."""
    values = spread(4)
    (folder / "m.data").write_bytes(np.zeros(4, np.float32).tobytes() + values.tobytes())
    _external(model.graph.node[0].attribute[0].t, [4], 16, 16)


def _shape_value_beside(model: onnx.ModelProto, folder: Path) -> None:
    (folder / "m.data").write_bytes(f(9).tobytes() + f(3).tobytes())
    _external(model.graph.node[0].attribute[0].t, [1], 4, 4)


def _weights_beside(model: onnx.ModelProto, folder: Path) -> None:
    """Put two weights into a side file in the other order."""
    data = {tensor.name: tensor.raw_data for tensor in model.graph.initializer}
    (folder / "m.data").write_bytes(data["b"] + data["a"])
    for tensor, offset in zip(model.graph.initializer, (len(data["b"]), 0), strict=True):
        _external(tensor, list(tensor.dims), offset, len(data[tensor.name]))


def _external(tensor: TensorProto, dims: list[int], offset: int, length: int) -> None:
    name = tensor.name
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.data_location = name, F32, TensorProto.EXTERNAL
    tensor.dims.extend(dims)
    for key, value in (("location", "m.data"), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _without_opset(model: onnx.ModelProto, folder: Path) -> None:
    del model.opset_import[:]
    model.opset_import.add(domain="ai.onnx", version=11)


def lstm(activations: list[str], **given: Any) -> Shown:
    """Return a small LSTM."""
    w, r = spread(1, 16, 3) / 4, spread(1, 16, 4) / 4
    return one("LSTM", spread(3, 2, 3), w, r, held=(1, 2), hidden_size=4, activations=activations, opset=14, **given)


def resize(x: np.ndarray, scales: Any = None, sizes: Any = None, **given: Any) -> Shown:
    """Return a Resize of constant scales or sizes."""
    if scales is not None:
        return one("Resize", x, None, np.asarray(scales, np.float32), held=(2,), **given)
    return one("Resize", x, None, None, np.asarray(sizes, np.int64), held=(3,), **given)


def pool(op: str, **given: Any) -> Shown:
    """Return a pool over a plane."""
    return one(op, spread(1, 1, 7, 8), kernel_shape=[3, 3], **given)


IMAGE = spread(1, 1, 6, 8)
OLD_AXIS = spread(2, 3, 4)

SHOWN: dict[str, Shown] = {
    # operators
    "RELU.INF": one("Relu", f(-INF, 1)),
    "RELU.BIG": one("Relu", f(3e38, 1)),
    "LEAKYRELU.INF": one("LeakyRelu", f(-INF, 1)),
    "GELU.NEG_INF": one("Gelu", f(-INF, 1), opset=20, reference=f(0, 0.84134)),
    "CLIP.NAN": one("Clip", f(NAN, 1), np.float32(-2), np.float32(2)),
    "ASINH.NEGATIVE": one("Asinh", f(-5000, -300, 1)),
    "POW.INT": one("Pow", np.array([4097, 2], np.int32), np.array(3, np.int32), held=(1,)),
    "SUM.SINGLE_INPUT": one("Sum", f(1, -2)),
    "AND.NONBOOL": one("And", np.array([2, 1], np.int32), np.array([1, 1], np.int32), reference=np.array([1, 1])),
    "OR.NONBOOL": one("Or", np.array([2, 0], np.int32), np.array([0, 0], np.int32), reference=np.array([1, 0])),
    "XOR.NONBOOL": one("Xor", np.array([2, 1], np.int32), np.array([1, 1], np.int32), reference=np.array([0, 0])),
    "BITWISENOT.UNSIGNED": one("BitwiseNot", np.array([0, 7], np.uint8)),
    "EINSUM.IMPLICIT": one("Einsum", spread(2, 3), spread(3, 2), equation="bc,ca"),
    "LAYERNORM.AXIS": one("LayerNormalization", spread(2, 1, 3), f(1, 2, 3), f(0, 0, 0), axis=0),
    "RMSNORM.AXIS": one("RMSNormalization", spread(2, 2, 3), f(1, 2, 3), axis=1, opset=23),
    "LAYERNORM.CANCELLATION": one("LayerNormalization", spread(1, 8) + 20000, np.ones(8, np.float32), f(*[0] * 8)),
    "INSTANCENORM.CANCELLATION": one("InstanceNormalization", spread(1, 2, 8) + 20000, f(1, 1), f(0, 0)),
    "SOFTMAX.OPSET_LT13": one("Softmax", OLD_AXIS, opset=11),
    "LOGSOFTMAX.OPSET_LT13": one("LogSoftmax", OLD_AXIS, opset=11),
    "HARDMAX.OPSET_LT13": one("Hardmax", OLD_AXIS, opset=11),
    "TOPK.SMALLEST_NEGATIVE": one("TopK", f(-2, -3, -1), np.array([1]), held=(1,), outputs=2, largest=0),
    "LSTM.SOFTSIGN": lstm(["Sigmoid", "Softsign", "Tanh"]),
    "LSTM.ACT_PARAMS": lstm(["HardSigmoid", "Tanh", "Tanh"], activation_alpha=[0.4]),
    "AVGPOOL.CEIL": pool("AveragePool", strides=[2, 2], ceil_mode=1),
    "MAXPOOL.CEIL": pool("MaxPool", strides=[2, 2], ceil_mode=1),
    "AVGPOOL.DILATION": pool("AveragePool", dilations=[2, 2], opset=19),
    "MAXPOOL.DILATION": pool("MaxPool", dilations=[2, 2]),
    "AVGPOOL.COUNT_INCLUDE_PAD": pool("AveragePool", pads=[1, 1, 1, 1], count_include_pad=1),
    "CONVTRANSPOSE.OUTPUT_SHAPE": one(
        "ConvTranspose", spread(1, 2, 3, 3), spread(2, 1, 3, 3), held=(1,), strides=[2, 2], output_shape=[6, 6]
    ),
    "GRIDSAMPLE.CUBIC_CPU": one(
        "GridSample", IMAGE, np.clip(spread(1, 3, 3, 2) / 3, -0.9, 0.9), mode="cubic", opset=20
    ),
    "ROIALIGN.MAX_NEG": one(
        "RoiAlign", -np.abs(spread(1, 1, 6, 6)) - 1, f([0.3, 0.3, 4.1, 4.2]), np.array([0]), mode="max",
        output_height=2, output_width=2, sampling_ratio=2,
    ),
    "NMS.SCORE_EQ": one(
        "NonMaxSuppression", f([[0, 0, 1, 1], [0, 2, 1, 3]]), f([[0.5, 0.9]]), np.array([5]), f(0.5), f(0.5),
        held=(2, 3, 4),
    ),
    "RESIZE.CUBIC": resize(IMAGE, [1, 1, 2, 2], mode="cubic"),
    "RESIZE.COORD": resize(IMAGE, [1, 1, 0.55, 0.55], mode="linear", opset=19,
                           coordinate_transformation_mode="half_pixel_symmetric"),
    "RESIZE.SIZES_ROUNDING": resize(spread(1, 1, 7, 4), sizes=[1, 1, 31, 4], mode="linear"),
    "RESIZE.AXES_SCALES": resize(spread(2, 2, 4, 4), [2, 2], axes=[2, 3]),
    "RESIZE.CPU_NEAREST_INTSCALE": resize(IMAGE, [1, 1, 3, 3], coordinate_transformation_mode="align_corners"),
    "RESIZE.NEAREST_TIES": resize(spread(1, 1, 4, 64), [1, 1, 1, 1.5]),
    "RESIZE.DOWN_LINEAR": resize(IMAGE, [1, 1, 0.5, 0.5], mode="linear", antialias=1),
    "PAD.REFLECT_BIG": one("Pad", spread(1, 3), np.array([0, 4, 0, 0]), held=(1,), mode="reflect", opset=19,
                           reference=np.pad(spread(1, 3), [(0, 0), (4, 0)], mode="reflect")),
    "CAST.TO_BOOL": Shown(
        [node("Cast", ["x"], ["b"], to=BOOL), node("Cast", ["b"], ["y"], to=F32)], {"x": f(0.7, 5, 0)}
    ),
    "CAST.NARROW_INT": Shown(
        [node("Cast", ["x"], ["b"], to=U8), node("Cast", ["b"], ["y"], to=F32)], {"x": np.array([300, 7], np.int32)}
    ),
    "ADD.NARROW": narrow("Add", np.array([200, 7], np.uint8), np.array([100, 1], np.uint8)),
    "SUB.NARROW": narrow("Sub", np.array([1, 7], np.uint8), np.array([2, 1], np.uint8)),
    "MUL.NARROW": narrow("Mul", np.array([100, 7], np.int8), np.array([3, 1], np.int8)),
    "CAST.FP16": Shown(
        [node("Cast", ["x"], ["b"], to=10), node("Cast", ["b"], ["y"], to=F32)], {"x": f(2049, 0.1)}
    ),
    "DROPOUT.TRAINING": one("Dropout", f(*[1] * 16), np.float32(0.5), np.array(True), held=(1, 2), seed=7, opset=13),
    "BATCHNORM.TRAINING_OLD": Shown(
        [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "o", "p", "q", "r"])],
        {"x": spread(2, 3, 4)}, {"s": f(1, 2, 3), "b": f(0, 1, 2), "m": f(1, 1, 1), "v": f(4, 4, 4)}, opset=9,
    ),
    "RANGE.BIG": one("Range", np.int64(0), np.int64(2**24 + 1), np.int64(1), held=(0, 1, 2)),
    "CONSTANT.EXTERNAL": Shown(
        [node("Constant", [], ["c"], value=numpy_helper.from_array(spread(4))), node("Add", ["x", "c"], ["y"])],
        {"x": f(1, 2, 3, 4)}, beside=_constant_beside,
    ),
    "CONSTANTOFSHAPE.EXTERNAL": Shown(
        [node("ConstantOfShape", ["x"], ["y"], value=numpy_helper.from_array(f(3)))], {"x": np.array([2, 2])},
        beside=_shape_value_beside,
    ),
    # the model
    "EXTERNAL.OFFSET": Shown(
        [node("Mul", ["x", "a"], ["h"]), node("Add", ["h", "b"], ["y"])], {"x": spread(4, 4)},
        {"a": spread(4, 4), "b": spread(4, 4) * 3 + 1}, beside=_weights_beside,
    ),
    "INT64.RANGE": Shown(
        [node("Cast", ["c"], ["f"], to=F32), node("Add", ["x", "f"], ["y"])], {"x": f(1)}, {"c": np.array([2**40])}
    ),
    "DOUBLE.RANGE": Shown(
        [node("Cast", ["c"], ["f"], to=F32), node("Add", ["x", "f"], ["y"])], {"x": f(1)}, {"c": np.array([1e12])}
    ),
    "OPSET.DOMAIN": Shown([node("Softmax", ["x"], ["y"])], {"x": OLD_AXIS}, beside=_without_opset, opset=11),
    "OPERATOR.DOMAIN_IGNORED": Shown(
        [node("Gelu", ["x"], ["y"], domain="com.microsoft", approximate="tanh")], {"x": f(1, 2)},
        reference=f(0.841345, 1.9545),
    ),
    "ATTRIBUTE.MODE": one("GridSample", IMAGE, spread(1, 2, 2, 2) / 3, mode="strange", reference=f(0)),
    "ATTRIBUTE.IGNORED": one(
        "BatchNormalization", spread(4, 2), f(1, 2), f(0, 1), f(0, 0), f(1, 1), held=(1, 2, 3, 4), outputs=3,
        training_mode=1, opset=15,
    ),
}  # fmt: skip

REDUCED: dict[str, Any] = {
    "ReduceL1": lambda x, axis: np.abs(x).sum(axis),
    "ReduceL2": lambda x, axis: np.sqrt((x * x).sum(axis)),
    "ReduceLogSum": lambda x, axis: np.log(x.sum(axis)),
    "ReduceLogSumExp": lambda x, axis: np.log(np.exp(x).sum(axis)),
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, axis: (x * x).sum(axis),
}
AXES = np.abs(spread(2, 3)) + 0.5
SHOWN |= {  # no valid ONNX any more: the reference is what the attribute says
    f"{op.upper()}.AXES_SIDE": one(op, AXES, axes=[1], keepdims=0, reference=reduced(AXES, axis=1))
    for op, reduced in REDUCED.items()
}
SHOWN["SQUEEZE.ATTR_NEW"] = one("Squeeze", f([[1], [2]])[None], axes=[0], reference=f([1], [2]))

LEGACY: dict[str, Any] = {
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
}


def legacy(op: str) -> Shown:
    """Return a broadcast of opset 6: the second operand lies along the axis that the attribute names."""
    x, y = np.abs(spread(3, 3)) + 0.5, f(0.5, 1.5, 3)
    if op in ("And", "Or", "Xor"):
        x, y = np.tril(np.ones((3, 3), np.bool_)), np.array([True, False, True])
    elif op == "Equal":  # of integers and bools in opset 1
        x, y = (x * 2).astype(np.int32), (y * 2).astype(np.int32)
    reference = LEGACY[op](x, y[:, None])
    return one(op, x, y, axis=0, broadcast=1, opset=6, any_opset=True, reference=reference)


SHOWN |= {f"{op.upper()}.LEGACY_AXIS": legacy(op) for op in LEGACY}

NEGATIVE = f(-2, 0.5, 3)
NOTHING: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "ReduceL1": (NEGATIVE, np.abs(NEGATIVE)),
    "ReduceL2": (NEGATIVE, np.abs(NEGATIVE)),
    "ReduceLogSum": (np.abs(NEGATIVE), np.log(np.abs(NEGATIVE))),
    "ReduceSumSquare": (NEGATIVE, NEGATIVE * NEGATIVE),
}
SHOWN |= {
    f"{op.upper()}.NOOP": one(
        op, x, noop_with_empty_axes=1, opset=18, version="2.4", any_opset=True, reference=reference
    )
    for op, (x, reference) in NOTHING.items()
}
SHOWN["SWISH.ALPHA"] = one(
    "Swish",
    f(-1, 2),
    alpha=2.0,
    opset=24,
    version="2.4",
    any_opset=True,
    reference=f(-1, 2) / (1 + np.exp(-2 * f(-1, 2))),
)


def window(op: str, a: float, b: float, c: float) -> Shown:
    """Return a window whose size is the model's second input; the first is another number."""
    turns = 2 * np.pi * np.arange(5) / 5
    made = Shown(
        [node(op, ["size"], ["w"]), node("Cast", ["first"], ["f"], to=F32), node("Mul", ["w", "f"], ["y"])],
        {"first": np.array(3, np.int32), "size": np.array(5, np.int32)},
    )
    return replace(made, reference=3 * (a - b * np.cos(turns) + c * np.cos(2 * turns)))


SHOWN |= {
    "HANNWINDOW.INDEX": window("HannWindow", 0.5, 0.5, 0),
    "HAMMINGWINDOW.INDEX": window("HammingWindow", 25 / 46, 21 / 46, 0),
    "BLACKMANWINDOW.INDEX": window("BlackmanWindow", 0.42, 0.5, 0.08),
}

CLAMP = "tanh is ±1 in float32 from 9 on: the clamp at 16 changes no number, only the order of products does"

NOT_SHOWN: dict[str, str] = {
    "MELWEIGHTMATRIX.INDEX": "edges in Hz are floats: what a number read from an integer tensor is was not read",
    "CONVTRANSPOSE.3D_CPU": "suspected only: not predicted where the depth is padded",
    "MATMUL.CONST_RANK3_ADD": "suspected only: not predicted",
    "SCATTERND.CPU_RACE": "updates get lost by chance: not predicted where two have one place",
    "TOPK.K_TOO_LARGE": "what stands in the places that are not written is not known: not predicted",
    "STFT.RANK2": "which layout it takes is not known: not predicted",
    "CAST.FOLD_ROUNDING": "which of two numbers the layers behind it get was not read: not predicted where they differ",
    "POW.NEG_FRACT_GPU": "GPUs only; the CPU backend is emulated",
    "NMS.MAXOUT_MISSING": "ONNX says the same: nothing deviates",
    "GELU.TANH": CLAMP,
    "POW.GELU_FAST": CLAMP,
    "CLIP.INF": "the bound that ONNX gives a missing one is the same: nothing deviates",
    "MOD.FLOAT_FMOD0": "ONNX forbids it and gives no number to compare with",
    "REDUCELOGSUMEXP.NOOP": "log(exp(x)) is x: nothing deviates",
    "CAST.INT64": "what a float outside int32 is cast to is undefined: not predicted",
    "SPLIT.UNEVEN_OLD": "ONNX refuses the model: there is nothing to compare with",
    "DIMS.NAMES": "which of more than 256 names stand for each other is known, what that breaks is not",
}  # fmt: skip

BAKED = "a size that is an input: the pass bakes the window once `fix --bind` made it a constant"

NOT_CURED: dict[str, str] = {
    **{f"{op}WINDOW.INDEX": BAKED for op in ("BLACKMAN", "HAMMING", "HANN")},
    "DROPOUT.TRAINING": "by design: the mended graph drops nothing, as Sentis does",
    "BATCHNORM.TRAINING_OLD": "by design: the mended graph does not train, as Sentis does not",
    "ATTRIBUTE.IGNORED": "by design: the mended graph does not train, as Sentis does not",
    "INT64.RANGE": "the pass writes the number that Sentis reads: no integer of Sentis holds the other",
}
