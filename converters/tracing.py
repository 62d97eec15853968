"""Tracing small torch modules into tidy ONNX graphs whose weights are inputs.

The stock exporter works on whole models and repeats itself for every identical layer. All pieces are traced side by
side in one call, because each call sets up its own table of operators (1.9 s of three calls). Weights become graph
inputs before anything is optimised: nothing can then fold, merge or rename them, and their values are not needed.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
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


def trace(pieces: Sequence[Piece], opset: int) -> dict[str, Fragment]:
    """Trace pieces with the dynamo exporter, all in one go, and tidy each one's graph.

    Returns:
        Piece name to fragment, in order.

    Raises:
        StageError: the exporter cannot, or it wrote another opset than asked.
    """
    model = _exported(pieces, opset)
    written = model.opset_imports.get("", 0)
    if written != opset:
        hint = "export with --opset 18 (Sentis 2.6 reads up to 25); `mlx-sentis fix --sentis 2.4` brings it to 15"
        raise StageError(f"opset: asked for {opset}, the exporter wrote {written}; nothing was written", hint=hint)
    return {piece.name: _fragment(model, number, piece) for number, piece in enumerate(pieces)}


def _fragment(whole: Any, number: int, piece: Piece) -> Fragment:
    """Cut the piece with a number out of what was traced and tidy it."""
    import onnx_ir

    inputs, outputs = ([f"{number}.{name}" for name in names] for names in (piece.inputs, piece.outputs))
    graph = onnx_ir.convenience.extract(whole.graph, inputs, outputs)
    for value in (*graph.inputs, *graph.outputs):
        value.name = str(value.name).removeprefix(f"{number}.")
    model = onnx_ir.Model(graph, ir_version=whole.ir_version)
    prefix = f"modules_.{number}."
    weights = tidy(model, [f"{prefix}{name}" for name, _ in piece.module.named_parameters()])
    proto = onnx_ir.to_proto(model)
    sources = {local: (name.removeprefix(prefix), transform) for local, (name, transform) in weights.items()}
    return Fragment(piece.name, proto.graph, sources, whole.opset_imports[""], proto.ir_version)


def _exported(pieces: Sequence[Piece], opset: int) -> Any:
    """Return the onnx-ir model of pieces side by side; its inputs and outputs are called `<number>.<name>`.

    Raises:
        StageError: the exporter cannot; the piece at fault is named.
    """
    import torch

    from converters.side_by_side import SideBySide

    dynamic = [
        tuple(dict.fromkeys(piece.dynamic.get(name, ()), torch.export.Dim.DYNAMIC) for name in piece.inputs)
        for piece in pieces
    ]
    try:
        with _quiet():
            program = torch.onnx.export(
                SideBySide([piece.module for piece in pieces]),
                tuple(tuple(piece.inputs.values()) for piece in pieces),
                input_names=[f"{number}.{name}" for number, piece in enumerate(pieces) for name in piece.inputs],
                output_names=[f"{number}.{name}" for number, piece in enumerate(pieces) for name in piece.outputs],
                dynamic_shapes=(tuple(dynamic),),  # one entry for all of `forward(*inputs)`
                opset_version=opset,
                dynamo=True,
                optimize=False,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, ValueError) as error:  # pyright: ignore[reportAttributeAccessIssue]
        if len(pieces) > 1:
            for piece in pieces:
                _exported([piece], opset)  # the one at fault raises with its own name
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        names = ", ".join(piece.name for piece in pieces)
        raise StageError(f"{names}: torch.onnx cannot export it at opset {opset}: {first}") from error
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
