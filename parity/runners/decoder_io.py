"""Names, masks and checks of the causal_lm contract, in numpy: what feeds a flat-cache decoder graph.

Legend: `q` query tokens of this step, `p` tokens in the cache before it, `t = p + q`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weights_bridge.compare import Array
from weights_bridge.errors import StageError, all_at_once

NEXT_TOKEN = "next_token"
MASKED = -1e9  # what contracts say too; finite, because infinity turns a fully masked row into NaN


def cache_names(layers: int) -> list[tuple[str, str]]:
    """Return (cache input, cache output) of every layer's keys and values, in the graph's order."""
    return [(f"past_key_values.{i}.{kv}", f"present.{i}.{kv}") for i in range(layers) for kv in ("key", "value")]


def additive_mask(query: int, past: int, window: int | None, masked: float = MASKED) -> Array:
    """Return the mask that is added to attention scores, [1, 1, q, t] float32: 0 where a token may look.

    Args:
        query: tokens of this step.
        past: tokens before it.
        window: a token sees itself and the `window - 1` tokens before it; None for all before it.
        masked: the value where it may not.
    """
    at = np.arange(past, past + query)[:, None]
    seen = np.arange(past + query)[None, :]
    visible = seen <= at
    if window is not None:
        visible &= seen > at - window
    return np.where(visible, np.float32(0), np.float32(masked))[None, None]


def prefill_inputs(ids: Sequence[int], past: int, contract: Mapping[str, Any]) -> dict[str, Array]:
    """Return every input of one step but the cache.

    Args:
        ids: the q new token ids.
        past: p, the tokens already in the cache.
        contract: `contract.json` (`constants`, `masks`, `masked`).

    Returns:
        `input_ids` [1, q] int64, `position_ids` [1, q] int64 and one mask [1, 1, q, t] per attention kind.

    Raises:
        StageError: no ids, or ids outside the vocabulary.
    """
    check_ids(ids, contract["constants"]["vocab"])
    feed: dict[str, Array] = {
        "input_ids": np.asarray([ids], np.int64),
        "position_ids": np.arange(past, past + len(ids), dtype=np.int64)[None],
    }
    for name, kind in contract["masks"].items():
        window = contract["constants"]["sliding_window"] if kind == "sliding_attention" else None
        feed[name] = additive_mask(len(ids), past, window, contract.get("masked", MASKED))
    return feed


def empty_cache(contract: Mapping[str, Any]) -> dict[str, Array]:
    """Return the cache before the first token: every input [1, kv_heads, 0, head_dim] float32."""
    constants = contract["constants"]
    shape = (1, constants["kv_heads"], 0, constants["head_dim"])
    return {name: np.zeros(shape, np.float32) for name, _ in cache_names(constants["layers"])}


def asked_outputs(outputs: Mapping[str, Array], contract: Mapping[str, Any]) -> dict[str, Array]:
    """Return the original's outputs with the next token's id [1, 1] where the graph puts that out too."""
    if not any(row["name"] == NEXT_TOKEN for row in contract.get("outputs", ())):
        return dict(outputs)
    return dict(outputs) | {NEXT_TOKEN: outputs["logits"][:, -1:].argmax(axis=2)}


def check_ids(ids: Sequence[int], vocab: int) -> None:
    """Require at least one id and every id within the vocabulary: graphs wrap negative ids without a word.

    Raises:
        StageError: all bad ids with their positions.
    """
    if len(ids) == 0:
        raise StageError("token ids: found none, wanted at least one", hint="give a prompt that is not empty")
    faults = [f"position {at:05d}: found {i}, wanted 0 … {vocab - 1}" for at, i in enumerate(ids) if not 0 <= i < vocab]
    if faults:
        hint = "render the rows with the tokenizer of this very model"
        raise all_at_once("token ids outside the vocabulary:", faults, hint=hint)


def tail_behind(prefix: Sequence[int], prompt_ids: Sequence[int]) -> Sequence[int]:
    """Return what a prompt says behind its prefix.

    Raises:
        StageError: it does not start with the prefix, or says no more.
    """
    if len(prompt_ids) <= len(prefix) or list(prompt_ids[: len(prefix)]) != list(prefix):
        hint = "set the prefix that these prompts share, or none"
        raise StageError(f"a prompt of {len(prompt_ids)} tokens does not go on from the prefix", hint=hint)
    return prompt_ids[len(prefix) :]


def check_signature(inputs: Sequence[str], outputs: Sequence[str], contract: Mapping[str, Any]) -> list[str]:
    """Return what a graph's inputs and outputs lack or have beyond the contract, one line each, sorted."""
    layers = contract["constants"]["layers"]
    wanted_in = {"input_ids", "position_ids", *contract["masks"], *(past for past, _ in cache_names(layers))}
    wanted_out = {"logits", *(present for _, present in cache_names(layers))}
    wanted_out |= {row["name"] for row in contract.get("outputs", ())}
    faults = []
    for side, found, wanted in (("input", set(inputs), wanted_in), ("output", set(outputs), wanted_out)):
        faults += [f"{side} {name}: missing" for name in wanted - found]
        faults += [f"{side} {name}: extra" for name in found - wanted]
    return sorted(faults)
