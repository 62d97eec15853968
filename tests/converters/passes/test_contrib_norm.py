from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

INPUTS = "float[2,3,8] x, float[2,3,8] r, float[8] g, float[8] b, float[8] c"
SKIP = "com.microsoft.SkipLayerNormalization"


@pytest.mark.parametrize("opset", [15, 17])
@pytest.mark.parametrize("arguments", ["x, r, g, b", "x, r, g, b, c", "x, r, g", "x, r, g, , c"])
def test_a_norm_with_a_residual(mended, arguments, opset):
    tried = mended("contrib_norm", graph(f"y = {SKIP}<epsilon=0.001>({arguments})", INPUTS, opset))
    assert ("LayerNormalization" in tried.operators) == (opset >= 17)


def test_the_default_epsilon_is_the_operators_own(mended):
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 3, 8), "r": (2, 3, 8), "g": (8,), "b": (8,), "c": (8,)}
    inputs = {name: (rng.standard_normal(shape) / 1e3).astype(np.float32) for name, shape in shapes.items()}
    mended("contrib_norm", graph(f"y = {SKIP}(x, r, g, b)", INPUTS, 17), inputs=inputs)


def test_the_sum_is_an_output_too(mended):
    body = f"n, , , s = {SKIP}(x, r, g, b, c) y = Mul(n, s)"
    mended("contrib_norm", graph(body, INPUTS, 17))


@pytest.mark.parametrize("arguments", ["x, r, g", "x, r, g, c"])
def test_an_rms_norm_with_a_residual(mended, arguments):
    body = f"n, , , s = com.microsoft.SkipSimplifiedLayerNormalization({arguments}) y = Mul(n, s)"
    tried = mended("contrib_norm", graph(body, INPUTS, 17))
    assert "Reciprocal" not in tried.operators


@pytest.mark.parametrize("axis", ["", "axis=-1, ", "axis=2, "])
def test_an_rms_norm_has_the_form_that_sentis_fuses(mended, axis):
    body = f"y = SimplifiedLayerNormalization<{axis}epsilon=0.01, stash_type=1>(x, g)"
    model = graph(body, "float[2,3,8] x, float[8] g", 17)
    tried = mended("contrib_norm", model)
    assert tried.operators == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Mul"]


@pytest.mark.parametrize(
    "body, reason",
    [
        ("z, i = SimplifiedLayerNormalization(x, g) y = Add(z, i)", "is an output"),
        ("z, m, i = com.microsoft.SkipSimplifiedLayerNormalization(x, r, g) y = Add(z, i)", "moments are outputs"),
        ("y = SimplifiedLayerNormalization<axis=1>(x, g)", "not known to be the last"),
        (f"y = {SKIP}(x, r, h)", "the shape of 'h' is not known"),
    ],
)
def test_it_must_not_fire(left, body, reason):
    assert reason in left("contrib_norm", graph(body, f'{INPUTS}, float["n"] h', 17))


@pytest.mark.parametrize("given", ["places", "length"])
def test_the_norm_of_embeddings(mended, given):
    more = ", , p" if given == "places" else ""
    body = f"y, m, e = com.microsoft.EmbedLayerNormalization(i, s, w, q, t, g, b{more})"
    inputs = "int32[2,5] i, int32[2,5] s" + ", int32[2,5] p" * (given == "places")
    init = "float[6,4] w = {" + ",".join(f"{(7 * n) % 11 - 4}" for n in range(24)) + "}"
    init += ", float[9,4] q = {" + ",".join(f"{(5 * n) % 7 - 3}" for n in range(36)) + "}"
    init += ", float[6,4] t = {" + ",".join(f"{(3 * n) % 5 - 1}" for n in range(24)) + "}"
    init += ", float[4] g = {1,2,3,0.5}, float[4] b = {0,1,0,-1}"
    made = graph(body, inputs, 17, init=init)
    made.graph.output.add(name="e").type.tensor_type.elem_type = 1
    tried = mended("contrib_norm", made)
    assert tried.operators.count("Gather") == 2 + (given == "places")


@pytest.mark.parametrize(
    "body",
    [
        "y, i = SimplifiedLayerNormalization(x, g)",
        "y, m, i, s = com.microsoft.SkipSimplifiedLayerNormalization(x, r, g)",
    ],
)
def test_moments_that_nobody_reads_are_no_reason_to_leave_a_norm(mended, body):
    assert mended("contrib_norm", graph(body, INPUTS, 17)).after == []
