"""`bench scan`: how long the scanner takes, as a command in a new process: start, reading, every rule."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.asked import Asked
from benchmarks.contenders.timing import timed
from benchmarks.result import Bench, Budget, Figures, Table
from benchmarks.startup import installed
from parity.children import environment
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

RUNS = 5
LARGE_BYTES, LARGE_SECONDS = 100_000_000, 1.0
NODES, NODES_SECONDS = 2000, 2.0
WIDTH = 1024  # of the square weights in the large file: 4 MiB each
COLUMNS = {
    "file": "file",
    "megabytes": "MB",
    "nodes": "nodes",
    "findings": "findings",
    "median": "median s",
    "fastest": "fastest s",
    "slowest": "slowest s",
}


def measure(asked: Asked, program: Sequence[str] | None = None) -> Bench:
    """Measure the wall time of `mlx-sentis scan` on a large file and on one of many nodes.

    Args:
        asked: `runs`.
        program: the command in words; None finds the installed one.

    Raises:
        StageError: the command does not end well.
    """
    runs, words = asked.runs or RUNS, list(program or installed())
    bench = Bench("scan", f"wall time of `mlx-sentis scan` in a new process, median of {runs}")
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        large, many = Path(work) / "large.onnx", Path(work) / "many.onnx"
        large.write_bytes(large_model().SerializeToString())
        many.write_bytes(many_nodes().SerializeToString())
        asked.say(f"scan: {large.stat().st_size / 1e6:.0f} MB, then {NODES} nodes, median of {runs}")
        rows = [_row(words, large, runs), _row(words, many, runs)]
    bench.tables["files"] = Table(COLUMNS, rows)
    bench.budgets.append(Budget("a file of 100 MB", float(rows[0]["median"]), LARGE_SECONDS, "s"))
    bench.budgets.append(Budget("a graph of 2,000 nodes", float(rows[1]["median"]), NODES_SECONDS, "s"))
    return bench


def _row(words: list[str], path: Path, runs: int) -> Figures:
    import json

    import onnx

    answers: list[str] = []

    def once() -> None:
        done = subprocess.run([*words, "scan", str(path), "--json"], capture_output=True, text=True, env=environment())
        if done.returncode not in (0, 3):
            raise StageError(f"scan {path.name}: exit {done.returncode}", hint=done.stderr.strip()[-300:])
        answers.append(done.stdout)

    _, seconds = timed(once, runs)
    nodes = len(onnx.load(str(path), load_external_data=False).graph.node)
    return {
        "file": path.name,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "nodes": nodes,
        "findings": len(json.loads(answers[-1])["findings"]),
        "median": round(statistics.median(seconds), 3),
        "fastest": round(min(seconds), 3),
        "slowest": round(max(seconds), 3),
    }


def large_model() -> onnx.ModelProto:
    """Return a chain of products with 100 MB of weights."""
    from onnx import helper, numpy_helper

    count = -(-LARGE_BYTES // (WIDTH * WIDTH * 4))
    weight = np.zeros((WIDTH, WIDTH), np.float32)
    nodes = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(count)]
    return _model(nodes, f"t{count}", [numpy_helper.from_array(weight, f"w{i}") for i in range(count)])


def many_nodes() -> onnx.ModelProto:
    """Return 2,000 nodes of the kinds that rules look at most: shapes, casts, norms, pools of constants."""
    from onnx import helper, numpy_helper

    shape = numpy_helper.from_array(np.array([1, WIDTH]), "shape")
    scale = numpy_helper.from_array(np.ones(WIDTH, np.float32), "scale")
    step = [
        ("Softmax", ["{}"], {"axis": -1}),
        ("LayerNormalization", ["{}", "scale", "scale"], {"axis": -1}),
        ("Div", ["{}", "scale"], {}),
        ("Reshape", ["{}", "shape"], {}),
        ("Transpose", ["{}"], {"perm": [0, 1]}),
        ("Cast", ["{}"], {"to": 1}),
        ("Add", ["{}", "scale"], {}),
        ("Pow", ["{}", "scale"], {}),
    ]
    nodes = []
    for index in range(NODES):
        op, inputs, attributes = step[index % len(step)]
        names = [name.format(f"t{index}") for name in inputs]
        nodes.append(helper.make_node(op, names, [f"t{index + 1}"], **attributes))
    return _model(nodes, f"t{NODES}", [shape, scale])


def _model(nodes: list[onnx.NodeProto], last: str, initialisers: list[onnx.TensorProto]) -> onnx.ModelProto:
    from onnx import TensorProto, helper

    given = helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1, WIDTH])
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, WIDTH])
    graph = helper.make_graph(nodes, "made", [given], [out], initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
