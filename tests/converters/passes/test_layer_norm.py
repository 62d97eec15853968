from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph


def test_a_missing_bias_becomes_zeros(mended):
    tried = mended("layer_norm", graph("y = LayerNormalization<epsilon=0.001>(x, s)", "float[2,8] x, float[8] s", 17))
    assert tried.before == ["LAYERNORM.NO_BIAS"] and tried.operators == ["LayerNormalization"]
    assert not tried.constant(tried.model.graph.node[0].input[2]).any()


@pytest.mark.parametrize("axis", [1, 2, -2, -3])
def test_several_axes_are_flattened_to_one(mended, axis):
    sizes = "3,4,5" if axis in (1, -3) else "4,5"
    body = f"y = LayerNormalization<axis={axis}>(x, s, b)"
    tried = mended("layer_norm", graph(body, f"float[2,3,4,5] x, float[{sizes}] s, float[{sizes}] b", 17))
    assert "LAYERNORM.AXIS" in tried.before
    assert tried.operators == ["Reshape", "Reshape", "Reshape", "LayerNormalization", "Reshape"]


def test_a_scale_and_a_bias_that_broadcast_over_the_normalised_axes_are_repeated(mended):
    body = "y = LayerNormalization<axis=1>(x, s, b)"
    tried = mended("layer_norm", graph(body, "float[2,3,4] x, float[4] s, float[3,1] b", 17))
    assert tried.operators == ["Expand", "Reshape", "Expand", "Reshape", "Reshape", "LayerNormalization", "Reshape"]


def test_several_axes_without_a_bias(mended):
    mended("layer_norm", graph("y = LayerNormalization<axis=1>(x, s)", 'float["n",4,5] x, float[4,5] s', 17))


def test_moments_become_reductions(mended):
    body = "n, m, i = LayerNormalization(x, s, b) a = Add(n, m) y = Mul(a, i)"
    tried = mended("layer_norm", graph(body, "float[2,8] x, float[8] s, float[8] b", 17))
    assert tried.before == ["LAYERNORM.EXTRA_OUTPUTS"] and len(tried.model.graph.node[-3].output) == 1


def test_large_means_keep_their_variance(mended):
    model = graph("y = LayerNormalization<axis=1>(x, s)", "float[2,4,5] x, float[4,5] s", 17)
    x = np.random.default_rng(0).normal(1000, 1, (2, 4, 5)).astype(np.float32)
    mended("layer_norm", model, inputs={"x": x, "s": np.ones((4, 5), np.float32)})


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y = LayerNormalization(x, s, b)", "float[2,8] x, float[8] s, float[8] b", ""),
        ("y = LayerNormalization(x, s)", 'float[2,"n"] x, float["n"] s', "the shape of 's' is not known"),
        ("y = LayerNormalization<axis=1>(x, s, b)", 'float[2,3,"n"] x, float[3,"n"] s, float[3,"n"] b', "not known"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("layer_norm", graph(body, inputs, 17))
