"""Sum of one input as Identity.

Why: Sentis adds the one input to itself.
"""

from __future__ import annotations

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write Identity."""
    if not place.positions:
        raise Refusal("it has no input")
    emit("Identity", place.name(place.positions[0]), to=place.node.output[0])


PASS = node_pass("sum_single", "Sentis doubles the one input of a Sum", write, mends=["SUM.SINGLE_INPUT"])
