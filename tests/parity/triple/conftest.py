"""Small graphs with a fixture, and the table measured through the public command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentis_dumps import write_graph
from triple_cases import LINEAR, Arrays, Case, ort


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., Case]:
    """case(text, inputs, out=…, **constants) -> a graph whose fixture holds what ONNX Runtime computes, or `out`."""

    def make(text: str, inputs: Arrays, out: Arrays | None = None, **constants: np.ndarray) -> Case:
        model = write_graph(tmp_path / "m.onnx", text, **constants)
        wanted = ort(model, inputs) if out is None else out
        tensors = {f"in::{name}": array for name, array in inputs.items()}
        tensors |= {f"out::{name}": array for name, array in wanted.items()}
        np.savez(tmp_path / "f.npz", **tensors)  # pyright: ignore[reportArgumentType]
        return Case(tmp_path, model, tmp_path / "f.npz", inputs)

    return make


@pytest.fixture
def linear(case: Callable[..., Case]) -> Case:
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4), (4, 3)))
    return case(LINEAR, {"x": x}, w=w)
