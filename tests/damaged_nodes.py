"""Models with one node harmed: what a damaged or hand-made file may hold."""

from __future__ import annotations

import numpy as np
import onnx


def damaged(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Return a copy in which one node lost an attribute, inputs or outputs, or an attribute is another number."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    node = copy.graph.node[int(rng.integers(len(copy.graph.node)))]
    harm = int(rng.integers(5))
    if harm == 0 and node.attribute:
        del node.attribute[int(rng.integers(len(node.attribute)))]
    elif harm == 1 and node.input:
        del node.input[int(rng.integers(len(node.input))) :]
    elif harm == 2 and node.output:
        del node.output[int(rng.integers(len(node.output))) :]
    elif harm == 3 and node.attribute:
        attribute = node.attribute[int(rng.integers(len(node.attribute)))]
        attribute.i, attribute.f = int(rng.integers(-3, 99)), -1.0
        attribute.ints[:] = [int(one) for one in rng.integers(-9, 99, int(rng.integers(4)))]
    else:
        node.input.append("nothing makes it")
        if node.input:
            node.input[0] = ""
    return copy
