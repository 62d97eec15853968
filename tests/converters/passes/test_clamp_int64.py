from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from converters.passes.base import Context
from converters.passes.clamp_int64 import PASS

HEAD = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[2, "n"] x) => (float[2, "m"] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] big = {9223372036854775807}, int64 scalar = {9223372036854775807}>
"""


def a_model(body: str) -> onnx.ModelProto:
    """A graph with those of the four constants that it reads."""
    model = onnx.parser.parse_model(HEAD + "{" + body + "}")
    read = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    model.graph.ClearField("initializer")
    model.graph.initializer.extend(kept)
    return model


def ran(body: str):
    model = a_model(body)
    outcome = PASS.run(model, Context())
    values = {t.name: onnx.numpy_helper.to_array(t).item() for t in model.graph.initializer}
    return outcome, values


def test_slice_ends_are_saturated_and_nothing_else_touched():
    outcome, values = ran("y = Slice(x, zero, big, one)")
    assert outcome.changed == 1
    assert values["big"] == 2**31 - 1 and values["zero"] == 0


def test_a_bound_is_followed_through_operators_that_only_carry_it():
    outcome, values = ran("c = Cast<to=7>(scalar) r = Reshape(c, one) y = Slice(x, zero, r, one)")
    assert outcome.changed == 1 and values["scalar"] == 2**31 - 1


@pytest.mark.parametrize(
    "body, reason",
    [
        ("s = Sub(big, one) y = Slice(x, zero, s, one)", "Sub 's' computes with it"),
        ("c = Cast<to=6>(big) y = Slice(x, zero, c, one)", "Cast 'c' computes with it"),
        ("c = Cast<to=1>(big) y = Add(x, c)", "Cast 'c' computes with it"),
        ("y = Slice(x, zero, one, big)", "Slice 'y' computes with it"),
        ("y = Identity(big)", "it reaches an output of the model"),
    ],
)
def test_it_must_not_fire_where_the_number_counts(body, reason):
    outcome, values = ran(body)
    assert outcome.changed == 0 and values["big"] == 2**63 - 1
    assert outcome.left["big"] == reason


def test_constants_in_nodes_are_saturated_too():
    model = a_model("e = Constant<value = int64[1] {-9223372036854775808}>() y = Slice(x, e, one, one)")
    assert PASS.run(model, Context()).changed == 1
    assert onnx.numpy_helper.to_array(model.graph.node[0].attribute[0].t) == np.array([-(2**31)])
