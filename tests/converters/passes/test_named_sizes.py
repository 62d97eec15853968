from __future__ import annotations

from scan_cases import graph

from converters.passes import PASSES
from converters.passes.base import Context


def test_a_negative_size_gets_a_name_that_nothing_has(mended):
    model = graph("y = Relu(x)", 'float[2,8] x, float["x_0"] z')
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    PASSES["named_sizes"].run(model, Context())
    sizes = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["x_0_", 8]


def test_its_finding_is_gone(mended):
    model = graph("y = Relu(x)", "float[2,8] x")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert mended("named_sizes", model).before == ["DIMS.NEGATIVE"]


def test_it_must_not_fire_on_named_and_fixed_sizes(left):
    assert left("named_sizes", graph("y = Relu(x)", 'float[2,"n"] x')) == ""
