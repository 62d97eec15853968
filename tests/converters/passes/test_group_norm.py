from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

from converters.passes import PASSES
from converters.passes.base import Context
from converters.prove import outputs_of
from weights_bridge.compare import psnr_db

NORM = "y = GroupNormalization<num_groups=2, epsilon=0.001>(x, s, b)"


@pytest.mark.parametrize("opset, size", [(18, 2), (20, 2), (21, 6)])
@pytest.mark.parametrize("shape", ["[2,6,4,5]", "[2,6,7]", '["n",6,"h","w"]'])
def test_groups_become_instances(mended, opset, size, shape):
    tried = mended("group_norm", graph(NORM, f"float{shape} x, float[{size}] s, float[{size}] b", opset))
    assert tried.operators.count("InstanceNormalization") == 1


def test_large_means_keep_their_variance():
    """Against float64: ONNX Runtime takes onnx's own body of the operator, and is 40 dB away from the truth."""
    x = np.random.default_rng(0).normal(1000, 1, (2, 6, 40)).astype(np.float32)
    ones = np.ones(2, np.float32)
    model = graph(NORM, "float[2,6,40] x, float[2] s, float[2] b", 18)
    PASSES["group_norm"].run(model, Context())
    groups = x.astype(np.float64).reshape(2, 2, -1)
    centred = groups - groups.mean(axis=2, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(axis=2, keepdims=True) + 0.001) + 1
    found = outputs_of(model.SerializeToString(), {"x": x, "s": ones, "b": ones})["y"]
    assert psnr_db(wanted.reshape(x.shape), found) > 75


@pytest.mark.parametrize("shape", ['[2,"c",4]', "[2,6]", "[]"])
def test_it_must_not_fire_without_known_channels(left, shape):
    assert "not known" in left("group_norm", graph(NORM, f"float{shape} x, float[6] s, float[6] b", 21))
