from __future__ import annotations

import pytest
from scan_cases import graph

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUT = "a, b = {op}<hidden_size=4{given}>({inputs}) y = Add(a, b)"


def model(
    op: str, given: str = "", directions: int = 1, more: str = "", rows: str = "2", opset: int = 15, steps: str = "5"
):
    size = GATES[op] * 4
    inputs = f"float[{steps},{rows},3] x, float[{directions},{size},3] w, float[{directions},{size},4] r, "
    inputs += f"float[{directions},{2 * size}] z, float[{directions},{rows},4] h, float[{directions},{rows},4] m"
    return graph(OUT.format(op=op, given=f", {given}" if given else "", inputs=f"x, w, r{more}"), inputs, opset)


@pytest.mark.parametrize("op", ["GRU", "RNN"])
@pytest.mark.parametrize("more", ["", ", z", ", z, , h", ", , , h"])
@pytest.mark.parametrize("direction, count", [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
def test_every_step_is_written_out(mended, op, more, direction, count):
    tried = mended("recurrent", model(op, f'direction="{direction}"', count, more))
    assert op not in tried.operators


@pytest.mark.parametrize("given", ["linear_before_reset=1", "clip=0.5", 'activations=["HardSigmoid","Relu"]',
                                   'activations=["HardSigmoid","Tanh"], activation_alpha=[0.3]'])  # fmt: skip
def test_forms_of_a_gru(mended, given):
    mended("recurrent", model("GRU", given, more=", z, , h"))


@pytest.mark.parametrize("opset", [9, 12, 18])
def test_other_opsets(mended, opset):
    mended(
        "recurrent",
        model("GRU", more=", z", opset=opset, rows='"n"') if opset > 9 else model("GRU", more=", z", opset=9),
    )


@pytest.mark.parametrize("given, finding", [
    ('activations=["Sigmoid","Softsign","Tanh"]', "LSTM.SOFTSIGN"),
    ('activations=["HardSigmoid","Tanh","ScaledTanh"], activation_alpha=[0.3, 0.7], activation_beta=[0.4, 0.9]',
     "LSTM.ACT_PARAMS"),
])  # fmt: skip
def test_an_lstm_whose_activations_sentis_does_not_compute(mended, given, finding):
    tried = mended("recurrent", model("LSTM", given, more=", z, , h, m"))
    assert tried.before == [finding]


@pytest.mark.parametrize(
    "made, reason",
    [
        (model("GRU", steps='"s"'), "number of steps is not known"),
        (model("GRU", steps="600"), "600 steps"),
        (model("GRU", more=", z, l"), "lengths of its own"),
        (model("GRU", 'activations=["Gelu","Tanh"]'), "'gelu' is not known"),
        (model("LSTM"), ""),
    ],
)
def test_it_must_not_fire(left, made, reason):
    if "lengths" in reason:
        made.graph.input.add(name="l").type.tensor_type.elem_type = 6
        made.graph.input[-1].type.tensor_type.shape.dim.add().dim_value = 2
    assert reason in left("recurrent", made)
