from __future__ import annotations

import pytest
from scan_cases import graph

INPUTS = "float[2,3,4] x, float[2,3,4] z, float[2,4,3] t, float[4,5] w"


@pytest.mark.parametrize(
    "body",
    [
        "FusedMatMul<alpha=0.125, transB=1>(x, z)",
        "FusedMatMul<transA=1>(x, z)",
        "FusedMatMul<transA=1, transB=1, alpha=2.0>(x, t)",
        "FusedMatMul(x, w)",
        "TransposeMatMul<transB=1>(x, z)",
    ],
)
def test_products_are_taken_apart(mended, body):
    mended("contrib_linear", graph(f"y = com.microsoft.{body}", INPUTS))


@pytest.mark.parametrize(
    "given",
    ['activation="Relu"', 'activation="LeakyRelu", activation_params=[0.3]', "group=1",
     'activation="Clip", activation_params=[-1.0, 2.0]',
     'activation="HardSigmoid", activation_params=[0.1, 0.4]'],
)  # fmt: skip
@pytest.mark.parametrize("more", ["", ", b", ", b, s"])
def test_a_fused_convolution(mended, given, more):
    inputs = "float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] s"
    mended("contrib_linear", graph(f"y = com.microsoft.FusedConv<{given}>(x, w{more})", inputs))


def test_a_fused_gemm(mended):
    body = 'y = com.microsoft.FusedGemm<activation="Relu", alpha=0.5, transB=1>(x, w, b)'
    tried = mended("contrib_linear", graph(body, "float[2,8] x, float[4,8] w, float[4] b"))
    assert tried.operators == ["Gemm", "Relu"]


def test_ranks_behind_one_are_known_when_it_is_mended(mended):
    model = graph("h = com.microsoft.TransposeMatMul(x, w) y = com.microsoft.FusedMatMul<transA=1>(h, h)", INPUTS)
    assert mended("contrib_linear", model, 2).operators == ["MatMul", "Transpose", "MatMul"]


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("FusedMatMul<transBatchA=1>(x, z)", INPUTS, "batch axes"),
        ("FusedMatMul<transB=1>(x, u)", f"{INPUTS}, float[] u", "rank of input 1"),
        ('FusedConv<activation="Gelu">(x, w)', "float[1,3,8,8] x, float[4,3,3,3] w", "'Gelu' is not known"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("contrib_linear", graph(f"y = com.microsoft.{body}", inputs))
