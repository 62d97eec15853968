"""The proof behind an injected cache: the same tokens through the old graph at once and the new one in every way.

Rungs: at once, token by token, in uneven pieces, each at both of ONNX Runtime's optimisation levels. The caches are
covered by the logits of every later step, which are computed from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from converters.divergence import first_divergence
from converters.ort_session import open_session
from converters.prove import outputs_of
from weights_bridge.compare import Array, compare
from weights_bridge.errors import BudgetMissedError, StageError

BUDGET_DB = 100.0
LEVELS: tuple[Literal["off", "all"], ...] = ("off", "all")


def pieces_of(tokens: int) -> dict[str, list[int]]:
    """Return the ways in which a sequence is fed: name to lengths that add up to it."""
    uneven, left, step = [], tokens, 1
    while left:
        uneven.append(min(step, left))
        left -= uneven[-1]
        step = step % 5 + 2
    return {"at once": [tokens], "token by token": [1] * tokens, "in pieces": uneven}


def climb(
    before: Path, after: Path, feed: Mapping[str, Array], names: Mapping[str, str], contract: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Compare the two graphs on every rung.

    Args:
        before: the graph without a cache.
        after: the graph with one.
        feed: inputs of the first; ids [1, T].
        names: `ids` and `logits` of the first.
        contract: of the second.

    Returns:
        One row per rung: `{"rung", "passed", "psnr_db", "reason"}`.

    Raises:
        BudgetMissedError: a rung fails, with the first node that differs.
        StageError: ONNX Runtime cannot run one of them.
    """
    wanted = outputs_of(before, dict(feed))[names["logits"]]
    ids = feed[names["ids"]]
    rows = []
    for level in LEVELS:
        session = open_session(after, level)
        for name, lengths in pieces_of(ids.shape[1]).items():
            rung = f"{name}, optimisation {level}"
            result = compare(rung, wanted, run_in_pieces(session, ids, lengths, contract), BUDGET_DB)
            rows.append({"rung": rung, "passed": result.passed, "psnr_db": result.psnr_db, "reason": result.reason})
            if not result.passed:
                place = _where(before, after, feed, names, contract)
                raise BudgetMissedError(f"the graph with a cache computes something else: {result}{place}")
    return rows


def _where(before: Path, after: Path, feed: Mapping[str, Array], names: Mapping[str, str], contract: Any) -> str:
    """Return the first node that differs when all tokens are fed at once; empty where none does."""
    ids = feed[names["ids"]]
    fed = step_inputs(ids, 0, contract) | empty_caches(contract)
    found = first_divergence(before, after, dict(feed), BUDGET_DB, inputs_after=fed)
    return f"; {found}" if found else ""


def run_in_pieces(session: Any, ids: Array, lengths: Sequence[int], contract: Mapping[str, Any]) -> Array:
    """Feed ids [1, T] in pieces, caches handed on, and return logits [1, T, V].

    Raises:
        StageError: ONNX Runtime cannot run it.
    """
    outputs = [value.name for value in session.get_outputs()]
    caches, found, past = empty_caches(contract), [], 0
    for query in lengths:
        inputs = step_inputs(ids[:, past : past + query], past, contract) | caches
        try:
            made = dict(zip(outputs, session.run(outputs, inputs), strict=True))
        except Exception as error:  # ORT's exception classes share no public base
            what = str(error).splitlines()[0]
            raise StageError(f"the graph with a cache does not run with {past} tokens in it: {what}") from None
        found.append(made["logits"])
        caches = {name: made[name.replace("past_key_values.", "present.")] for name in caches}
        past += query
    return np.concatenate(found, axis=1)


def empty_caches(contract: Mapping[str, Any]) -> dict[str, Array]:
    """Return caches of no tokens [1, K, 0, D]."""
    rows = [row for row in contract["inputs"] if row["name"].startswith("past_key_values.")]
    return {row["name"]: np.zeros((1, row["shape"][1], 0, row["shape"][3]), np.float32) for row in rows}


def step_inputs(ids: Array, past: int, contract: Mapping[str, Any]) -> dict[str, Array]:
    """Return ids, positions and masks of one step."""
    query = ids.shape[1]
    at, before = np.arange(past, past + query)[:, None], np.arange(past + query)[None]
    feed: dict[str, Array] = {"input_ids": ids, "position_ids": at.T.astype(np.int64)}
    for name, kind in contract["masks"].items():
        window = contract["constants"]["sliding_window"] if kind == "sliding_attention" else None
        visible = before <= at
        if window is not None:
            visible &= before > at - window
        feed[name] = np.where(visible, np.float32(0), np.float32(contract["masked"]))[None, None]
    return {name: array for name, array in feed.items() if name in {row["name"] for row in contract["inputs"]}}
