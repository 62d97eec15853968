"""The `graph` commands: what they print, their documents, and exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import call

BODY = {"body": "a = Mul(x, w) b = Tanh(a) y = Exp(b)", "init": "float[8] w = {1,2,3,4,5,6,7,8}"}
WORDS = {"inputs": "float[N,8] x", "output": "float[N,8] y"}


@pytest.fixture
def model(saved):
    return saved(BODY["body"], init=BODY["init"], **WORDS)


@pytest.mark.parametrize("words, inputs, outputs", [
    (["extract", "--from", "a", "--to", "b"], ["a"], ["b"]),
    (["cut", "--before", "Exp"], ["x"], ["b"]),
    (["cut", "--at", "a"], ["x"], ["a"]),
    (["fix-shape", "--size", "N=3"], ["x"], ["y"]),
    (["fix-shape", "--input", "x=3,8", "--fold"], ["x"], ["y"]),
    (["rename-io", "--name", "x=rows", "--name", "y=out:0"], ["rows"], ["out:0"]),
    (["inline"], ["x"], ["y"]),
], ids=lambda value: value[0] if isinstance(value, list) else None)  # fmt: skip
def test_each_writes_a_file_that_is_proven_and_says_so(model, tmp_path, words, inputs, outputs):
    before, out = model.read_bytes(), tmp_path / "out.onnx"
    name, *flags = words
    answer = call("graph", name, model, *flags, "--out", out, "--json")
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    assert document["schema"] == f"mlx-sentis/graph-{name}/1"
    assert (document["inputs"], document["outputs"]) == (inputs, outputs)
    assert document["proof"].startswith("equal in ONNX Runtime")
    assert model.read_bytes() == before and call("graph", "info", out).exit_code == 0
    assert "equal in ONNX Runtime" in call("graph", name, model, *flags, "--out", out).stdout


def test_a_recorded_fixture_proves_what_random_inputs_cannot(saved, tmp_path):
    path = saved("a = Gather(w, x) y = Exp(a)", inputs="int64[4] x", init="float[2] w = {1,2}", output="float[4] y")
    np.savez(tmp_path / "f.npz", **{"in::x": np.array([0, 1, 1, 0])})
    answer = call("graph", "cut", path, "--at", "a", "--out", tmp_path / "o.onnx", "--fixture", tmp_path / "f.npz")
    assert answer.exit_code == 0 and "equal in ONNX Runtime" in answer.stdout


@pytest.mark.parametrize("words, code, message", [
    (["extract"], 2, "give --from TENSOR or --to TENSOR"),
    (["fix-shape"], 2, "give --size NAME=N"),
    (["fix-shape", "--size", "N"], 2, "wanted NAME=VALUE"),
    (["fix-shape", "--size", "N=two"], 2, "sizes are whole numbers"),
    (["rename-io", "--name", "x"], 2, "wanted NAME=VALUE"),
    (["cut"], 1, "none of NonMaxSuppression"),
    (["inject-kv"], 1, "its length is fixed"),
], ids=lambda value: value[0] if isinstance(value, list) else None)  # fmt: skip
def test_mistakes_are_one_line_and_write_nothing(model, tmp_path, words, code, message):
    name, *flags = words
    answer = call("graph", name, model, *flags, "--out", tmp_path / "out.onnx")
    assert (answer.exit_code, answer.stdout) == (code, "") and message in answer.stderr
    assert "Traceback" not in answer.stderr and not (tmp_path / "out.onnx").exists()


def test_info_is_text_and_a_document(model):
    text = call("graph", "info", model).stdout
    assert "3 nodes; 1 weights" in text and "input   x  FLOAT [N, 8]" in text
    assert json.loads(call("graph", "info", model, "--json").stdout)["schema"] == "mlx-sentis/graph-info/1"
