"""What Unity Sentis computes with an ONNX file, predicted on this machine.

A file is imported as a version's importer does it, rewritten to an ONNX graph that computes what the CPU backend
computes, and run in ONNX Runtime; numpy stands in where ONNX has no form. What is not known is not predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.emulator.prediction import Deviation, Prediction
from weights_bridge.compare import Array

__all__ = ["Deviation", "Prediction", "predict"]


def predict(
    model: Path,
    inputs: Mapping[str, Array],
    version: str = "2.6",
    outputs: list[str] | None = None,
    quantise: str | None = None,
) -> Prediction:
    """Predict what Sentis puts out on its CPU backend.

    Args:
        model: an ONNX file; nothing in it is changed.
        inputs: one array per graph input; what is not float32 or int32 is converted as a caller in Unity must.
        version: of the package.
        outputs: names of those that are wanted; None for all.
        quantise: `float16` or `uint8`, as `ModelQuantizer` stores weights; None leaves them.

    Raises:
        StageError: the file is unreadable, the version unknown, or an input or output is not the graph's.
    """
    from parity.emulator.emulation import Emulation

    return Emulation(model, version, quantise).predict(inputs, outputs)
