"""Predicting never fails on the onnx package's own models, whole or with nodes that lack and mistake things."""

from __future__ import annotations

import random

import onnx
import pytest
from scan_corpus import made_in_memory, on_disk

from converters.fusions import predict

OTHERS = [
    "Gemm",
    "Sum",
    "Slice",
    "Gather",
    "Reshape",
    "Concat",
    "Einsum",
    "Pow",
    "Squeeze",
    "Conv",
    "Transpose",
    "Tile",
]


def damaged(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Return a model whose nodes lack inputs, outputs and attributes, or are other operators."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for node in made.graph.node:
        kind = rng.randrange(6)
        if kind == 0 and node.input:
            del node.input[rng.randrange(len(node.input)) :]
        elif kind == 1 and node.output:
            del node.output[:]
        elif kind == 2 and node.attribute:
            node.attribute.pop()
        elif kind == 3:
            node.input[:] = [""] * len(node.input)
        elif kind == 4:
            node.op_type = rng.choice(OTHERS)
    return made


@pytest.mark.slow
def test_every_model_is_predicted_or_says_why_not():
    rng = random.Random(0)
    models = [onnx.ModelProto.FromString(data) for _, data in made_in_memory()]
    models += [onnx.load(str(path), load_external_data=False) for path in on_disk()]
    counts = {"predicted": 0, "told why not": 0}
    for model in models:
        for one in (model, damaged(model, rng)):
            found = predict(one, "2.6")
            assert found.not_predicted or sum(found.layers.values()) >= 0
            counts["told why not" if found.not_predicted else "predicted"] += 1
    assert min(counts.values()) > 500
