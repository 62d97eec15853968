from __future__ import annotations

from collections.abc import Callable

import pytest
from scan_cases import graph

from converters.fusions import Prediction, predict


@pytest.fixture
def predicted() -> Callable[..., Prediction]:
    """Predict the layers of a graph in ONNX text; floats [2, 3, 8] go in, [2, 3, 8] come out."""

    def run(body: str, init: str = "", sentis: str = "2.4", **words: object) -> Prediction:
        given = {"inputs": "float[2,3,8] x", "opset": 17, "output": "float[2,3,8] y"} | words
        return predict(graph(body, init=init, **given), sentis)  # pyright: ignore[reportArgumentType]

    return run
