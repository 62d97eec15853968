from __future__ import annotations

from scan_cases import graph


def test_a_sum_of_one_is_the_one(mended):
    tried = mended("sum_single", graph("s = Sum(x) y = Neg(s)"))
    assert tried.operators == ["Identity", "Neg"] and tried.before == ["SUM.SINGLE_INPUT"]


def test_it_must_not_fire_on_sums_of_several(left):
    assert left("sum_single", graph("y = Sum(x, x)")) == ""
