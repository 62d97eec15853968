"""Where the emulator first parts from ONNX Runtime: inner tensors of one graph, computed by both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from converters.divergence import Divergence
from parity.emulator.emulation import Emulation
from parity.emulator.prediction import Throws, Unknown
from parity.runners.sentis import first_divergence
from parity.triple.compared import compare_one
from weights_bridge.compare import Array, GateResult
from weights_bridge.errors import StageError


def first_parting(onnx: Path, inputs: Mapping[str, Array], sentis: str, budget_db: float) -> Divergence | None:
    """Return the first node whose output Sentis is predicted to compute otherwise; None where every tensor agrees.

    Args:
        onnx: the graph.
        inputs: on which they are compared.
        sentis: the package version.
        budget_db: the least PSNR in dB that agrees.

    Raises:
        StageError: the emulator predicts nothing, or ONNX Runtime cannot run the graph.
    """
    case = Emulation(onnx, sentis).case_for(inputs)
    if case.made is None:
        raise StageError(f"{case.verdict}: {case.reason}")
    try:
        return first_divergence(onnx, inputs, budget_db, sentis, _compared)
    except (Throws, Unknown) as reason:
        raise StageError(f"the emulator stops: {reason}") from None


def _compared(name: str, wanted: Array, found: Array, budget_db: float) -> GateResult:
    """Compare; what is equal agrees, be it empty, infinite or not a number on both sides."""
    floats = wanted.dtype.kind == found.dtype.kind == "f"
    if wanted.shape == found.shape and np.array_equal(wanted, found, equal_nan=floats):
        return GateResult(name, True, "exact", budget=budget_db)
    return compare_one(name, wanted, found, budget_db)
