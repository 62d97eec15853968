"""A graph that each checked rule must find, and one that it must not: ONNX text, small enough to read."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.parser

IMAGE, ROWS = "float[1,3,8,8] x", "float[2,8] x"


@dataclass(frozen=True)
class Case:
    """Two graphs for one rule.

    Attributes:
        id: the rule's.
        fires: nodes that it must find.
        silent: nodes that it must not find; given the same inputs unless `silent_inputs` says otherwise.
        inputs: the graph's inputs.
        opset: of the domain ''.
        init: initialisers.
        silent_opset: another opset for the second graph.
        silent_inputs: other inputs for the second graph.
        silent_init: other initialisers for the second graph.
    """

    id: str
    fires: str
    silent: str
    inputs: str = ROWS
    opset: int = 15
    init: str = ""
    silent_opset: int = 0
    silent_inputs: str = ""
    silent_init: str = ""

    def graphs(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        second = (self.silent, self.silent_inputs or self.inputs, self.silent_opset or self.opset)
        return graph(self.fires, self.inputs, self.opset, self.init), graph(*second, self.silent_init or self.init)


def graph(body: str, inputs: str = ROWS, opset: int = 15, init: str = "", output: str = "float[] y") -> onnx.ModelProto:
    """Return a model from ONNX text; initialisers as raw data, as exporters write them."""
    opsets = f'"" : {opset}' + "".join(f', "{name}" : 1' for name in ("com.microsoft", "com.acme") if name in body)
    held = f"<{init}>" if init else ""
    text = f"<ir_version: 10, opset_import: [{opsets}]> g ({inputs}) => ({output}) {held} {{ {body} }}"
    model = onnx.parser.parse_model(text)
    for tensor in model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT16, onnx.TensorProto.UINT8):
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    return model


def words(text: str) -> list[str]:
    return text.split()


def _int_inputs() -> list[Case]:
    first = words(
        """Celu Elu Erf Gelu Hardmax HardSigmoid HardSwish LeakyRelu Mish Relu Selu Sigmoid
        Softplus Softsign Tanh ThresholdedRelu LogSoftmax Softmax Swish Shrink IsInf IsNaN
        Ceil Floor Sqrt Exp Log Round Reciprocal LRN AveragePool MaxPool GlobalAveragePool
        GlobalMaxPool ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean Resize Acos Asin Atan
        Cos Sin Tan Acosh Asinh Atanh Cosh Sinh LayerNormalization BatchNormalization
        InstanceNormalization LSTM"""
    )
    both = "int32[2,8] x, float[2,8] f"
    cases = [Case(f"{op.upper()}.INT_INPUT", f"y = {op}(x)", f"y = {op}(f)", both) for op in first]
    for op in ("PRelu", "Conv", "ConvTranspose", "Gemm", "MatMul", "GridSample"):
        inputs = "int64[2,8] x, float[2,8] f"
        cases.append(Case(f"{op.upper()}.INT_INPUT", f"y = {op}(f, x)", f"y = {op}(f, f)", inputs))
    for op, given in (("Einsum", '<equation="i,i,i->i">'), ("Mean", "")):
        inputs = "uint8[8] x, float[8] f"
        cases.append(Case(f"{op.upper()}.INT_INPUT", f"y = {op}{given}(f, f, x)", f"y = {op}{given}(f, f, f)", inputs))
    return cases


def _mixed() -> list[Case]:
    inputs = "float[2,8] x, int64[2,8] i, bool[2,8] b"
    ops = words("Equal Greater GreaterOrEqual Less LessOrEqual Add Sub Mul Div Max Min Sum Mod")
    cases = [Case(f"{op.upper()}.MIXED", f"y = {op}(x, i)", f"y = {op}(x, x)", inputs) for op in ops]
    cases.append(Case("CONCAT.MIXED", "y = Concat<axis=0>(x, i)", "y = Concat<axis=0>(i, b)", inputs))
    return [*cases, Case("WHERE.MIXED", "y = Where(b, x, i)", "y = Where(b, x, x)", inputs)]


def _families() -> list[Case]:
    cases = []
    for op in words("And Or Xor Equal Greater Less Add Sub Mul Div Pow"):
        old = f"y = {op}<broadcast=1, axis=0>(x, w)"
        cases.append(Case(f"{op.upper()}.LEGACY_AXIS", old, old, f"{ROWS}, float[2] w", opset=6, silent_opset=7))
    for op in words("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"):
        silent = f"y = {op}<noop_with_empty_axes=1>(x, a)"
        fires = f"y = {op}<noop_with_empty_axes=1>(x)"
        cases.append(Case(f"{op.upper()}.NOOP", fires, silent, opset=18, init="int64[1] a = {0}"))
    for op in words(
        """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceMean
        ReduceProd"""
    ):
        body = f"y = {op}<axes=[0]>(x)"
        cases.append(Case(f"{op.upper()}.AXES_SIDE", body, body, opset=18, silent_opset=17))
    body = "y = ReduceSumSquare<axes=[0]>(x)"
    cases.append(Case("REDUCESUMSQUARE.AXES_SIDE", body, body, opset=18, silent_opset=17))
    body = "y = ReduceSum<axes=[0]>(x)"
    cases.append(Case("REDUCESUM.AXES_SIDE", body, body, opset=13, silent_opset=12))
    for op in ["BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"]:
        cases.append(Case(f"{op.upper()}.INDEX", f"y = {op}(n)", "y = Relu(w)", "int64 n, float[400] w", opset=17))
    for op in ["And", "Or", "Xor"]:
        inputs = "bool[2] b, float[2] x"
        silent = f"p = Less(x, x) q = Not(b) y = {op}(p, q)"
        cases.append(Case(f"{op.upper()}.NONBOOL", f"p = Less(x, x) y = {op}(p, b)", silent, inputs))
    for op in ["Hardmax", "LogSoftmax", "Softmax"]:
        inputs = "float[2,3,8] x"
        cases.append(Case(f"{op.upper()}.OPSET_LT13", f"y = {op}(x)", f"y = {op}<axis=2>(x)", inputs, opset=12))
    return cases


POOL = "kernel_shape=[2,2], strides=[2,2]"
ODD = "float[1,3,9,9] x"
LINEAR = 'mode="linear"'
GELU_CHAIN = """t = Pow(x, h) u = Mul(t, a) v = Add(x, u) w = Mul(v, b) q = Tanh(w) r = Add(q, o) p = Mul(x, f)
y = Mul(p, r)"""
GELU_CONSTANTS = "float h = {3}, float a = {0.044715}, float b = {0.7978846}, float o = {1}, float f = {0.5}"
CASES = [
    *_int_inputs(),
    *_mixed(),
    *_families(),
    Case("PRELU.BROADCAST", "y = PRelu(x, s)", "y = PRelu(x, w)", f"{ROWS}, float[3,2,8] s, float[8] w"),
    Case("GELU.TANH", 'y = Gelu<approximate="tanh">(x)', "y = Gelu(x)", opset=20),
    Case("SWISH.ALPHA", "y = Swish<alpha=1.5>(x)", "y = Swish<alpha=1.0>(x)"),
    Case(
        "CONV.SPATIAL", "y = Conv(x, w)", "y = Conv(a, b)",
        "float[1,1,4,4,4,4] x, float[1,1,2,2,2,2] w, float[1,1,4,4,4] a, float[1,1,2,2,2] b",
    ),
    Case("CONVTRANSPOSE.OUTPUT_SHAPE", "y = ConvTranspose<output_shape=[9,9]>(x, w)", "y = ConvTranspose(x, w)",
         f"{IMAGE}, float[3,1,2,2] w"),
    Case("CONVTRANSPOSE.3D_CPU", "y = ConvTranspose<pads=[1,0,0,1,0,0]>(x, w)",
         "y = ConvTranspose<pads=[0,1,1,0,1,1]>(x, w)", "float[1,1,4,6,8] x, float[1,1,2,2,2] w"),
    Case("RANGE.RANK1", "y = Range(a, n, a)", "y = Range(b, m, b)", "int64[1] a, int64[1] n, int64 b, int64 m"),
    Case("RANGE.BIG", "y = Range(o, b, d)", "y = Range(o, s, d)",
         init="int64 o = {0}, int64 b = {16777217}, int64 s = {16777216}, int64 d = {1}"),
    Case("ONEHOT.DEPTH_FLOAT", "y = OneHot(i, x, v)", "y = OneHot(i, d, v)",
         "int64[2] i, float x, int64 d, float[2] v"),
    Case("ONEHOT.INDICES_FLOAT", "y = OneHot(x, d, v)", "y = OneHot(i, d, v)",
         "int64[2] i, float[2] x, int64 d, float[2] v"),
    Case("GATHER.INDEX_FLOAT", "y = Gather(x, x)", "y = Gather(x, i)", f"{ROWS}, int64[2] i"),
    Case("NONZERO.DOWNLOAD", "y = NonZero(x)", "y = Relu(x)"),
    Case("SCATTERELEMENTS.GPUCOMPUTE_REDUCTION", 'y = ScatterElements<reduction="add">(x, i, x)',
         "y = ScatterElements(x, i, x)", f"{ROWS}, int64[2,8] i", opset=16),
    Case("SCATTERND.CPU_RACE", 'y = ScatterND<reduction="add">(x, i, u)', 'y = ScatterND<reduction="add">(x, j, u)',
         f"{ROWS}, float[2,8] u", opset=16, init="int64[2,1] i = {1, 1}, int64[2,1] j = {0, 1}"),
    Case("TOPK.SMALLEST_NEGATIVE", "y, j = TopK<largest=0>(x, k)", "r = Abs(x) y, j = TopK<largest=0>(r, k)",
         init="int64[1] k = {3}"),
    Case("TOPK.GPUPIXEL", "y, j = TopK(x, k)", "y = Relu(x)", init="int64[1] k = {3}"),
    Case("TOPK.K_SCALAR", "y, j = TopK(x, k)", "y, j = TopK(x, l)", init="int64 k = {3}, int64[1] l = {3}"),
    Case("TOPK.K_TOO_LARGE", "y, j = TopK(x, k)", "y, j = TopK<axis=0>(z, k)", f"{ROWS}, float[9,2] z",
         init="int64[1] k = {9}"),
    Case("COMPRESS.GPU", "y = Compress(x, b)", "y = Relu(x)", f"{ROWS}, bool[2] b"),
    Case("DIV.INT_ZERO", "y = Div(i, z)", "y = Div(i, o)", "int64[2] i",
         init="int64[2] z = {1, 0}, int64[2] o = {1, 2}"),
    Case("DIV.CONST_ZERO", "y = Div(x, z)", "y = Div(x, o)", init="float[1] z = {0}, float[1] o = {2}"),
    Case("DIV.BY_CONST", "y = Div(x, c)", "y = Div(x, v)", f"{ROWS}, float[8] v", init="float c = {3}"),
    Case("BITWISENOT.UNSIGNED", "y = BitwiseNot(u)", "y = BitwiseNot(i)", "uint8[2] u, int32[2] i", opset=18),
    Case("CLIP.DTYPE", "y = Clip(x, i)", "y = Clip(x, f)", f"{ROWS}, int64 i, float f"),
    Case("EINSUM.IMPLICIT", 'y = Einsum<equation="ba">(x)', 'y = Einsum<equation="ij,jk">(x, z)',
         f"{ROWS}, float[8,2] z"),
    Case("EINSUM.ELLIPSIS", 'y = Einsum<equation="...i,...i->...">(x, z)',
         'y = Einsum<equation="...i,...i->...">(x, x)', f"{ROWS}, float[3,2,8] z"),
    Case("EINSUM.MANY", 'y = Einsum<equation="ij,ij,ij->i">(x, x, x)', 'y = Einsum<equation="ij,ij->i">(x, x)'),
    Case("EINSUM.GPUPIXEL", 'y = Einsum<equation="ij->ji">(x)', 'y = Einsum<equation="ij,ij->i">(x, x)'),
    Case("MATMUL.CONST_RANK3_ADD", "m = MatMul(x, w) y = Add(m, c)", "m = MatMul(x, v) y = Add(m, c)",
         "float[2,2] x", init="float[1,2,2] w = {1,2,3,4}, float[2,2] v = {1,2,3,4}, float c = {1}"),
    Case("SUM.SINGLE_INPUT", "y = Sum(x)", "y = Sum(x, x)"),
    Case("MOD.FLOAT_FMOD0", "y = Mod(x, x)", "y = Mod<fmod=1>(x, x)"),
    Case("MOD.ZERO", "y = Mod(i, z)", "y = Mod(i, o)", "int64[2] i", init="int64[1] z = {0}, int64[1] o = {3}"),
    Case("POW.INT", "y = Pow(i, e)", "y = Pow(x, e)", f"{ROWS}, int64[2] i, float e"),
    Case("POW.INT_EXP_MINUS1", "y = Pow(i, m)", "y = Pow(i, t)", "int64[2] i", init="int64 m = {-1}, int64 t = {3}"),
    Case("BATCHNORM.TRAINING_OUTPUTS", "b, m, v = BatchNormalization<training_mode=1>(x, s, s, s, s) y = Add(b, m)",
         "y = BatchNormalization(x, s, s, s, s)", f"{IMAGE}, float[3] s"),
    Case("BATCHNORM.TRAINING_OLD", "y, m, v, n, w = BatchNormalization(x, s, s, s, s)",
         "y = BatchNormalization(x, s, s, s, s)", f"{IMAGE}, float[3] s", opset=9),
    Case("LAYERNORM.NO_BIAS", "y = LayerNormalization(x, s)", "y = LayerNormalization(x, s, s)",
         f"{ROWS}, float[8] s", opset=17),
    Case("LAYERNORM.AXIS", "y = LayerNormalization<axis=0>(x, s, s)", "y = LayerNormalization<axis=1>(x, s, s)",
         f"{ROWS}, float[8] s", opset=17),
    Case("LAYERNORM.EXTRA_OUTPUTS", "n, m = LayerNormalization(x, s, s) y = Add(n, m)",
         "y = LayerNormalization(x, s, s)", f"{ROWS}, float[8] s", opset=17),
    Case("NMS.MAXOUT_MISSING", "y = NonMaxSuppression(b, s)", "y = NonMaxSuppression(b, s, m)",
         "float[1,9,4] b, float[1,2,9] s", init="int64[1] m = {5}"),
    Case("NMS.THRESH_RANGE", "y = NonMaxSuppression(b, s, m, t)", "y = NonMaxSuppression(b, s, m, u)",
         "float[1,9,4] b, float[1,2,9] s", init="int64[1] m = {5}, float[1] t = {45.0}, float[1] u = {0.45}"),
    Case("NMS.SIZE", "y = NonMaxSuppression(b, s)", "y = Relu(b)", "float[1,9,4] b, float[1,2,9] s"),
    Case("ROIALIGN.MAX_NEG", 'y = RoiAlign<mode="max">(x, r, i)', 'p = Relu(x) y = RoiAlign<mode="max">(p, r, i)',
         f"{IMAGE}, float[2,4] r, int64[2] i", opset=16),
    Case("AVGPOOL.CEIL", f"y = AveragePool<{POOL}, ceil_mode=1>(x)", f"y = AveragePool<{POOL}, ceil_mode=1>(e)",
         f"{ODD}, float[1,3,8,8] e"),
    Case("MAXPOOL.CEIL", f"y = MaxPool<{POOL}, ceil_mode=1>(x)", f"y = MaxPool<{POOL}>(x)", ODD),
    Case("AVGPOOL.DILATION", f"y = AveragePool<{POOL}, dilations=[2,2]>(x)",
         f"y = AveragePool<{POOL}, dilations=[1,1]>(x)", IMAGE, opset=19),
    Case("MAXPOOL.DILATION", f"y = MaxPool<{POOL}, dilations=[1,2]>(x)", f"y = MaxPool<{POOL}>(x)", IMAGE),
    Case("AVGPOOL.3D_GPU", "y = AveragePool<kernel_shape=[2,2,2]>(x)", "y = AveragePool<kernel_shape=[2,2]>(i)",
         "float[1,3,8,8,8] x, float[1,3,8,8] i"),
    Case("MAXPOOL.3D_GPU", "y = MaxPool<kernel_shape=[2,2,2]>(x)", "y = MaxPool<kernel_shape=[2,2]>(i)",
         "float[1,3,8,8,8] x, float[1,3,8,8] i"),
    Case("AVGPOOL.COUNT_INCLUDE_PAD", f"y = AveragePool<{POOL}, count_include_pad=1, pads=[1,1,0,0]>(x)",
         f"y = AveragePool<{POOL}, count_include_pad=1>(x)", IMAGE),
    Case("MAXPOOL.INDICES", f"p, i = MaxPool<{POOL}>(x) y = Identity(i)", f"y = MaxPool<{POOL}>(x)", IMAGE),
    Case("LSTM.SOFTSIGN", 'y = LSTM<hidden_size=2, activations=["Sigmoid","Softsign","Tanh"]>(x, w, r)',
         'y = LSTM<hidden_size=2, activations=["Sigmoid","Tanh","Tanh"]>(x, w, r)',
         "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r"),
    Case("LSTM.ACT_PARAMS",
         'y = LSTM<hidden_size=2, activations=["HardSigmoid","Tanh","Tanh"], activation_alpha=[0.3]>(x, w, r)',
         'y = LSTM<hidden_size=2, activations=["HardSigmoid","Tanh","Tanh"], activation_alpha=[0.2]>(x, w, r)',
         "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r"),
    Case("LSTM.NO_HIDDEN", "y = LSTM(x, w, r)", "y = LSTM<hidden_size=2>(x, w, r)",
         "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r"),
    Case("LSTM.GPUPIXEL", "y = LSTM<hidden_size=2>(x, w, r)", "y = Relu(x)",
         "float[4,1,3] x, float[1,8,3] w, float[1,8,2] r"),
    Case("DFT.NO_AXIS_INPUT", "y = DFT<axis=1>(x)", "y = DFT(x, , a)", "float[1,8,1] x", opset=20,
         init="int64 a = {1}"),
    Case("DFT.NEG_AXIS", "y = DFT(x, , a)", "y = DFT(x, , b)", "float[1,8,1] x", opset=20,
         init="int64 a = {-3}, int64 b = {-2}"),
    Case("STFT.NO_FRAME_LENGTH", "y = STFT<onesided=0>(x, s, w)", "y = STFT<onesided=0>(x, s, w, n)",
         "float[1,64,1] x", opset=17, init="int64 s = {4}, float[4] w = {1,1,1,1}, int64 n = {4}"),
    Case("STFT.ONESIDED", "y = STFT(x, s, w, n)", "y = STFT<onesided=0>(x, s, w, n)",
         "float[1,64,1] x, float[4] w", opset=17, init="int64 s = {4}, int64 n = {4}"),
    Case("STFT.RANK2", "y = STFT<onesided=0>(x, s, w, n)", "y = STFT<onesided=0>(z, s, w, n)",
         "float[1,64] x, float[1,64,1] z, float[4] w", opset=17, init="int64 s = {4}, int64 n = {4}"),
    Case("CAST.TO_BOOL", "y = Cast<to=9>(x)", "b = Less(x, x) i = Cast<to=7>(b) y = Cast<to=9>(b)"),
    Case("ADD.NARROW", "y = Add(u, u)", "v = Mod(u, t) y = Add(v, v)", "uint8[2] u", init="uint8 t = {100}"),
    Case("SUB.NARROW", "y = Sub(u, u)", "y = Sub(i, i)", "uint16[2] u, int32[2] i"),
    Case("MUL.NARROW", "y = Mul(u, u)", "y = Mul(u, t)", "int8[2] u", init="int8 t = {1}"),
    Case("CAST.NARROW_INT", "y = Cast<to=2>(i)", "y = Cast<to=6>(u)", "int64[2] i, uint8[2] u"),
    Case("CAST.FP16", "y = Cast<to=10>(x)", "y = Cast<to=1>(x)"),
    Case("CAST.FOLD_ROUNDING", "s = Shape(x) f = Cast<to=1>(s) h = Mul(f, c) i = Cast<to=7>(h) y = Reshape(x, i)",
         "f = Cast<to=1>(n) h = Mul(f, c) i = Cast<to=7>(h) y = Reshape(x, i)", f"{ROWS}, int64[2] n",
         init="float c = {0.5}"),
    Case("GRIDSAMPLE.CUBIC_CPU", 'y = GridSample<mode="bicubic">(x, g)', 'y = GridSample<mode="bilinear">(x, g)',
         f"{IMAGE}, float[1,4,4,2] g", opset=16),
    Case("GRIDSAMPLE.CUBIC_GPU", 'y = GridSample<mode="bicubic">(x, g)', 'y = GridSample<mode="nearest">(x, g)',
         f"{IMAGE}, float[1,4,4,2] g", opset=16),
    Case("DROPOUT.MASK", "d, m = Dropout(x) y = Cast<to=1>(m)", "y, m = Dropout(x)"),
    Case("DROPOUT.TRAINING", "y = Dropout(x, r, t)", "y = Dropout(x, r, f)",
         init="float r = {0.5}, bool t = {1}, bool f = {0}"),
    Case("PAD.REFLECT_BIG", 'y = Pad<mode="reflect">(x, p)', 'y = Pad<mode="reflect">(x, q)',
         init="int64[4] p = {2,0,0,0}, int64[4] q = {1,0,0,7}"),
    Case("PAD.VALUE_DTYPE", "y = Pad(x, p, i)", "y = Pad(x, p, f)", f"{ROWS}, int64 i, float f",
         init="int64[4] p = {1,0,0,0}"),
    Case("RESHAPE.RANK9", "y = Reshape(x, s)", "y = Reshape(x, t)",
         init="int64[9] s = {1,1,1,1,1,1,1,2,8}, int64[8] t = {1,1,1,1,1,1,2,8}"),
    Case("RESIZE.CUBIC", 'y = Resize<mode="cubic">(x, , s)', f"y = Resize<{LINEAR}>(x, , s)", IMAGE,
         init="float[4] s = {1,1,2,2}"),
    Case("RESIZE.COORD", f'y = Resize<{LINEAR}, coordinate_transformation_mode="half_pixel_symmetric">(x, , s)',
         f'y = Resize<{LINEAR}, coordinate_transformation_mode="align_corners">(x, , s)', IMAGE,
         init="float[4] s = {1,1,2,2}"),
    Case("RESIZE.SIZES_ROUNDING", f"y = Resize<{LINEAR}>(x, , , s)", f"y = Resize<{LINEAR}>(x, , , t)",
         "float[1,3,7,7] x", init="int64[4] s = {1,3,31,31}, int64[4] t = {1,3,14,14}"),
    Case("RESIZE.SCALES_ROUND", f"y = Resize<{LINEAR}>(x, , s)", f"y = Resize<{LINEAR}>(x, , t)", "float[1,1,5,5] x",
         init="float[4] s = {1,1,1.5,1.5}, float[4] t = {1,1,2,2}"),
    Case("RESIZE.AXES_SCALES", f"y = Resize<{LINEAR}, axes=[2,3]>(x, , s)", f"y = Resize<{LINEAR}>(x, , t)", IMAGE,
         opset=18, init="float[2] s = {2,2}, float[4] t = {1,1,2,2}"),
    Case("RESIZE.TWO_INPUTS", f"y = Resize<{LINEAR}>(x, s)", f"y = Resize<{LINEAR}>(x, s)", IMAGE,
         init="float[4] s = {1,1,2,2}", silent_opset=10),
    Case("RESIZE.CPU_NEAREST_INTSCALE",
         'y = Resize<mode="nearest", coordinate_transformation_mode="align_corners">(x, , s)',
         'y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric">(x, , s)', IMAGE,
         init="float[4] s = {1,1,2,2}"),
    Case("RESIZE.NEAREST_TIES", 'y = Resize<mode="nearest">(x, , s)', 'y = Resize<mode="nearest">(x, , t)', IMAGE,
         init="float[4] s = {1,1,1.5,1.5}, float[4] t = {1,1,2,2}"),
    Case("RESIZE.DOWN_LINEAR", f"y = Resize<{LINEAR}, antialias=1>(x, , s)",
         f"y = Resize<{LINEAR}, antialias=1>(x, , t)", IMAGE, opset=18,
         init="float[4] s = {1,1,0.5,0.5}, float[4] t = {1,1,2,2}"),
    Case("SPLIT.UNEVEN_OLD", "y, z = Split(x)", "y, z = Split<axis=1>(x)", "float[3,8] x"),
    Case("SQUEEZE.ATTR_NEW", "y = Squeeze<axes=[0]>(x)", "y = Squeeze<axes=[0]>(x)", "float[1,8] x", silent_opset=11),
    Case("UNSQUEEZE.MISMATCH", "y = Unsqueeze<axes=[0]>(x)", "y = Unsqueeze<axes=[0]>(x)", silent_opset=11),
    Case("TRANSPOSE.CHAIN_NO_PERM", "t = Transpose(x) y = Transpose<perm=[1,0]>(t)",
         "t = Transpose<perm=[1,0]>(x) y = Transpose<perm=[1,0]>(t)"),
    Case("UPSAMPLE.OLD", "y = Upsample<height_scale=2.0, width_scale=2.0>(x)",
         "y = Upsample<scales=[1.0,1.0,2.0,2.0]>(x)", IMAGE, opset=7),
    Case("POW.GELU_FAST", GELU_CHAIN, GELU_CHAIN.replace("Pow(x, h)", "Pow(z, h)"), f"{ROWS}, float[2,8] z",
         init=GELU_CONSTANTS),
    Case("ISNAN.GPUPIXEL", "y = IsNaN(x)", "y = IsInf(x)"),
    Case("ASINH.NEGATIVE", "y = Asinh(x)", "p = Exp(x) y = Asinh(p)"),
    # what holds for every operator
    Case("OPERATOR.UNSUPPORTED", "y = LpNormalization(x)", "y = Relu(x)"),
    Case("OPERATOR.CONTRIB", "y = com.acme.Whirl(x)", "y = Relu(x)"),
    Case("OPERATOR.QUANTISED", "y = DequantizeLinear(u, s)", "y = Relu(x)", f"{ROWS}, uint8[2] u",
         init="float s = {1}"),
    Case("OPERATOR.DOMAIN_IGNORED", "y = com.microsoft.Gelu(x)", "y = Gelu(x)", opset=20),
    Case("OPERATOR.KIND", "y = RoiAlign(i, r, n)", "y = RoiAlign(x, r, n)",
         f"{IMAGE}, int32[1,3,8,8] i, float[2,4] r, int64[2] n", opset=16),
    Case("OPERATOR.RANK", "y = Gemm(x, w)", "y = MatMul(x, w)", "float[1,2,8] x, float[8,2] w"),
    Case("SUBGRAPH.IGNORED", "y = Relu<g = a () => (float[2,8] q) { q = Relu(x) }>(x)", "y = Relu(x)"),
    Case("ATTRIBUTE.MODE", 'y = Pad<mode="symmetric">(x, p)', 'y = Pad<mode="wrap">(x, p)', opset=19,
         init="int64[4] p = {1,0,0,0}"),
    Case("ATTRIBUTE.IGNORED", 'y = Resize<mode="linear", keep_aspect_ratio_policy="not_larger">(x, , , s)',
         'y = Resize<mode="linear", keep_aspect_ratio_policy="stretch">(x, , , s)', IMAGE, opset=18,
         init="int64[4] s = {1,3,16,16}"),
    Case("ATTRIBUTE.UNKNOWN", "y = Relu<slope=0.1>(x)", "y = LeakyRelu<alpha=0.1>(x)"),
    Case("ATTRIBUTE.TYPE", 'y = Softmax<axis="last">(x)', "y = Softmax<axis=-1>(x)"),
    Case("ATTRIBUTE.MISSING", "y = Concat(x, x)", "y = Concat<axis=0>(x, x)"),
    Case("OPERATOR.ENDS", "y = Conv(x)", "y = Relu(x)"),
    Case("ATTRIBUTE.AXIS", "y = Softmax<axis=3>(x)", "y = Softmax<axis=-2>(x)"),
    Case("CONSTANT.VALUE", 'y = Constant<value_string="a">()', "y = Constant<value_float=1.0>()"),
    Case("CAST.TARGET", "y = Cast<to=8>(x)", "y = Cast<to=7>(x)"),
]  # fmt: skip
