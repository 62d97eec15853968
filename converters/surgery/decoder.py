"""A decoder without a cache, looked at: its ids and logits, what it is fed, and what each mask lets a token see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.divergence import values_of
from converters.surgery.attention import Attention, Mask
from weights_bridge.compare import Array
from weights_bridge.errors import StageError, unknown_name

if TYPE_CHECKING:
    import onnx

IDS = ("input_ids", "tokens", "ids")


@dataclass(frozen=True)
class Seen:
    """What a mask lets a token see: itself and `window - 1` tokens before it, or all before it."""

    window: int | None


def named_input(model: onnx.ModelProto, name: str | None) -> str:
    """Return the input with token ids: the named one, or one that is called so."""
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    if name is None:
        name = next((known for known in IDS if known in names), names[0] if len(names) == 1 else "")
    if name not in names:
        raise unknown_name("input with token ids (--ids)", name, names)
    value = next(value for value in model.graph.input if value.name == name)
    dims = value.type.tensor_type.shape.dim
    if len(dims) != 2 or dims[1].HasField("dim_value"):
        hint = "a cache needs ids [batch, length] of any length: export with a dynamic length"
        raise StageError(f"{name}: its length is fixed or it has not two axes", hint=hint)
    return name


def named_output(model: onnx.ModelProto, name: str | None) -> str:
    """Return the output with logits: the named one, or the first."""
    names = [value.name for value in model.graph.output]
    if name is None:
        name = "logits" if "logits" in names else names[0]
    if name not in names:
        raise unknown_name("output with logits (--logits)", name, names)
    return name


def vocabulary_of(model: onnx.ModelProto, ids: str) -> int:
    """Return how many tokens the table has that ids are looked up in."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gather" and node.input[1] == ids and node.input[0] in dims:
            return dims[node.input[0]][0]
    raise StageError(f"{ids}: no Gather looks tokens up in a table", hint="name the input with token ids with --ids")


def feed_of(model: onnx.ModelProto, ids: str, sample: Array) -> dict[str, Array]:
    """Return inputs of the graph without a cache: a mask of ones, positions from 0."""
    weights = {tensor.name for tensor in model.graph.initializer}
    feed: dict[str, Array] = {ids: sample}
    for value in model.graph.input:
        if value.name in weights or value.name == ids:
            continue
        if value.name == "attention_mask":
            feed[value.name] = np.ones_like(sample)
        elif value.name == "position_ids":
            feed[value.name] = np.arange(sample.shape[1])[None]
        else:
            hint = "a decoder takes ids, and may take attention_mask [B, T] and position_ids"
            raise StageError(f"input {value.name!r}: not known", hint=hint)
    return feed


def masks_seen(path: Path, found: list[Attention], feed: Mapping[str, Array], tokens: int) -> dict[int, Seen]:
    """Look at what each mask does: returns the place of an attention to what it lets a token see.

    Raises:
        StageError: a token sees one behind it, or the pattern is neither full nor a window.
    """
    values = values_of(path, [one.mask.tensor.name for one in found], feed)
    seen: dict[int, Seen] = {}
    for at, one in enumerate(found):
        seen[at] = _seen(_visible(one.mask, values[one.mask.tensor.name]), one, tokens)
    return seen


def _visible(mask: Mask, values: Array) -> Array:
    visible = values > -1 if mask.node.op == "Add" else values.astype(bool)
    visible = np.logical_not(visible) if mask.turned else visible
    return visible.reshape(-1, *visible.shape[-2:])[0]


def _seen(visible: Array, one: Attention, tokens: int) -> Seen:
    at, before = np.arange(tokens)[:, None], np.arange(tokens)[None]
    where = f"attention at {one.softmax.name or one.softmax.outputs[0].name!r}"
    if visible.shape != (tokens, tokens) or visible[at < before].any():
        hint = "only a causal decoder can have a cache"
        raise StageError(f"{where}: a token sees what comes behind it", hint=hint)
    window = int(visible[-1].sum())
    if not np.array_equal(visible, (before <= at) & (before > at - window)):
        raise StageError(f"{where}: its mask is neither everything before a token nor a window")
    return Seen(None if window == tokens else window)
