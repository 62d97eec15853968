"""What exports are asked."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest


@pytest.fixture
def prompt() -> np.ndarray:
    """70 token ids [1, 70]: twice the toy Gemma's window of 32 and more."""
    return np.random.default_rng(0).integers(6, 300, (1, 70))


@pytest.fixture
def source(tmp_path):
    """Write a graph given as text, changed by a function, as in.onnx."""

    def write(text: str, change=None):
        model = onnx.parser.parse_model(text)
        if change:
            change(model)
        path = tmp_path / "in.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return write
