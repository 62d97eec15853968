"""What is nearly fused is named with every reason, and what is something else is not."""

from __future__ import annotations

import pytest
from fusion_forms import GELU, GELU_FAST, LAYER_NORM, RMS, SCALARS

from converters.fusions.patterns import parsed
from converters.fusions.spellings import variants


def reasons(found):
    return [(miss.fusion, [reason.why for reason in miss.reasons]) for miss in found.misses]


@pytest.mark.parametrize(
    "body, fusion, why",
    [
        ("s = Sigmoid(x) y = Mul(s, x)", "Swish", "the operands of Mul stand the other way round"),
        (RMS.replace("q = Div(one, s) n = Mul(x, q)", "n = Div(x, s)"), "RMSNormalization", "Div(x, y) stands for"),
        (RMS.replace("Pow(x, two)", "Mul(x, x)"), "RMSNormalization", "x · x stands for Pow(x, 2)"),
        (RMS.replace("Sqrt(a)", "Pow(a, half)"), "RMSNormalization", "Pow(·, ½) stands for Sqrt"),
        (RMS.replace("Add(m, eps)", "Add(eps, m)"), "RMSNormalization", "the operands of Add"),
        (LAYER_NORM.replace("Mul(n, w)", "Mul(w, n)"), "LayerNormalization", "the operands of Mul"),
        (GELU.replace("Div(x, root)", "Mul(x, inv)"), "Gelu", "x is multiplied by √½"),
        (GELU.replace("g = Mul(x, f) y = Mul(g, half)", "g = Mul(x, half) y = Mul(g, f)"), "Gelu", "½ is applied to x"),
        (GELU_FAST.replace("p = Pow(x, three)", "xx = Mul(x, x) p = Mul(x, xx)"), "GeluFast", "x · x · x stands for"),
        (RMS.replace("n = Mul(x, q)", "k = Identity(q) n = Mul(x, k)"), "RMSNormalization", "Identity lies in between"),
    ],
)  # fmt: skip
def test_one_departure_from_the_form_is_named(predicted, body, fusion, why):
    init = SCALARS + ", float inv = {0.7071067690849304}"
    found = predicted(body, init)
    assert fusion not in found.layers
    ((name, whys),) = reasons(found)
    assert name == fusion and len(whys) == 1 and whys[0].startswith(why)


def test_several_departures_are_all_named(predicted):
    body = (
        RMS.replace("Pow(x, two)", "Mul(x, x)")
        .replace("Div(one, s)", "Reciprocal(s)")
        .replace("Mul(w, n)", "Mul(n, w)")
    )
    ((name, whys),) = reasons(predicted(body, SCALARS))
    assert name == "RMSNormalization" and len(whys) == 3


def test_a_constant_that_is_nearly_right_is_named_with_both_numbers(predicted):
    ((name, whys),) = reasons(predicted(GELU_FAST, SCALARS.replace("0.7978845834732056", "0.7979")))
    assert name == "GeluFast" and "wanted 0.7978845834732056 as float32" in whys[0] and "0.797" in whys[0]


@pytest.mark.parametrize(
    "body",
    [
        "k = Mul(x, c) s = Sigmoid(k) y = Mul(x, s)",  # Sigmoid of something else
        "s = Sigmoid(x) k = Tanh(s) y = Mul(x, k)",
        RMS.replace("ReduceMean", "ReduceMax"),
        GELU.replace("Mul(g, half)", "Mul(g, three)"),
        RMS.replace("axes=[-1]", "axes=[1]"),
    ],
)
def test_what_computes_something_else_is_no_miss(predicted, body):
    assert reasons(predicted(body, SCALARS)) == []


def test_each_place_is_told_once_under_its_largest_pattern(predicted):
    found = predicted(RMS.replace("Div(one, s)", "Reciprocal(s)"), SCALARS)
    assert [miss.fusion for miss in found.misses] == ["RMSNormalization"]  # not Rsqrt as well


def test_spellings_keep_what_is_shared_shared():
    spellings = (("Pow(x, 2.0)", "Mul(x, x)", "why", "mend"),)
    (_, _), (respelled, why) = variants("y = Neg(a); Add(Pow(y, 2.0), y)", spellings)
    product, shared = respelled.inputs
    assert str(respelled) == "Add(Mul(Neg(a), Neg(a)), Neg(a))" and why[0].why == "why"
    assert product.inputs[0] is product.inputs[1] is shared


def test_every_pattern_and_spelling_of_the_facts_can_be_read():
    from converters.facts import facts

    known = facts("2.6")
    for row in known["fusions"]:
        assert row["pass"] in known["optimiser"] and {"pattern", "becomes", "numbers"} <= row.keys()
        names = {node.name for node in parsed(row["match"]).walk()} if "match" in row else set()
        assert set(row.get("static", ())) <= names
    for one in known["spellings"]:
        form, found = ({node.name for node in parsed(one[side]).walk()} - {""} for side in ("form", "found"))
        assert found <= form and one["why"] and one["mend"]
