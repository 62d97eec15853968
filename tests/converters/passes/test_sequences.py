from __future__ import annotations

import pytest
from scan_cases import graph

INIT = "int64 i = {1}, int64 n = {-1}, int64 o = {0}, int64 three = {3}, int64[2] p = {3, 5}"


def model(body: str, inputs: str = "float[2,8] x, float[2,8] z"):
    made = graph(body, inputs, init=INIT)
    read = {name for node in made.graph.node for name in node.input}
    for tensor in [tensor for tensor in made.graph.initializer if tensor.name not in read]:
        made.graph.initializer.remove(tensor)
    return made


@pytest.mark.parametrize("split", ["(x, p)", "(x, three)", "(x)"])
@pytest.mark.parametrize("at", ["o", "i", "n"])
def test_an_element_of_a_split_is_a_slice(mended, split, at):
    tried = mended("sequences", model(f"s = SplitToSequence<axis=1>{split} y = SequenceAt(s, {at})"))
    assert {"SplitToSequence", "SequenceAt"}.isdisjoint(tried.operators) and "Slice" in tried.operators


def test_a_split_without_its_axis(mended):
    tried = mended("sequences", model("s = SplitToSequence<axis=1, keepdims=0>(x) y = SequenceAt(s, i)"))
    assert tried.operators == ["Slice", "Squeeze", "Identity"]


def test_a_split_of_an_axis_that_is_not_known(mended):
    mended(
        "sequences", model("s = SplitToSequence<axis=1>(x, three) y = SequenceAt(s, i)", 'float[2,"n"] x, float[2] z')
    )


@pytest.mark.parametrize("given, operators", [("axis=1", 1), ("axis=0, new_axis=1", 3), ("axis=-1, new_axis=1", 3)])
def test_constructed_sequences_are_joined(mended, given, operators):
    tried = mended("sequences", model(f"s = SequenceConstruct(x, z) y = ConcatFromSequence<{given}>(s)"))
    assert len(tried.operators) == operators


def test_what_is_inserted_and_erased(mended):
    body = """e = SequenceEmpty<dtype=1>() a = SequenceInsert(e, x) b = SequenceInsert(a, z) c = SequenceInsert(b, z, i)
    g = SequenceInsert(c, x, n) k = SequenceErase(g, i) d = SequenceErase(k, n)
    l = SequenceLength(d) f = Cast<to=1>(l)
    t = ConcatFromSequence<axis=0>(d) y = Mul(t, f)"""
    mended("sequences", model(body), 2)


def test_a_split_that_is_joined_again(mended):
    body = "s = SplitToSequence<axis=1>(x, three) y = ConcatFromSequence<axis=1>(s)"
    assert mended("sequences", model(body)).operators == ["Slice", "Slice", "Slice", "Concat"]


@pytest.mark.parametrize("body, inputs, reason", [
    ("s = SplitToSequence<axis=1>(x) y = SequenceAt(s, k)", "float[2,8] x, int64 k", "no constant"),
    ("s = SplitToSequence<axis=1>(x, three) y = ConcatFromSequence<axis=1>(s)", 'float[2,"n"] x', "not known"),
    ("y = ConcatFromSequence<axis=1>(s)", "float[2,8] x, seq(float[2,8]) s", "is an input"),
])  # fmt: skip
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("sequences", model(body, inputs))
