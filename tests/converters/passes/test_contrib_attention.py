from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

MHA, SELF = "com.microsoft.MultiHeadAttention", "com.microsoft.Attention"
QKV = "float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[24] b, int32[2,5] m, float[2,2,3,5] a"
PAST = "float[2,2,4,4] pk, float[2,2,4,4] pv"


@pytest.mark.parametrize("arguments", ["q, k, v", "q, k, v, b", "q, k, v, b, m", "q, k, v, , , a", "q, k, v, b, m, a"])
@pytest.mark.parametrize("given", ["num_heads=2", "num_heads=4, scale=0.3", "num_heads=2, mask_filter_value=-50.0"])
def test_multi_head_attention(mended, arguments, given):
    if "num_heads=4" in given and arguments.endswith("a"):
        given = given.replace("=4", "=2")
    tried = mended("contrib_attention", graph(f"y = {MHA}<{given}>({arguments})", QKV))
    assert tried.operators.count("MatMul") == 2 and tried.operators.count("Softmax") == 1


def test_a_cache_is_joined_and_returned(mended):
    body = f"o, k2, v2 = {MHA}<num_heads=2>(q, k, v, , , , pk, pv) y = ReduceSum(k2) z = ReduceSum(v2)"
    mended("contrib_attention", graph(body, f"{QKV}, {PAST}"))


def test_keys_by_head(mended):
    body = f"y = {MHA}<num_heads=2>(q, kh, vh)"
    mended("contrib_attention", graph(body, "float[2,3,8] q, float[2,2,5,4] kh, float[2,2,5,4] vh"))


@pytest.mark.parametrize("arguments", ["x, w, b", "x, w, b, m", "x, w, b, , , a"])
def test_self_attention(mended, arguments):
    inputs = "float[2,3,6] x, float[6,24] w, float[24] b, int32[2,3] m, float[2,2,3,3] a"
    tried = mended("contrib_attention", graph(f"y = {SELF}<num_heads=2>({arguments})", inputs))
    assert tried.operators.count("MatMul") == 3


def test_causal_self_attention_over_a_known_length(mended):
    body = f"y = {SELF}<num_heads=2, unidirectional=1>(x, w, b)"
    mended("contrib_attention", graph(body, "float[2,5,6] x, float[6,24] w, float[24] b"))


def test_self_attention_with_a_cache(mended):
    body = f"o, p2 = {SELF}<num_heads=2>(x, w, b, , p) y = Identity(p2)"
    inputs = "float[2,3,6] x, float[6,24] w, float[24] b, float[2,2,2,4,4] p"
    mended("contrib_attention", graph(body, inputs))


def test_layers_behind_each_other(mended):
    body = "".join(f"a{i} = {MHA}<num_heads=2>(x{i}, x{i}, x{i}) x{i + 1} = Add(a{i}, x{i}) " for i in range(5))
    mended("contrib_attention", graph(body.replace("x0", "x") + "y = Neg(x5)", 'float["b","s",8] x'), 5)


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        (f"{MHA}<num_heads=2>(p)", "float[2,3,2,3,4] p", "packed"),
        (f"{MHA}<num_heads=2>(q, k, v, , l)", "float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, int32[2] l", "its mask"),
        (f"{SELF}<num_heads=2, unidirectional=1>(x, w, b)", 'float[2,"s",6] x, float[6,24] w, float[24] b', "causal"),
        (f"{SELF}<num_heads=2, do_rotary=1>(x, w, b)", "float[2,3,6] x, float[6,24] w, float[24] b", "rotary"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("contrib_attention", graph(f"y = {body}", inputs))


def test_masked_rows_follow_the_padding(mended):
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in
              (("q", (2, 3, 8)), ("k", (2, 5, 8)), ("v", (2, 5, 8)), ("b", (24,)), ("a", (2, 2, 3, 5)))}  # fmt: skip
    inputs["m"] = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 0, 1]], np.int32)
    mended("contrib_attention", graph(f"y = {MHA}<num_heads=2>(q, k, v, , m)", QKV), inputs=inputs)
