"""Tracing one small torch module into a tidy ONNX graph whose weights are inputs.

The stock exporter works on whole models and repeats itself for every identical layer (SmolLM2-135M: 340 s).
Pieces take one to four seconds each. Weights become graph inputs before anything is optimised: nothing can
then fold, merge or rename them, and their values are not needed.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from converters.tidy import tidy
from weights_bridge.errors import StageError

if TYPE_CHECKING:
    import onnx

    from converters.families.causal_lm_torch import Piece


@dataclass(frozen=True)
class Fragment:
    """A traced piece.

    Attributes:
        name: the piece's name.
        graph: nodes, constants as initialisers, inputs (the module's own, then its weights), outputs.
        weights: graph input name to (torch name inside the piece, transform `same` or `transpose`).
        opset: what the exporter wrote.
        ir_version: of the traced model.
    """

    name: str
    graph: onnx.GraphProto
    weights: dict[str, tuple[str, str]]
    opset: int
    ir_version: int


def trace(piece: Piece, opset: int) -> Fragment:
    """Trace a piece with the dynamo exporter and tidy the result.

    Raises:
        StageError: the exporter cannot, or it wrote another opset than asked.
    """
    import onnx_ir

    model = _exported(piece, opset)
    written = model.opset_imports.get("", 0)
    if written != opset:
        hint = "export with --opset 18 (Sentis 2.6 reads up to 25); opset 15 needs a down-conversion of its own"
        raise StageError(f"opset: asked for {opset}, the exporter wrote {written}; nothing was written", hint=hint)
    names = [name for name, _ in piece.module.named_parameters()]
    weights = tidy(model, names)
    proto = onnx_ir.to_proto(model)
    return Fragment(piece.name, proto.graph, weights, written, proto.ir_version)


def _exported(piece: Piece, opset: int) -> Any:
    import torch

    dynamic = tuple(dict.fromkeys(piece.dynamic.get(name, ()), torch.export.Dim.DYNAMIC) for name in piece.inputs)
    try:
        with _quiet():
            program = torch.onnx.export(
                piece.module,
                tuple(piece.inputs.values()),
                input_names=list(piece.inputs),
                output_names=list(piece.outputs),
                dynamic_shapes=dynamic,
                opset_version=opset,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, ValueError) as error:  # pyright: ignore[reportAttributeAccessIssue]
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise StageError(f"{piece.name}: torch.onnx cannot export it at opset {opset}: {first}") from error
    assert program is not None
    return program.model


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's own talk about packages that are not installed and its deprecations."""
    loggers = [logging.getLogger("torch.onnx"), logging.getLogger("onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
