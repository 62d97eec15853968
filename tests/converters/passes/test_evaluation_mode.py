from __future__ import annotations

import pytest
from scan_cases import IMAGE, graph

BN = "BatchNormalization<training_mode=1, epsilon=0.01>(x, s, s, s, v)"


def test_a_training_dropout_drops_nothing(mended):
    model = graph("d = Dropout(x, r, t) y = Neg(d)", init="float r = {0.5}, bool t = {1}")
    tried = mended("evaluation_mode", model, by_design=True)
    assert tried.operators == ["Identity", "Neg"] and tried.before == ["DROPOUT.TRAINING"]


def test_a_training_norm_takes_its_running_statistics(mended):
    model = graph(f"y, m, w = {BN}", f"{IMAGE}, float[3] s, float[3] v")
    tried = mended("evaluation_mode", model, by_design=True)
    assert len(tried.model.graph.node[0].output) == 1
    assert {a.name for a in tried.model.graph.node[0].attribute} == {"epsilon"}


def test_before_opset_14_several_outputs_are_training_mode(mended):
    model = graph("y, m, w, n, k = BatchNormalization(x, s, s, s, v)", f"{IMAGE}, float[3] s, float[3] v", opset=9)
    tried = mended("evaluation_mode", model, by_design=True)
    assert tried.before == ["BATCHNORM.TRAINING_OLD"] and tried.after == []
    assert list(tried.model.graph.node[0].output) == ["y"]


@pytest.mark.parametrize(
    "body, inputs, reason",
    [
        ("y = Dropout(x)", IMAGE, ""),
        ("y = BatchNormalization(x, s, s, s, s)", f"{IMAGE}, float[3] s", ""),
        (f"b, m, w = {BN} y = Add(b, m)", f"{IMAGE}, float[3] s, float[3] v", "statistics are read"),
    ],
)
def test_it_must_not_fire(left, body, inputs, reason):
    assert reason in left("evaluation_mode", graph(body, inputs))
