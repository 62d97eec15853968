"""`graph hoist-state`: a step that is proven against the whole sequence, and what cannot be one."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from helpers import call
from scan_cases import graph

from converters.fix import fix_model
from converters.surgery.hoist_state import hoist_state
from weights_bridge.errors import BudgetMissedError, StageError

INPUTS = 'float["T",2,3] x'
BODIES = {
    "GRU": "a = Tanh(x) s, h = GRU<hidden_size=4>(a, w, r, b) q = Squeeze(s, one) y = Relu(q)",
    "RNN": "s = RNN<hidden_size=4>(x, w, r, b) y = Squeeze(s, one)",
    "LSTM": "s = LSTM<hidden_size=4>(x, w, r, b) y = Squeeze(s, one)",
}
SEQUENCE = "s = GRU<hidden_size=4>(x, w, r, b) q = Squeeze(s, one)"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(op: str, body: str = "", output: str = 'float["T",2,4] y') -> onnx.ModelProto:
    made = graph(body or BODIES[op], INPUTS, init="int64[1] one = {1}", output=output)
    rng = np.random.default_rng(0)
    rows = 4 * GATES[op]
    for name, shape in (("w", (1, rows, 3)), ("r", (1, rows, 4)), ("b", (1, 2 * rows))):
        made.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    return made


@pytest.mark.parametrize("op", list(BODIES))
def test_a_step_with_its_state_equals_the_whole_and_fix_makes_it_clean(saved, tmp_path, op):
    report = hoist_state(saved(model(op)), tmp_path / "step.onnx", "T")
    assert report["proof"].startswith("12 steps equal the whole")
    assert list(report["states"]) == ["state.0.h", "state.0.c"][: 1 + (op == "LSTM")]
    assert report["states"]["state.0.h"] == {"output": "next_state.0.h", "sizes": [1, "batch", 4], "starts": 0}
    fixed = fix_model(tmp_path / "step.onnx", tmp_path / "out.onnx")
    assert not [one for one in fixed["findings"]["after"] if one["severity"] in ("error", "deviation")]


def test_the_last_state_as_an_output_is_that_of_the_last_step(saved, tmp_path):
    body = "s, y = GRU<hidden_size=4>(x, w, r, b)"
    assert "equal" in hoist_state(saved(model("GRU", body, "float[1,2,4] y")), tmp_path / "step.onnx", "T")["proof"]


def test_zeros_that_are_given_are_replaced(saved, tmp_path):
    body = "z = ConstantOfShape(k) s = GRU<hidden_size=4>(x, w, r, b, , z) y = Squeeze(s, one)"
    made = model("GRU", body)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2, 4]), "k"))
    assert hoist_state(saved(made), tmp_path / "step.onnx", "T")["inputs"] == ["x", "state.0.h"]


@pytest.mark.parametrize("body, error, message", [
    (f"{SEQUENCE} m = ReduceMean<axes=[0]>(q) y = Sub(q, m)", BudgetMissedError, "something else"),
    ("y = Relu(x)", StageError, "no GRU, RNN or LSTM"),
    ("s = GRU<hidden_size=4>(x, w, r, b, , i) y = Squeeze(s, one)", StageError, "not at zeros"),
])  # fmt: skip
def test_what_is_no_step_is_refused_and_nothing_is_written(saved, tmp_path, body, error, message):
    made = model("GRU", body)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 2, 4), np.float32), "i"))
    with pytest.raises(error, match=message):
        hoist_state(saved(made), tmp_path / "step.onnx", "T")
    assert not (tmp_path / "step.onnx").exists()


def test_both_directions_are_refused(saved, tmp_path):
    made = graph(
        's = GRU<hidden_size=2, direction="bidirectional">(x, w, r) y = Relu(s)',
        INPUTS + ", float[2,6,3] w, float[2,6,2] r",
    )
    with pytest.raises(StageError, match="runs backward"):
        hoist_state(saved(made), tmp_path / "step.onnx", "T")


def test_the_command_names_states_and_unknown_sizes(saved, tmp_path):
    path = saved(model("LSTM"))
    answer = call("graph", "hoist-state", path, "--time", "T", "--out", tmp_path / "s.onnx", "--json")
    assert answer.exit_code == 0 and list(json.loads(answer.stdout)["states"]) == ["state.0.h", "state.0.c"]
    answer = call("graph", "hoist-state", path, "--time", "frames", "--out", tmp_path / "t.onnx")
    assert answer.exit_code == 1 and "known: T" in answer.stderr and not (tmp_path / "t.onnx").exists()
