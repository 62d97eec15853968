from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scan_cases import graph

from converters.prove import outputs_of


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Write a graph in ONNX text, or a model, to a file; returns its path."""

    def save(body: str | onnx.ModelProto, name: str = "m.onnx", **words: Any) -> Path:
        model = graph(body, **words) if isinstance(body, str) else body
        path = tmp_path / name
        path.write_bytes(model.SerializeToString())
        return path

    return save


@pytest.fixture
def run() -> Callable[..., dict[str, np.ndarray]]:
    """Run a file in ONNX Runtime without optimisations."""

    def outputs(path: Path, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        return outputs_of(path, inputs)

    return outputs
