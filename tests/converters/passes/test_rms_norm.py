from __future__ import annotations

import pytest
from scan_cases import graph

FUSED = ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Mul"]


@pytest.mark.parametrize("axis", ["", "axis=2, ", "axis=-1, "])
def test_an_old_version_gets_the_form_that_it_fuses(mended, axis):
    model = graph(f"y = RMSNormalization<{axis}epsilon=0.001>(x, s)", "float[2,3,8] x, float[8] s", 23)
    assert mended("rms_norm", model, sentis="2.4").operators == FUSED


@pytest.mark.parametrize("sentis", ["2.4", "2.6"])
def test_several_axes_are_flattened(mended, sentis):
    model = graph("y = RMSNormalization<axis=1>(x, s)", "float[2,3,8] x, float[3,8] s", 23)
    assert mended("rms_norm", model, sentis=sentis).operators == ["Reshape", "Reshape", *FUSED, "Reshape"]


def test_a_scale_that_broadcasts_over_the_normalised_axes_is_repeated(mended):
    model = graph("y = RMSNormalization<axis=1>(x, s)", "float[2,3,8] x, float[8] s", 23)
    assert mended("rms_norm", model).operators == ["Reshape", "Expand", "Reshape", *FUSED, "Reshape"]


@pytest.mark.parametrize(
    "axis, inputs, reason",
    [
        ("-1", "float[2,3,8] x, float[8] s", ""),
        ("1", 'float[2,"n",8] x, float["n",8] s', "not known"),
    ],
)
def test_it_must_not_fire(left, axis, inputs, reason):
    assert reason in left("rms_norm", graph(f"y = RMSNormalization<axis={axis}>(x, s)", inputs, 23))
