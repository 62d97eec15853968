"""Weights as `ModelQuantizer` stores them, applied to the importer's constants before the graph runs.

Float16: clamped to ±65504, float32 denormals to 0, then rounded to half; the engine's rounding is not known, nearest
even is assumed and truncation is the other one that can be asked for. Uint8: one scale and zero point per tensor,
asymmetric, rounded half to even. Both are widened to float32 again when a layer runs, so arithmetic stays float32.
Read in 2.4 (docs of this project: converters/sentis/2.4.json, `quantiser`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from parity.emulator.folded import hold_folded
from parity.emulator.prediction import Throws, Unknown
from parity.emulator.selection import Selection, selection_of
from weights_bridge.compare import Array
from weights_bridge.errors import UsedWronglyError

if TYPE_CHECKING:
    import onnx

    from converters.facts import Facts
    from parity.emulator.graph import Graph

KINDS = ("float16", "uint8")
TRUNCATED = "float16-truncated"  # what Float16 would be if the engine's rounding cut off
HALF_MAX = 65504.0
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
REFUSED = {
    "int8": "ModelQuantizer has no Int8",
    "int4": "ModelQuantizer has no format of 4 bits",
    "4bit": "ModelQuantizer has no format of 4 bits",
    "awq": "AWQ writes 4-bit weights with scales per group, and operators for them, which Sentis cannot import",
    "gptq": "GPTQ writes 4-bit weights with scales per group, and operators for them, which Sentis cannot import",
    "qdq": "QuantizeLinear, QLinear… and MatMulInteger are not imported",
}


def checked_kind(how: str) -> str:
    """Return a kind that Sentis has.

    Raises:
        UsedWronglyError: it has not, with the reason.
    """
    name = how.lower().replace("-", "").replace("_", "")
    if name in KINDS:
        return name
    aliases = {"fp16": "float16", "half": "float16", "u8": "uint8"}
    if name in aliases:
        return aliases[name]
    why = REFUSED.get(name.removesuffix("bit") + ("bit" if name.endswith("bit") else ""), "no such kind")
    hint = "fine-tune first, then float16; uint8 only where memory is short"
    raise UsedWronglyError(f"{how}: {why}; Sentis has float16 and uint8 only, made in Unity", hint=hint)


def float16_of(values: Array, *, truncated: bool = False) -> Array:
    """Return weights as Float16 keeps them, float32 again.

    Args:
        values: float32.
        truncated: whether halves are cut off instead of rounded to the nearest even.
    """
    clamped = np.clip(values, np.float32(-HALF_MAX), np.float32(HALF_MAX))
    clamped = np.where(np.abs(clamped) < np.float32(SMALLEST_NORMAL), np.float32(0), clamped)
    half = clamped.astype(np.float16)
    if truncated:
        beyond = np.abs(half.astype(np.float32)) > np.abs(clamped)
        half = np.where(beyond, np.nextafter(half, np.float16(0)), half)
    return half.astype(np.float32)


def uint8_scale(values: Array) -> tuple[np.float32, np.float32]:
    """Return scale and zero point of a tensor.

    The scale is (max(0, max) − min(0, min)) / 255, the zero point round(clamp(−min / scale, 0, 255)). Both are 0 for a
    tensor of zeros, whose integers times a scale of 0 are 0 whatever they are.

    Args:
        values: float32, not empty.
    """
    low = np.minimum(np.float32(0), values.min()).astype(np.float32)
    high = np.maximum(np.float32(0), values.max()).astype(np.float32)
    scale = ((high - low) / np.float32(255)).astype(np.float32)
    if scale == 0:
        return np.float32(0), np.float32(0)
    return scale, np.rint(np.clip(-low / scale, np.float32(0), np.float32(255))).astype(np.float32)


def uint8_of(values: Array) -> Array:
    """Return weights as Uint8 keeps them, float32 again: (q − zero point) · scale."""
    scale, zero_point = uint8_scale(values)
    if scale == 0:
        return np.zeros_like(values)
    stored = np.rint(values / scale)
    stored += zero_point
    np.clip(stored, 0, 255, out=stored)
    stored -= zero_point
    stored *= scale
    return stored


def stored_as(values: Array, how: str, name: str = "constant") -> Array:
    """Return a constant as one kind keeps it, float32 again.

    Raises:
        Throws: it has no element.
        Unknown: it holds something that is no number.
    """
    if not values.size:
        raise Throws(f"{name!r} has no element: ModelQuantizer throws")
    if not np.isfinite(values).all():
        raise Unknown(f"{name!r} holds values that are not finite: what ModelQuantizer makes of them was not read")
    return uint8_of(values) if how == "uint8" else float16_of(values, truncated=how == TRUNCATED)


def quantised(graph: Graph, how: str, model: onnx.ModelProto, known: Facts) -> list[str]:
    """Replace the constants of a graph that `ModelQuantizer` would; return what was done, for the notes.

    Args:
        graph: `held` has the constants.
        how: `float16`, `uint8`, or `TRUNCATED`.
        model: what the graph was made of, as it is declared; large tensors need no data.
        known: the facts of the version.

    Raises:
        UsedWronglyError: another kind.
        Throws: ModelQuantizer throws.
        Unknown: a constant's numbers are made by the optimiser, in a way that is not repeated here.
    """
    if how != TRUNCATED:
        how = checked_kind(how)
    chosen = selection_of(model, known)
    for name, values in stored_constants(graph, how, chosen).items():
        graph.held[name] = values
    read = "" if chosen.verified else f", chosen as in 2.4, not verified for {known.version}"
    return [f"{len(chosen.chosen)} constants stored as {how}, {chosen.elements} numbers{read}"]


def stored_constants(graph: Graph, how: str, chosen: Selection) -> dict[str, Array]:
    """Return value name to what is stored, float32; constants that are computed at import are held from then on.

    Raises:
        Throws: ModelQuantizer throws.
        Unknown: see `quantised`.
    """
    computed = [name for name in chosen.floats if name not in graph.held and name in graph.kinds]
    _hold_computed(graph, computed)
    for name, output in chosen.fills.items():
        _hold_fill(graph, name, output, next(one for one in chosen.chosen if one.name == name).sizes)
    made = [fold.bias for fold in chosen.folds if hold_folded(graph, fold) and fold.bias in graph.held]
    missing = [one.name for one in chosen.chosen if one.name not in graph.held]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise Unknown(f"{missing[0]!r}{more}: its numbers are the optimiser's, made of several layers")
    names = dict.fromkeys([*(one.name for one in chosen.chosen), *made])
    return {name: stored_as(graph.held[name], how, name) for name in names}


def _hold_computed(graph: Graph, names: Sequence[str]) -> None:
    """Compute what the import folds, on the weights as they are: it is folded before anything is quantised."""
    from parity.emulator.running import Runner

    if not names:
        return
    values, _ = Runner(graph, names).run({})
    graph.steps = [step for step in graph.steps if not set(names).intersection(step.outputs)]
    for name in names:
        graph.hold(name, values[name])


def _hold_fill(graph: Graph, name: str, output: str, sizes: tuple[int, ...]) -> None:
    """Make the bias that the optimiser makes of a scalar behind a product: one number per column."""
    step = next((step for step in graph.steps if output in step.outputs), None)
    if name in graph.held or step is None or step.node is None or step.node.op_type not in ("Add", "Sub"):
        return
    for at, given in enumerate(step.inputs):
        held = graph.held.get(given)
        if held is None or held.size != 1:
            continue
        taken = step.node.op_type == "Sub"  # x − c is x + (−c) for Sentis; its Sub of a constant first is no bias
        if taken and at == 0:
            return
        step.node.op_type = "Add"
        graph.hold(name, np.full(sizes, -held.reshape(-1)[0] if taken else held.reshape(-1)[0], np.float32))
        step.inputs[at] = step.node.input[at] = name
        return
