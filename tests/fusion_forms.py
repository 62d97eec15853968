"""Written-out forms of layers in ONNX text, as Sentis' optimiser looks for them; opset 17, axes as attributes."""

from __future__ import annotations

import numpy as np

ROOT_TWO = np.float32(np.sqrt(np.float32(2)))
SCALARS = f"""float one = {{1}}, float half = {{0.5}}, float two = {{2}}, float three = {{3}}, float eps = {{0.00001}},
    float root = {{{ROOT_TWO!s}}}, float c = {{0.044714998453855515}}, float d = {{0.7978845834732056}},
    float[8] w = {{1,2,3,4,5,6,7,8}}, float[8] b = {{1,2,3,4,5,6,7,8}}, int64[1] last = {{-1}}, int64[1] end = {{-1}}"""
SWISH = "s = Sigmoid(x) y = Mul(x, s)"
GELU = "a = Div(x, root) e = Erf(a) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)"
GELU_FAST = """p = Pow(x, three) q = Mul(p, c) r = Add(x, q) t = Mul(r, d) u = Tanh(t) v = Add(u, one) h = Mul(x, half)
    y = Mul(h, v)"""
RMS = """p = Pow(x, two) m = ReduceMean<axes=[-1]>(p) a = Add(m, eps) s = Sqrt(a) q = Div(one, s) n = Mul(x, q)
    y = Mul(w, n)"""
LAYER_NORM = """m = ReduceMean<axes=[-1]>(x) z = Sub(x, m) p = Pow(z, two) v = ReduceMean<axes=[-1]>(p) a = Add(v, eps)
    s = Sqrt(a) n = Div(z, s) k = Mul(n, w) y = Add(k, b)"""
WHOLE = {"Swish": SWISH, "Gelu": GELU, "GeluFast": GELU_FAST, "RMSNormalization": RMS, "LayerNormalization": LAYER_NORM}
