"""Damaged nodes and unfit inputs: a prediction or one line, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from damaged_nodes import damaged
from onnx import helper
from scan_cases import CASES

from parity.emulator import Prediction, predict
from weights_bridge.errors import StageError


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return ones of the declared sizes; open ones are 2."""
    held = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name not in held and tensor.elem_type:
            sizes = [dim.dim_value if 0 < dim.dim_value < 64 else 2 for dim in tensor.shape.dim]
            found[value.name] = np.ones(sizes, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return found


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_a_damaged_node_is_answered_without_a_traceback(tmp_path: Path, seed: int):
    rng, path = np.random.default_rng(seed), tmp_path / "m.onnx"
    for case in CASES:
        harmed = damaged(case.graphs()[seed % 2], rng)
        path.write_bytes(harmed.SerializeToString())
        try:
            found = predict(path, inputs_of(harmed), "2.6")
        except StageError as error:
            assert "\n" not in error.message.split(":\n")[0]
        else:
            assert found.verdict in ("predicted", "import fails", "not predicted")
            assert found.verdict == "predicted" or found.reason


def test_inputs_that_do_not_fit_each_other_are_one_line(one: Callable[..., Prediction]):
    with pytest.raises(StageError, match="does not run"):
        one("Add", np.ones((2, 3), np.float32), np.ones((4,), np.float32))
    with pytest.raises(StageError, match="does not run with these inputs"):
        one("OneHot", np.array([1]), np.array(3), np.array([1], np.float32))
