"""Sequence acceptance of a decoder: a talk of several turns through the KV loop, against the original all at once.

The loop keeps its cache over all turns: a prompt, greedy tokens one by one, the next prompt on top. The original runs
the whole sequence in one pass without a cache, so nothing of the loop's bookkeeping (positions, masks, carried keys and
values) is on both sides.

Legend: `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parity.runners.decoder_io import cache_names
from weights_bridge.compare import Array, GateResult, compare

if TYPE_CHECKING:
    from parity.runners.onnx_decoder import OnnxDecoder
    from parity.runners.torch_causal_lm import TorchCausalLM

TURNS = 3
PREFIX = "sequence / "


@dataclass(frozen=True)
class Fed:
    """What one step of the loop was fed, and what it said.

    Attributes:
        turn: from 1.
        name: `prompt`, or `token 1` … within the turn.
        ids: fed in this step.
        past: tokens in the cache before it.
        logits: [ids, V].
    """

    turn: int
    name: str
    ids: list[int]
    past: int
    logits: Array

    @property
    def where(self) -> str:
        return f"turn {self.turn}, {self.name} (position {self.past})"


def measure_talk(
    decoder: OnnxDecoder,
    original: TorchCausalLM,
    prompts: Mapping[str, Sequence[int]],
    new_tokens: int,
    budget_db: float,
) -> tuple[list[GateResult], dict[str, Any]]:
    """Lead a talk through the KV loop and hold every step against the original's single pass.

    Args:
        decoder: the graph with its loop.
        original: the truth.
        prompts: one per turn, in order.
        new_tokens: greedy tokens of each turn; end tokens do not end it.
        budget_db: what the logits of every step must reach.

    Returns:
        One result for the logits of each turn (the worst step's, the first below the budget named), one for the
        tokens, one for the cache behind the last step; and facts: turns, and the level of every step.
    """
    turns, limit = {}, original.positions - 1
    for name, ids in prompts.items():
        cost = len(ids) + new_tokens
        if len(turns) < TURNS and cost <= limit:
            turns[name], limit = list(ids), limit - cost
    if not turns:
        return [], {"turns": [], "not_run": "no prompt leaves room for an answer"}
    steps, cache = lead(decoder, list(turns.values()), new_tokens)
    ids = [token for step in steps for token in step.ids]
    whole = original.forward(ids)
    wanted = whole.graph_outputs()
    levels = [_compared(step, whole.logits[0], budget_db) for step in steps]
    results = [_turn_result(number, steps, levels, budget_db) for number in range(1, len(turns) + 1)]
    results += [_tokens_result(steps, whole.logits[0]), _cache_result(wanted, cache, decoder.contract, budget_db)]
    facts = {
        "turns": [{"prompt": name, "prompt_tokens": len(ids), "new_tokens": new_tokens} for name, ids in turns.items()],
        "tokens": len(ids),
        "steps": len(steps),
        "step_db": [None if one.psnr_db is None else round(one.psnr_db, 2) for one in levels],
    }
    return results, facts


def lead(decoder: OnnxDecoder, turns: Sequence[Sequence[int]], new_tokens: int) -> tuple[list[Fed], Mapping[str, Any]]:
    """Run the talk: every step as it was fed, and the cache behind the last.

    The last token of a turn is fed together with the next prompt, as a game would.
    """
    steps: list[Fed] = []
    cache, at = decoder.empty(), decoder.output_names.index("logits")
    pending: list[int] = []
    for turn, prompt in enumerate(turns, 1):
        feed, name = [*pending, *prompt], "prompt"
        for token in range(new_tokens):
            past = cache.tokens
            outputs, cache = decoder.step(feed, cache)
            logits = outputs[at].numpy()[0].copy()
            steps.append(Fed(turn, name, list(feed), past, logits))
            feed, name = [int(logits[-1].argmax())], f"token {token + 1}"
        pending = feed
    return steps, cache.values


def _compared(step: Fed, whole: Array, budget_db: float) -> GateResult:
    wanted = whole[step.past : step.past + len(step.ids)]
    return compare(f"{PREFIX}{step.where}", wanted, step.logits, budget_db, where=step.where)


def _turn_result(turn: int, steps: Sequence[Fed], levels: Sequence[GateResult], budget_db: float) -> GateResult:
    """Return the first failed step of a turn as its result, or its worst one."""
    own = [one for step, one in zip(steps, levels, strict=True) if step.turn == turn]
    label = f"{PREFIX}turn {turn} / logits"
    failed = [one for one in own if not one.passed]
    if failed:
        detail = f"{len(failed)} of {len(own)} steps failed" + (f"; {failed[0].detail}" if failed[0].detail else "")
        return replace(failed[0], tensor=label, where=f"first at {failed[0].where}", detail=detail)
    measured = [one for one in own if one.psnr_db is not None]
    if not measured:
        return GateResult(label, True, "exact", 0.0, 0.0, None, budget_db, detail=f"{len(own)} steps")
    worst = min(measured, key=lambda one: one.psnr_db or 0)
    return replace(worst, tensor=label, where=f"worst at {worst.where}", detail=f"{len(own)} steps")


def _tokens_result(steps: Sequence[Fed], whole: Array) -> GateResult:
    """Compare the chosen tokens with the original's own choice behind the same tokens."""
    label = f"{PREFIX}tokens"
    for step in steps:
        right, chosen = (int(rows[-1].argmax()) for rows in (whole[: step.past + len(step.ids)], step.logits))
        if right != chosen:
            row = whole[step.past + len(step.ids) - 1]
            ahead = float(row[right] - row[chosen])
            detail = f"the original chose {right} (ahead of {chosen} by {ahead:.4g}), the graph {chosen}"
            return GateResult(label, False, "token mismatch", where=f"first at {step.where}", detail=detail)
    return GateResult(label, True, "exact", detail=f"{len(steps)} tokens equal")


def _cache_result(
    wanted: Mapping[str, Array], cache: Mapping[str, Any], contract: Mapping[str, Any], budget_db: float
) -> GateResult:
    """Compare the cache behind the last step with the original's of one pass; the worst layer is named."""
    results = []
    for past, present in cache_names(contract["constants"]["layers"]):
        found = np.asarray(cache[past].numpy())
        results.append(compare(f"{PREFIX}cache", wanted[present], found, budget_db, where=present))
    failed = [one for one in results if not one.passed]
    if failed:
        return replace(failed[0], where=f"first at {failed[0].where}")
    measured = [one for one in results if one.psnr_db is not None]
    worst = min(measured, key=lambda one: one.psnr_db or 0, default=results[0])
    return replace(worst, where=f"worst at {worst.where}", detail=f"{len(results)} tensors")
