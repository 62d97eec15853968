"""TopK(largest=0) as Neg, TopK(largest=1), Neg.

Why: Sentis' search for the smallest values skips some of them where data is negative. Ties keep their order, lower
index first. Does not fire on unsigned integers, which have no negative.
"""

from __future__ import annotations

from converters.onnx_file import type_name
from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the two negations around a search for the largest."""
    node = place.node
    kind = type_name(place.view.type(place.name(0)))
    if kind.startswith("UINT"):
        raise Refusal(f"{kind} has no negative numbers")
    kept = {name: place.attributes.get(name) for name in ("axis", "sorted")}
    found = emit.name()
    indices = node.output[1] if len(node.output) > 1 and node.output[1] else emit.name()
    negative = emit("Neg", place.name(0))
    emit.many("TopK", [negative, *node.input[1:]], [found, indices], largest=1, **kept)
    if node.output[0]:
        emit("Neg", found, to=node.output[0])


PASS = node_pass(
    "topk_smallest",
    "Sentis finds wrong smallest values where data is negative",
    write,
    mends=["TOPK.SMALLEST_NEGATIVE"],
)
