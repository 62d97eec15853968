"""Which written-out forms become one layer, in the exact form that the optimiser's source has, and which do not."""

from __future__ import annotations

import pytest
from fusion_forms import GELU, GELU_FAST, LAYER_NORM, RMS, SCALARS, SWISH, WHOLE

from converters.fusions.patterns import parsed


@pytest.mark.parametrize("layer, body", WHOLE.items())
def test_the_exact_form_becomes_one_layer(predicted, layer, body):
    found = predicted(body, SCALARS)
    assert found.layers == {layer: 1} and not found.misses
    (fused,) = found.fused
    outputs = [word.split()[-1] for word in body.replace("<axes=[-1]>", "").split("=")[:-1]]
    assert (fused.fusion, fused.layer, fused.value, list(fused.nodes)) == (layer, layer, "y", outputs)


def test_layer_normalisation_says_that_its_variance_becomes_another_formula(predicted):
    assert "E[x²] − E[x]²" in predicted(LAYER_NORM, SCALARS).fused[0].numbers


@pytest.mark.parametrize("layer, body", WHOLE.items())
def test_an_inner_value_that_is_an_output_or_read_elsewhere_keeps_the_layers_apart(predicted, layer, body):
    inner = body.split("=")[0].strip()
    read = predicted(f"{body} k2 = Neg({inner})", SCALARS, output="float[2,3,8] y, float[2,3,8] k2")
    put_out = predicted(body, SCALARS, output=f"float[2,3,8] y, float[2,3,8] {inner}")
    for found in (read, put_out):
        assert layer not in found.layers
        assert [miss.fusion for miss in found.misses] == [layer]
        assert "also read by" in found.misses[0].reasons[0].why


def test_a_value_the_pattern_begins_with_may_be_read_elsewhere(predicted):
    assert predicted(f"{SWISH} k2 = Neg(x)", SCALARS, output="float[2,3,8] y, float[2,3,8] k2").layers["Swish"] == 1


def test_operands_are_matched_by_position(predicted):
    assert "Swish" not in predicted("s = Sigmoid(x) y = Mul(s, x)").layers
    assert "Gelu" not in predicted(GELU.replace("Mul(x, f)", "Mul(f, x)"), SCALARS).layers
    assert "RMSNormalization" not in predicted(RMS.replace("Mul(w, n)", "Mul(n, w)"), SCALARS).layers


def test_constants_are_matched_to_the_last_bit_and_by_kind_but_not_by_rank(predicted):
    near = SCALARS.replace("0.7978845834732056", "0.7978846")  # the same float32
    assert predicted(GELU_FAST, near).layers == {"GeluFast": 1}
    off = SCALARS.replace("0.7978845834732056", "0.797885")
    assert "GeluFast" not in predicted(GELU_FAST, off).layers
    assert predicted(RMS, SCALARS.replace("float two = {2}", "float[1] two = {2}")).layers == {"RMSNormalization": 1}
    integer = predicted(RMS, SCALARS.replace("float two = {2}", "int64 two = {2}"))
    assert "RMSNormalization" not in integer.layers
    assert integer.misses[0].reasons[0].why == "the constant 'two' is of kind int, wanted float"


def test_reciprocal_becomes_rsqrt_first_and_the_norm_is_missed(predicted):
    found = predicted(RMS.replace("Div(one, s)", "Reciprocal(s)"), SCALARS)
    assert found.layers["Rsqrt"] == 1 and "RMSNormalization" not in found.layers
    (miss,) = found.misses
    assert miss.fusion == "RMSNormalization"
    assert [(r.why, r.mend) for r in miss.reasons] == [
        ("Reciprocal(Sqrt(·)) becomes Rsqrt before this pattern is looked for", "write Div(1, Sqrt(·))")
    ]


def test_two_axes_that_share_a_constant_keep_layer_normalisation_apart(predicted):
    """One value of the graph never stands for two nodes of the pattern; an attribute makes a constant each time."""

    def axes(first, second):
        body = LAYER_NORM.replace("ReduceMean<axes=[-1]>(x)", f"ReduceMean(x, {first})")
        return body.replace("ReduceMean<axes=[-1]>(p)", f"ReduceMean(p, {second})")

    assert predicted(axes("last", "end"), SCALARS, opset=18).layers == {"LayerNormalization": 1}
    shared = predicted(axes("last", "last"), SCALARS, opset=18)
    assert "LayerNormalization" not in shared.layers
    assert "stands twice in the pattern and once in the graph ('last')" in shared.misses[0].reasons[0].why


def test_the_last_axis_counted_from_the_front_is_not_minus_one(predicted):
    found = predicted(RMS.replace("axes=[-1]", "axes=[2]"), SCALARS)
    assert "RMSNormalization" not in found.layers
    assert found.misses[0].reasons[0].why == "the axis is 2, wanted -1"


def test_a_constant_that_is_computed_is_none_yet_when_patterns_are_looked_for(predicted):
    found = predicted(RMS.replace("p = Pow(x, two)", "t = Add(one, one) p = Pow(x, t)"), SCALARS)
    assert "RMSNormalization" not in found.layers


def test_an_epsilon_that_is_no_constant_stops_the_import(predicted):
    found = predicted(RMS, SCALARS.replace("float eps = {0.00001},", ""), inputs="float[2,3,8] x, float eps")
    assert not found.layers
    assert found.not_predicted == ["RMSNormalization 'y': eps is no constant, the import throws"]


@pytest.mark.parametrize(
    "body, layers",
    [
        ("e = Equal(x, z) n = Not(e) y = Cast<to=1>(n)", {"NotEqual": 1, "Cast": 1}),
        ("d = Div(x, z) y = Floor(d)", {"FloorDiv": 1}),
        ("d = Div(x, z) i = Cast<to=6>(d) y = Cast<to=1>(i)", {"TruncDiv": 1}),
        ("r = Sqrt(x) y = Reciprocal(r)", {"Rsqrt": 1}),
    ],
)
def test_short_forms(predicted, body, layers):
    assert predicted(body, inputs="float[2,3,8] x, float[2,3,8] z").layers == layers


def test_atan2_needs_its_constants_each_by_themselves(predicted):
    body = """d = Div(x, z) t = Atan(d) a = Add(t, p1) b = Sub(t, p2) g = Greater(x, z1) l = Less(z, z2)
        k = Where(g, a, b) y = Where(l, k, t)"""
    init = "float p1 = {3.1415927410125732}, float p2 = {3.1415927410125732}, float z1 = {0}, float z2 = {0}"
    inputs = "float[2,3,8] x, float[2,3,8] z"
    assert predicted(body, init, inputs=inputs).layers == {"Atan2": 1}
    assert "Atan2" not in predicted(body.replace("z2", "z1"), init, inputs=inputs).layers


def test_floor_division_of_integers_comes_after_not_equal(predicted):
    body = """c = Less(x, z1) e = Less(w, z2) o = Xor(c, e) m = Mod(x, w) q = Equal(m, z3) n = Not(q) k = And(o, n)
        d = Div(x, w) s = Sub(d, one) y = Where(k, s, d)"""
    init = "int32 z1 = {0}, int32 z2 = {0}, int32 z3 = {0}, int32 one = {1}"
    found = predicted(body, init, inputs="int32[4] x, int32[4] w", output="int32[4] y")
    assert found.layers == {"FloorDiv": 1}


def test_a_text_that_is_no_pattern_is_refused():
    assert str(parsed("y = Sub(x, 1.0); Mul(y, Sigmoid(y))")) == "Mul(Sub(x, 1.0), Sigmoid(Sub(x, 1.0)))"
    for text in ("x = 1", "Mul(x, 'a')", "(a, b) = Mul(x, 1); a"):
        with pytest.raises(ValueError):
            parsed(text)
