"""Dump folders as the harness in Unity writes them, made here of arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weights_bridge.files import sha256_of
from weights_bridge.sentis_dump import DUMP_SCHEMA, fixture_sha256

Arrays = Mapping[str, np.ndarray]
AS_SENTIS = {"f": "float32", "i": "int32", "b": "int32", "u": "int32"}


def write_dump(
    folder: Path,
    model: Path,
    fixtures: Mapping[str, tuple[Arrays, Arrays]],
    *,
    version: str = "2.6.0",
    backends: tuple[str, ...] = ("CPU",),
) -> Path:
    """Write a dump of a model.

    Args:
        folder: where to.
        model: the graph that was run.
        fixtures: name to inputs and what came out.
        version: of the package.
        backends: each gets the same outputs.
    """
    runs = []
    for backend in backends:
        for name, (inputs, outputs) in fixtures.items():
            listed = [_written(folder, f"{backend}/{name}/{at}.bin", *one) for at, one in enumerate(outputs.items())]
            run = {"backend": backend, "fixture": name, "fixture_sha256": fixture_sha256(inputs)}
            runs.append(run | {"milliseconds": [40.5, 21.25], "error": "", "outputs": listed})
    said = {"ok": True, "warnings": [], "errors": []}
    entry = {"file": model.name, "sha256": sha256_of(model), "import": said, "runs": runs}
    head = {"schema": DUMP_SCHEMA, "package": "com.unity.ai.inference", "version": version}
    head |= {"unity": "6000.0.30f1", "date": "2026-12-01", "device": "a processor; no graphics device"}
    (folder / "dump.json").write_text(json.dumps(head | {"models": [entry]}), encoding="utf-8")
    return folder


def _written(folder: Path, file: str, name: str, array: np.ndarray) -> dict[str, Any]:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = AS_SENTIS[array.dtype.kind]
    array.astype(f"<{kind[0]}4").tofile(path)
    return {"name": name, "dtype": kind, "shape": list(array.shape), "file": file if array.size else None}


def edit_dump(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a dump's document in place."""
    path = folder / "dump.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def write_graph(path: Path, text: str, **constants: np.ndarray) -> Path:
    """Write a graph of ONNX text; the constants are initialisers."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    onnx.save(model, path)
    return path
