from __future__ import annotations

import pytest
from scan_cases import graph

from converters.fix import fix_model

BY_HEAD = "float[1,4,3,8] q, float[1,2,5,8] k, float[1,2,5,8] v, float[3,5] m, bool[3,5] b"


@pytest.mark.parametrize("arguments", ["q, k, v", "q, k, v, m", "q, k, v, b"])
@pytest.mark.parametrize("given", ["scale=0.25", "is_causal=1", "softcap=2.0"])
def test_attention(mended, arguments, given):
    tried = mended("function_bodies", graph(f"y = Attention<{given}>({arguments})", BY_HEAD, 23))
    assert "Softmax" in tried.operators and "Attention" not in tried.operators


def test_attention_over_three_dimensions_with_a_cache(mended):
    body = "y, pk, pv = Attention<q_num_heads=2, kv_num_heads=2>(q, k, v, , a, b)"
    inputs = "float[1,3,16] q, float[1,5,16] k, float[1,5,16] v, float[1,2,4,8] a, float[1,2,4,8] b"
    mended("function_bodies", graph(body, inputs, 23))


@pytest.mark.parametrize("given", ["interleaved=0", "interleaved=1"])
def test_rotary_embedding(mended, given):
    inputs = "float[2,4,3,8] x, float[2,3,4] c, float[2,3,4] s"
    mended("function_bodies", graph(f"y = RotaryEmbedding<{given}>(x, c, s)", inputs, 23))


@pytest.mark.parametrize("given", ["", "<axes=[1,2]>"])
def test_a_crop_or_pad_to_the_centre(mended, given):
    init = "int64[3] s = {1,6,4}" if not given else "int64[2] s = {6,4}"
    mended("function_bodies", graph(f"y = CenterCropPad{given}(x, s)", "float[2,4,8] x", 18, init=init))


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_loss_that_was_left_in_the_graph(mended, op):
    mended(
        "function_bodies",
        graph(f'y = {op}<reduction="none">(x, t)', "float[3,5] x, int64[3] t", 13),
        2 if "Soft" in op else 1,
    )


def test_two_kinds_in_one_model(mended):
    body = "r = RotaryEmbedding(q, c, s) a = Attention(r, k, v) z = Attention(a, k, v) y = Neg(z)"
    mended("function_bodies", graph(body, f"{BY_HEAD}, float[1,3,4] c, float[1,3,4] s", 23), 3)


@pytest.mark.parametrize("body", ["y = Relu(q)", "y = com.acme.Attention(q, k, v)"])
def test_it_must_not_fire_on_other_operators(left, body):
    assert left("function_bodies", graph(body, BY_HEAD, 23)) == ""


LINEAR = 'y, s = LinearAttention<q_num_heads=2, kv_num_heads=2, update_rule="linear">(q, k, v)'


def test_a_body_with_a_loop_of_known_rounds_is_unrolled_behind_it(tmp_path):
    source = tmp_path / "in.onnx"
    source.write_bytes(graph(LINEAR, "float[1,3,8] q, float[1,3,8] k, float[1,3,8] v", 27).SerializeToString())
    report = fix_model(source, tmp_path / "out.onnx")
    changed = {row["name"] for row in report["passes"] if row["changed"]}
    assert changed >= {"function_bodies", "unroll"} and report["findings"]["after"] == []


def test_a_body_with_a_loop_of_unknown_rounds_stays_one_node(left):
    model = graph(LINEAR, "float[1,T,8] q, float[1,T,8] k, float[1,T,8] v", 27)
    assert "its body holds Scan" in left("function_bodies", model)
