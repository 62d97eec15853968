"""Cases of one operator for attributes that the onnx package's own cases leave out, with ONNX Runtime as reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

from converters.ort_session import open_session

Case = tuple[str, onnx.ModelProto, list[np.ndarray], list[np.ndarray]]
rng = np.random.default_rng(20261130)


def floats(*shape: int) -> np.ndarray:
    """Return normal numbers."""
    return rng.normal(size=shape).astype(np.float32)


def made(name: str, op: str, opset: int, *arrays: np.ndarray | None, outputs: int = 1, **given: Any) -> Case:
    """Return a case of one node; a missing input is None."""
    names = [f"x{at}" if array is not None else "" for at, array in enumerate(arrays)]
    inputs = [np.asarray(array) for array in arrays if array is not None]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(filter(None, names), inputs, strict=True)
    ]
    out = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, names, out, **given)
    graph = helper.make_graph([node], "made", infos, [onnx.ValueInfoProto(name=name) for name in out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return name, model, inputs, []


def with_reference(case: Case) -> Case:
    """Return a case with ONNX Runtime's outputs."""
    name, model, inputs, _ = case
    fed = dict(zip([value.name for value in model.graph.input], inputs, strict=True))
    return name, model, inputs, list(open_session(model.SerializeToString()).run(None, fed))


def own_cases() -> Iterator[Case]:
    """Yield (name, model, inputs, outputs)."""
    for case in (*_plain(), *_attributes(), *_lstms()):
        yield with_reference(case)
    bias, x = [0.5, -1.0, 2.0], floats(2, 3, 4, 4)
    name, model, inputs, _ = made("own_imagescaler", "ImageScaler", 8, x, bias=bias, scale=2.0)
    yield name, model, inputs, [x * 2 + np.array(bias, np.float32).reshape(1, 3, 1, 1)]


UNARY = (
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "HardSigmoid", "HardSwish", "Hardmax", "Identity", "IsInf", "IsNaN", "LeakyRelu", "LogSoftmax", "Mish", "Neg",
    "NonZero", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus",
    "Softsign", "Tan", "Tanh", "ThresholdedRelu", "Flatten", "Shape", "Size", "Transpose", "GlobalAveragePool",
    "GlobalMaxPool", "ArgMax", "ArgMin", "Squeeze", "Dropout",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "PRelu")
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _plain() -> Iterator[Case]:
    """Yield every operator once, with little more than its inputs."""
    x, y = rng.uniform(-0.9, 0.9, (2, 3, 4)).astype(np.float32), floats(3, 1)
    for op in UNARY:
        yield made(f"own_{op.lower()}", op, 20, x)
    for op in ("Acosh", "Log", "Sqrt"):
        yield made(f"own_{op.lower()}", op, 20, np.abs(x) + 1.5)
    for op in BINARY:
        yield made(f"own_{op.lower()}", op, 20, np.abs(x) + 0.1, np.abs(y) if op == "Pow" else y)
    for op in COMPARED:
        yield made(f"own_{op.lower()}", op, 20, np.round(x * 3), np.round(y))
    truth, other = np.array([[True], [False]]), np.array([True, False, True])
    for op in ("And", "Or", "Xor"):
        yield made(f"own_{op.lower()}", op, 20, truth, other)
    yield made("own_not", "Not", 20, truth)
    yield made("own_where", "Where", 20, truth[:, None], x, y)
    bits, more = np.array([-5, 12, 7], np.int32), np.array([3, 10, -1], np.int32)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield made(f"own_{op.lower()}", op, 20, bits, more)
    yield made("own_bitwisenot", "BitwiseNot", 20, bits)
    yield made("own_gelu", "Gelu", 20, x)
    yield made("own_cast", "Cast", 20, x * 10, to=6)
    yield made("own_castlike", "CastLike", 20, x * 10, bits)
    yield made("own_concat", "Concat", 20, x, x, axis=1)
    yield made("own_constantofshape", "ConstantOfShape", 20, np.array([2, 3]))
    yield made("own_cumsum", "CumSum", 20, x, np.array(1), exclusive=1, reverse=1)
    yield made("own_compress", "Compress", 20, x, other, axis=1)
    yield made("own_expand", "Expand", 20, y, np.array([2, 3, 4]))
    yield made("own_tile", "Tile", 20, y, np.array([2, 3]))
    yield made("own_reshape", "Reshape", 20, x, np.array([0, -1]))
    yield made("own_range", "Range", 20, np.float32(1), np.float32(4.2), np.float32(0.5))
    yield made("own_depthtospace", "DepthToSpace", 20, floats(1, 8, 2, 3), blocksize=2, mode="CRD")
    yield made("own_spacetodepth", "SpaceToDepth", 20, floats(1, 2, 4, 6), blocksize=2)
    yield made("own_matmul", "MatMul", 20, floats(2, 3, 4), floats(4, 5))
    yield made("own_einsum", "Einsum", 20, floats(2, 3, 4), floats(4, 5), equation="bij,jk->bik")
    at = np.array([[0, -1], [1, 0]])
    yield made("own_gather", "Gather", 20, x, at, axis=1)
    yield made("own_gatherelements", "GatherElements", 20, floats(2, 2), at, axis=1)
    yield made("own_gathernd", "GatherND", 20, floats(2, 2, 3), at)
    yield made("own_scatterelements", "ScatterElements", 20, floats(3, 2), at, floats(2, 2), axis=0, reduction="add")
    yield made("own_scatter", "Scatter", 10, floats(3, 2), at, floats(2, 2), axis=1)
    yield made("own_scatternd", "ScatterND", 20, floats(4, 3), np.array([[1], [3]]), floats(2, 3), reduction="max")
    norm = [floats(2, 3, 5), floats(3), floats(3)]
    yield made("own_batchnormalization", "BatchNormalization", 15, *norm, floats(3), np.abs(floats(3)) + 0.1)
    yield made("own_instancenormalization", "InstanceNormalization", 20, *norm)
    yield made("own_layernormalization", "LayerNormalization", 20, floats(2, 3), floats(3), floats(3))
    yield made("own_rmsnormalization", "RMSNormalization", 23, floats(2, 3), floats(3))
    yield made("own_lrn", "LRN", 20, floats(1, 5, 2, 2), size=3, alpha=0.1, beta=0.5, bias=2.0)
    image = floats(1, 2, 4, 8)
    yield made("own_resize", "Resize", 19, image, None, np.array([1, 1, 2, 0.5], np.float32), mode="linear")
    grid = rng.uniform(-1, 1, (1, 3, 5, 2)).astype(np.float32)
    yield made("own_gridsample", "GridSample", 20, image, grid, padding_mode="border", align_corners=1)
    rois = np.array([[0.3, 0.2, 5.1, 3.3]], np.float32)
    yield made("own_roialign", "RoiAlign", 16, image, rois, np.array([0]), output_height=2, output_width=2)
    boxes = rng.uniform(0, 4, (1, 6, 2)).astype(np.float32)
    boxes, scores = np.concatenate([boxes, boxes + 2], 2), rng.uniform(0.1, 1, (1, 1, 6)).astype(np.float32)
    limits = [np.array([4]), np.float32([0.4]), np.float32([0.3])]
    yield made("own_nonmaxsuppression", "NonMaxSuppression", 11, boxes, scores, *limits)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield made(f"own_{op.lower()}", op, 17, np.array(9), periodic=0)
    yield made("own_dft", "DFT", 20, floats(1, 8, 1), None, np.array(1), onesided=1)


def _attributes() -> Iterator[Case]:
    x = floats(3, 4, 5)
    yield made("own_clip_6", "Clip", 10, x, min=-0.5, max=0.25)
    yield made("own_clip_int", "Clip", 13, np.arange(-4, 5, dtype=np.int32), np.int32(-2), np.int32(3))
    yield made("own_constant_floats", "Constant", 13, value_floats=[1.0, 2.5])
    yield made("own_constant_int", "Constant", 13, value_int=7)
    kernel = floats(4, 2, 3, 3)
    yield made("own_conv_dilations", "Conv", 13, floats(1, 2, 9, 9), kernel, dilations=[2, 2], pads=[2, 2, 2, 2])
    yield made("own_conv_groups_1d", "Conv", 13, floats(2, 4, 11), floats(6, 2, 3), floats(6), group=2, strides=[2])
    yield made("own_conv_3d", "Conv", 13, floats(1, 2, 5, 6, 7), floats(3, 2, 2, 3, 2), pads=[1, 1, 0, 0, 1, 1])
    yield made("own_conv_same_upper", "Conv", 13, floats(1, 2, 7, 8), kernel, auto_pad="SAME_UPPER", strides=[2, 2])
    yield made("own_pad_2", "Pad", 10, x, pads=[0, 1, 0, 0, 2, 1], value=1.5)
    yield made("own_pad_negative", "Pad", 13, x, np.array([0, -1, 0, 0, 2, -1], np.int64))
    yield made("own_pad_reflect", "Pad", 13, x, np.array([0, 2, 1, 0, 1, 3], np.int64), mode="reflect")
    yield made("own_pad_edge", "Pad", 13, x, np.array([1, 2, 1, 0, 1, 3], np.int64), mode="edge")
    for op in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        opset = 11 if op == "Sum" else 13
        yield made(f"own_reduce{op.lower()}_axes", f"Reduce{op}", opset, x, axes=[0, -1], keepdims=0)
    yield made("own_reducelogsum_axes", "ReduceLogSum", 13, np.abs(x) + 1, axes=[1])
    for op in ("L1", "L2", "Max", "Mean", "Min", "Prod", "SumSquare"):
        yield made(f"own_reduce{op.lower()}_noop", f"Reduce{op}", 18, x, noop_with_empty_axes=1)
    yield made("own_reducesum_int", "ReduceSum", 13, np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.array([1]))
    yield made("own_reducel1_int", "ReduceL1", 13, np.arange(-12, 12, dtype=np.int32).reshape(2, 3, 4), axes=[1])
    yield made("own_slice_9", "Slice", 9, x, starts=[1, -3], ends=[3, 2**31], axes=[0, 2])
    yield made("own_slice_9_no_axes", "Slice", 9, x, starts=[1, 1], ends=[3, 3])
    yield made("own_split_11", "Split", 11, x, outputs=2, axis=1, split=[1, 3])
    yield made("own_squeeze_11", "Squeeze", 11, floats(1, 3, 1), axes=[0])
    yield made("own_unsqueeze_11", "Unsqueeze", 11, x, axes=[0, 2])
    yield made("own_topk_9", "TopK", 9, x, outputs=2, k=2, axis=1)
    yield made("own_topk_smallest_positive", "TopK", 11, np.abs(x), np.array([3]), outputs=2, largest=0)
    yield made("own_upsample_7", "Upsample", 7, floats(1, 2, 3, 4), scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")
    values = np.array([-1.5, 2.5], np.float32)
    at = np.array([[0, -1], [3, 9]], np.int64)
    yield made("own_onehot_axis", "OneHot", 13, at, np.array(4, np.int64), values, axis=1)
    yield made("own_onehot_depth_of_rank_1", "OneHot", 13, at, np.array([5], np.int64), np.array([0, 7], np.int64))
    window = np.hanning(8).astype(np.float32)
    step, length = np.array(4, np.int64), np.array(8, np.int64)
    yield made("own_stft_twosided", "STFT", 17, floats(1, 32, 1), step, window, length, onesided=0)
    yield made("own_trilu_int", "Trilu", 14, np.arange(12, dtype=np.int64).reshape(3, 4), upper=0)
    yield made("own_mod_int", "Mod", 13, np.array([-7, 7, -7], np.int32), np.array([3, -3, 3], np.int32))
    yield made("own_pow_half", "Pow", 13, np.abs(x), np.float32(0.5))
    yield made("own_gemm", "Gemm", 13, floats(4, 3), floats(5, 4), floats(5), transA=1, transB=1, alpha=0.5, beta=2.0)
    yield made("own_averagepool_1d", "AveragePool", 13, x, kernel_shape=[2], pads=[1, 1], strides=[2])
    yield made("own_maxpool_3d", "MaxPool", 13, floats(1, 2, 4, 5, 6), kernel_shape=[2, 3, 2], auto_pad="SAME_LOWER")
    yield made("own_convtranspose", "ConvTranspose", 13, floats(1, 4, 5, 5), floats(4, 3, 3, 3), group=2,
               strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1], dilations=[2, 1])  # fmt: skip


def _lstms() -> Iterator[Case]:
    steps, batch, width, hidden = 5, 2, 3, 4

    def parts(directions: int) -> list[np.ndarray]:
        shapes = [(directions, 4 * hidden, width), (directions, 4 * hidden, hidden), (directions, 8 * hidden)]
        return [floats(steps, batch, width), *(floats(*shape) for shape in shapes)]

    tail = [np.array([5, 3], np.int32), floats(2, batch, hidden), floats(2, batch, hidden), floats(2, 3 * hidden)]
    yield made("own_lstm_all_inputs", "LSTM", 14, *parts(2), *tail, outputs=3, hidden_size=hidden,
               direction="bidirectional")  # fmt: skip
    yield made("own_lstm_reverse", "LSTM", 14, *parts(1), outputs=3, hidden_size=hidden, direction="reverse")
    yield made("own_lstm_clip", "LSTM", 14, *parts(1), outputs=3, hidden_size=hidden, clip=0.5)
    yield made("own_lstm_coupled", "LSTM", 14, *parts(1), outputs=3, hidden_size=hidden, input_forget=1)
    yield made("own_lstm_activations", "LSTM", 14, *parts(1), outputs=3, hidden_size=hidden,
               activations=["HardSigmoid", "Relu", "Softplus"])  # fmt: skip
