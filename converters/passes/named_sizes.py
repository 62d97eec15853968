"""Negative sizes of inputs as named ones.

Why: Sentis takes a negative size for an unknown one, with a warning; so does no other reader of ONNX for sure. The
name is the input's with the axis behind it. Does not fire on sizes that are fixed or have a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from converters.passes.base import Context, Outcome, Pass

if TYPE_CHECKING:
    import onnx


def run(model: onnx.ModelProto, context: Context) -> Outcome:
    """Name the negative sizes of inputs and outputs."""
    outcome = Outcome()
    taken = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    for value in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value >= 0 or not context.room():
                continue
            name = f"{value.name}_{axis}"
            while name in taken:
                name += "_"
            taken.add(name)
            dim.dim_param = name
            outcome.changed += 1
            outcome.places.append(name)
            context.spend(0)
    return outcome


PASS = Pass("named_sizes", "Sentis warns of negative sizes", ("DIMS.NEGATIVE",), run)
