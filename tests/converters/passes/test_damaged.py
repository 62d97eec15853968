"""Nodes that lack inputs, outputs or attributes: every pass leaves them or mends them, none raises."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from damaged_nodes import damaged
from scan_cases import CASES, graph

from converters.passes import PASSES
from converters.passes.base import Context

MORE = [
    ("y = com.microsoft.MultiHeadAttention<num_heads=2>(x, x, x)", "float[2,3,8] x", 17),
    ("y = com.microsoft.Attention<num_heads=2>(x, w, b)", "float[2,3,6] x, float[6,24] w, float[24] b", 17),
    ("y = com.microsoft.RotaryEmbedding(x, p, c, c)", "float[2,3,16] x, int64[2,3] p, float[9,4] c", 17),
    ("y = com.microsoft.SkipLayerNormalization(x, x, s, s)", "float[2,3,8] x, float[8] s", 17),
    ("y = com.microsoft.FusedConv<activation=\"Relu\">(x, w)", "float[1,3,8,8] x, float[4,3,3,3] w", 17),
    ("y = com.microsoft.MatMulNBits<K=32, N=6, bits=4, block_size=32>(x, b, s)",
     "float[2,32] x, uint8[6,1,16] b, float[6] s", 17),
    ("q, s, z = DynamicQuantizeLinear(x) i = MatMulInteger(q, w, z) y = Cast<to=1>(i)",
     "float[2,8] x, int8[8,4] w", 17),
    ("y = QLinearConv(x, s, z, w, s, z, s, z)", "uint8[1,3,8,8] x, float s, uint8 z, uint8[4,3,3,3] w", 17),
    ("y = GRU<hidden_size=4>(x, w, r)", "float[5,2,3] x, float[1,12,3] w, float[1,12,4] r", 17),
    ("s = SplitToSequence<axis=1>(x) y = SequenceAt(s, i)", "float[2,8] x, int64 i", 17),
    ("y = GroupNormalization<num_groups=2>(x, s, s)", "float[2,6,4] x, float[2] s", 18),
    ("y = Attention(q, q, q)", "float[1,4,3,8] q", 23),
    ("y = LpPool<kernel_shape=[2,2]>(x)", "float[1,3,8,8] x", 18),
]  # fmt: skip


@pytest.mark.parametrize("sentis", ["2.4", "2.6"])
def test_no_pass_raises_on_damaged_nodes(tmp_path, sentis):
    models = [case.graphs()[0] for case in CASES] + [graph(*one) for one in MORE]
    rng = np.random.default_rng(11)
    for model in models:
        harmed = damaged(model, rng)
        for one in PASSES.values():
            outcome = one.run(onnx.ModelProto.FromString(harmed.SerializeToString()), Context(tmp_path, sentis))
            assert outcome.changed >= 0
