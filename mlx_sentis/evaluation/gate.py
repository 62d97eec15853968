"""The runtime gate: which of the tuned model's calls a game should carry out.

Training does not teach a small model to decline: after a narrow fine-tune it answers much that is out of scope with a
call. So the game looks once more, at what it has anyway, and carries a call out only when

1. the answer reads as exactly one well-formed call,
2. its tool is on the gate's list, and
3. score ≥ threshold, where the score is the **first-token margin**: with `row` the float32 logits behind the prompt's
   last token, `a` the index of its greatest entry (the first one, where two are equal: the answer's first token) and
   `r` the first token of a refusal,

       score = row[a] − row[r]

   one float32 subtraction: no sum over the vocabulary, so no order of summation, and known before the call is written.
   It is the log-odds of beginning a call against beginning the refusal, and 0 or more for every greedy answer.

Anything else counts as a refusal. Threshold and list are chosen on the calibration split and on nothing else.

The threshold maximises Youden's J (W. J. Youden, *Index for rating diagnostic tests*, Cancer 3, 1950): the share of
rows that want a call and get one of the right tool, minus the share of rows out of scope that get any. Candidates are 0
(every call passes) and the middle between each two neighbouring scores; where several have the same J, the lowest wins,
because it keeps the most calls. J is compared in whole numbers, so no rounding decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mlx_sentis.evaluation.scoring import Answer, Axis
from weights_bridge.compare import Array
from weights_bridge.errors import StageError

SCHEMA = "mlx-sentis/gate/1"
SCORE = {
    "name": "first_token_margin",
    "formula": "row[a] - row[refusal_id]",
    "row": "float32 logits behind the prompt's last token",
    "a": "the index of the greatest entry of row, the first one where two are equal: the answer's first token",
    "arithmetic": "one float32 subtraction",
}
RULE = (
    "greatest Youden's J over the calibration rows: right tool called and passed, of rows that want a call, minus "
    "calls passed, of rows out of scope; candidates 0 and the middle of neighbouring scores; the lowest of equals"
)
NOTHING_SEPARATED = (
    "nothing was separated: no threshold lets a greater share of right calls pass than of calls out of scope "
    "(Youden's J is 0), so it is no gate to rely on"
)
LEAST_ROWS = 5  # of either kind: below, one row moves J by more than a fifth


@dataclass(frozen=True)
class Judged:
    """One row's answer as the gate sees it.

    Attributes:
        wanted: the tool the row wants, None when it is out of scope.
        answer: what the model said.
        margin: the score; None when nothing was generated.
    """

    wanted: str | None
    answer: Answer
    margin: float | None

    @property
    def is_right(self) -> bool:
        return self.answer.kind == "call" and self.answer.name == self.wanted


@dataclass(frozen=True)
class Gate:
    """What the game needs to decide.

    Attributes:
        refusal_id: the first token of a refusal.
        threshold: the least score that passes, a float32 value.
        tools: the names that may be called.
    """

    refusal_id: int
    threshold: float
    tools: tuple[str, ...]

    def passes(self, answer: Answer, margin: float | None) -> bool:
        """Tell whether a game should carry the answer's call out."""
        is_known = answer.kind == "call" and answer.name in self.tools
        return is_known and margin is not None and margin >= self.threshold

    def gated(self, answer: Answer, margin: float | None) -> Answer:
        """Return the answer as the game acts on it: what does not pass, broken calls and prose too, is a refusal."""
        return answer if self.passes(answer, margin) else Answer("none")


def first_token_margin(row: Array, refusal_id: int) -> float:
    """Return the greatest logit minus the refusal's, in float32.

    Args:
        row: logits [V] behind the prompt's last token.
        refusal_id: the first token of a refusal.
    """
    row = np.asarray(row, np.float32)
    return float(row[int(row.argmax())] - row[refusal_id])


def judged_rows(
    rows: Sequence[Mapping[str, Any]], answers: Sequence[Answer], margins: Sequence[float | None]
) -> list[Judged]:
    """Return the rows that have a right answer, with what the model said."""
    return [
        Judged(row["expect"].get("name"), answer, margin)
        for row, answer, margin in zip(rows, answers, margins, strict=True)
        if row["expect"] is not None
    ]


def refusal_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the first token of a refusal as the prepared rows have it.

    Args:
        rows: calibration rows (`ids`, `prompt_tokens`, `expect`).

    Raises:
        StageError: no row declines, or they begin their refusal differently.
    """
    first = {row["ids"][row["prompt_tokens"]] for row in rows if (row["expect"] or {}).get("kind") == "none"}
    if len(first) == 1:
        return first.pop()
    why = f"refusals begin with the tokens {sorted(first)}" if first else "no calibration row is out of scope"
    raise StageError(why, hint="rows with call null are answered with one word, none")


def require_enough(rows: Sequence[Mapping[str, Any]]) -> None:
    """Require enough calibration rows of both kinds.

    Raises:
        StageError: no rows, or fewer than `LEAST_ROWS` of a kind.
    """
    kinds = [row["expect"]["kind"] for row in rows if row["expect"] is not None]
    calls, refusals = kinds.count("call"), kinds.count("none")
    if not rows:
        hint = "give a calibration.jsonl beside the data, or data.calibration_share above 0, and prepare again"
        raise StageError("there is no calibration split", hint=hint)
    if min(calls, refusals) < LEAST_ROWS:
        raise StageError(
            f"{calls} calibration rows want a call and {refusals} want none, wanted at least {LEAST_ROWS} of each",
            hint="add rows to the calibration split, or raise data.calibration_share, and prepare again",
        )


def choose_gate(rows: Sequence[Judged], refusal_id: int) -> Gate:
    """Choose tools and threshold on calibration rows.

    The tools are those that at least one calibration row wants: no threshold was measured for others.

    Args:
        rows: calibration rows, both kinds among them.
        refusal_id: the first token of a refusal.
    """
    tools = tuple(sorted({row.wanted for row in rows if row.wanted is not None}))
    every = Gate(refusal_id, 0.0, tools)
    scores = sorted({row.margin for row in rows if row.margin is not None and every.passes(row.answer, row.margin)})
    candidates = [0.0, *(_between(low, high) for low, high in pairwise(scores))]
    best = max(candidates, key=lambda threshold: (_youden(rows, Gate(refusal_id, threshold, tools)), -threshold))
    return Gate(refusal_id, best, tools)


def _between(low: float, high: float) -> float:
    """Return the float32 middle of two neighbouring scores, above the low one and at most the high one."""
    middle = float(np.float32((low + high) / 2))
    return middle if middle > low else high


def _youden(rows: Sequence[Judged], gate: Gate) -> int:
    """Return J times the number of rows of both kinds, a whole number."""
    effect = effect_of(rows, gate)
    called, passed = effect["function_selection"], effect["out_of_scope_calls"]
    return called.right * passed.of - passed.right * called.of


def effect_of(rows: Sequence[Judged], gate: Gate | None) -> dict[str, Axis]:
    """Return what remains with a gate (None: without one).

    Returns:
        `function_selection`: rows that want a call and get one of the right tool. `out_of_scope_calls`: rows out of
        scope that get any well-formed call. `out_of_scope_rejection`: those that get none; without a gate a call that
        was only begun counts as one, with a gate it is refused like all that does not pass.
    """
    selection, calls, rejection = Axis(), Axis(), Axis()
    for number, row in enumerate(rows):
        answer = row.answer if gate is None else gate.gated(row.answer, row.margin)
        unit = (str(number),)
        if row.wanted is not None:
            selection.units[unit] = answer.kind == "call" and row.is_right
        else:
            calls.units[unit] = answer.kind == "call"
            rejection.units[unit] = answer.kind in ("none", "prose")
    return {"function_selection": selection, "out_of_scope_calls": calls, "out_of_scope_rejection": rejection}


def gate_document(gate: Gate, rows: Sequence[Judged], *, refusal: str, known_tools: Sequence[str]) -> dict[str, Any]:
    """Return `gate.json`.

    Args:
        gate: the chosen gate.
        rows: the calibration rows it was chosen on.
        refusal: the text of the refusal's first token.
        known_tools: every tool of the data set, to name those that are left out.
    """
    without, with_gate = effect_of(rows, None), effect_of(rows, gate)
    margins = [row.margin for row in rows if row.margin is not None and row.answer.kind == "call"]
    clearance = min((abs(margin - gate.threshold) for margin in margins), default=None)
    youden = _youden(rows, gate) / (without["function_selection"].of * without["out_of_scope_calls"].of)
    return {
        "schema": SCHEMA,
        "score": SCORE | {"refusal_id": gate.refusal_id, "refusal_token": refusal},
        "threshold": gate.threshold,
        "passes": "one well-formed call, of a tool in tools, with score >= threshold; anything else is a refusal",
        "tools": list(gate.tools),
        "tools_left_out": sorted(set(known_tools) - set(gate.tools)),
        "chosen_on": "calibration",
        "rule": RULE,
        "youden_j": round(youden, 6),
        "remark": "" if youden > 0 else NOTHING_SEPARATED,
        "clearance": clearance,  # how far the nearest calibration score lies: a runtime may differ by less
        "calibration": {
            "rows": len(rows),
            "without_gate": {name: axis.as_json() for name, axis in without.items()},
            "with_gate": {name: axis.as_json() for name, axis in with_gate.items()},
        },
    }
