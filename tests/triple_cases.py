"""Small graphs with a fixture, and the table measured through the public command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers import call
from sentis_dumps import write_dump

from converters.ort_session import open_session

Arrays = Mapping[str, np.ndarray]
LINEAR = """<ir_version: 10, opset_import: ["": 18]>
linear (float[2, 4] x) => (float[2, 3] y, int64[2, 1] best) {
    y = MatMul(x, w)
    best = ArgMax<axis = 1>(y)
}"""


def ort(model: Path, inputs: Arrays) -> dict[str, np.ndarray]:
    session = open_session(model, "off")
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


@dataclass(frozen=True)
class Case:
    """A graph, the inputs and the original's outputs."""

    folder: Path
    model: Path
    fixture: Path
    inputs: Arrays

    def dump(self, outputs: Arrays | None = None, **given: Any) -> Path:
        """Write a dump of what ONNX Runtime computes, or of other outputs."""
        found = ort(self.model, self.inputs) if outputs is None else outputs
        return write_dump(self.folder / "dump", self.model, {"f": (self.inputs, found)}, **given)

    def asked(self, *words: object, edge: str = "ab", code: int = 0) -> dict[str, Any]:
        """Measure through the command line and return its document."""
        done = call("parity", "--model", self.model, "--fixture", self.fixture, "--edge", edge, "--json", "-q", *words)
        assert done.exit_code == code, (done.exit_code, done.output, done.stderr)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return json.loads(done.stdout)


def rows(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return edge to (verdict, Sentis) of a table with one fixture and one origin."""
    return {row["edge"]: (row["verdict"], row["sentis"]) for row in document["rows"]}


def steps(document: dict[str, Any]) -> dict[str, str]:
    return {step["number"]: step["found"] for step in document["steps"]}
