"""Small models for the emulator, written to a file and predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from parity.emulator import Prediction, predict

Made = Callable[..., Path]


def write(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[int | str | None]]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
) -> Path:
    """Write a model; outputs bear no type, as the importer reads none."""
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    given = [helper.make_tensor_value_info(name, element, list(sizes)) for name, (element, sizes) in inputs.items()]
    graph = helper.make_graph(list(nodes), "made", given, [onnx.ValueInfoProto(name=name) for name in outputs], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return a function that writes a model and returns its path."""

    def make(*args: Any, **kwargs: Any) -> Path:
        return write(tmp_path / "m.onnx", *args, **kwargs)

    return make


@pytest.fixture
def one(made: Made) -> Callable[..., Prediction]:
    """Return a function that predicts one operator on arrays: floats and integers by their dtype."""

    def run(
        op: str, *arrays: np.ndarray, opset: int = 18, version: str = "2.6", constants: Sequence[int] = (), **given: Any
    ) -> Prediction:
        names = [f"x{at}" for at in range(len(arrays))]
        node = helper.make_node(op, names, ["y"], "node", **given)
        fed = {name: array for at, (name, array) in enumerate(zip(names, arrays, strict=True)) if at not in constants}
        held = {name: array for name, array in zip(names, arrays, strict=True) if name not in fed}
        inputs = {name: (helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in fed.items()}
        return predict(made([node], inputs, ["y"], held, opset), fed, version)

    return run
