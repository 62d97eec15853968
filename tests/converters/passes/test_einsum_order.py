from __future__ import annotations

import pytest
from scan_cases import graph


def equation(tried) -> str:
    return tried.model.graph.node[0].attribute[0].s.decode()


@pytest.mark.parametrize("given, wanted", [("ba", "ba->ab"), ("zj, jk", "zj,jk->kz"), ("b...a", "b...a->...ab")])
def test_labels_are_written_in_the_order_of_the_alphabet(mended, given, wanted):
    inputs = "float[4,4] x" if "..." not in given else "float[4,3,4] x"
    arguments = "x, x" if "," in given else "x"
    tried = mended("einsum_order", graph(f'y = Einsum<equation="{given}">({arguments})', inputs))
    assert equation(tried) == wanted and tried.before == ["EINSUM.IMPLICIT"]


def test_an_ellipsis_of_two_ranks_is_spelled_out(mended):
    tried = mended("einsum_order", graph('y = Einsum<equation="...i,...i->...">(x, z)', "float[2,8] x, float[3,2,8] z"))
    assert equation(tried) == "bi,abi->ab" and tried.before == ["EINSUM.ELLIPSIS"]


@pytest.mark.parametrize(
    "text, inputs, reason",
    [
        ("ij,jk", "float[2,8] x, float[8,2] z", ""),
        ("ba->ba", "float[2,8] x, float[8,2] z", ""),
        ("...i,...i->...", "float[1,8] x, float[3,2,8] z", "broadcasts"),
        ("...i,...i->...", 'float["n",8] x, float[3,2,8] z', "not known"),
    ],
)
def test_it_must_not_fire(left, text, inputs, reason):
    arguments = "x, z" if "," in text else "x"
    assert reason in left("einsum_order", graph(f'y = Einsum<equation="{text}">({arguments})', inputs))
