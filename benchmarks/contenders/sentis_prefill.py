"""One prefill of an exported decoder: plainly in ONNX Runtime, or as the Sentis emulator predicts it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.timing import timed
from parity.runners.decoder_io import empty_cache, prefill_inputs
from weights_bridge.compare import Array
from weights_bridge.errors import StageError
from weights_bridge.files import read_json


def measure(runtime: str, graph: str, contract: str, ids: list[int], runs: int, version: str) -> dict[str, Any]:
    """Return the seconds of opening the file, of one prefill, and the largest of the last logits.

    Args:
        runtime: `onnx` or `emulator`.
        graph: the ONNX file.
        contract: its contract.
        ids: the prompt.
        runs: counted prefills after one that is not.
        version: of Sentis.
    """
    known = read_json(Path(contract))
    inputs = prefill_inputs(ids, 0, known) | empty_cache(known)
    began = time.perf_counter()
    prefill = (_onnx if runtime == "onnx" else _emulator)(Path(graph), inputs, version)
    opened = time.perf_counter() - began
    logits, seconds = timed(prefill, runs)
    return {
        "opened": round(opened, 2),
        "median": round(statistics.median(seconds), 4),
        "fastest": round(min(seconds), 4),
        "slowest": round(max(seconds), 4),
        "logits": [float(value) for value in np.sort(logits[0, -1])[-5:]],
    }


def _onnx(graph: Path, inputs: dict[str, Array], version: str) -> Callable[[], Array]:
    from converters.ort_session import open_session

    session = open_session(graph)
    names = [value.name for value in session.get_outputs()]  # all of them, as the emulator gives

    def prefill() -> Array:
        try:
            return dict(zip(names, session.run(names, inputs), strict=True))["logits"]
        except Exception as error:  # ORT's exception classes share no public base
            raise StageError(f"{graph}: ONNX Runtime cannot run it: {str(error).splitlines()[0]}") from None

    return prefill


def _emulator(graph: Path, inputs: dict[str, Array], version: str) -> Callable[[], Array]:
    from parity.emulator.emulation import Emulation

    emulation = Emulation(graph, version)

    def prefill() -> Array:
        found = emulation.predict(inputs)
        if found.verdict != "predicted":
            raise StageError(f"{graph}: {found.verdict}: {found.reason}")
        return found.outputs["logits"]

    return prefill
