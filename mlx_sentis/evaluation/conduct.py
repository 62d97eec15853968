"""How a model behaves whatever it is asked: does it always call, or never?

A model that always calls may choose every function rightly; one that never calls declines everything that is out of
scope, and deserves no praise for it. Both are told in words beside the verdicts, and the verdict on out-of-scope
rejection follows: a tuned model that declines nothing, where its base declined something, has regressed, however few
the rows; one that never calls has not improved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlx_sentis.evaluation.scoring import Answer
from mlx_sentis.evaluation.verdicts import Verdict

REJECTION = "out_of_scope_rejection"
CALLS = ("call", "broken")  # a call that was begun would have been made
ALWAYS = "always calls"
BEGINS = "always begins calls"
NEVER = "never calls"


@dataclass(frozen=True)
class Conduct:
    """How often a model calls.

    Attributes:
        calls: answers that call or begin to.
        rows: answers in all.
        out_of_scope_calls: the same among rows that want no call.
        out_of_scope: how many rows want no call.
        well_formed: answers that are one well-formed call.
    """

    calls: int
    rows: int
    out_of_scope_calls: int
    out_of_scope: int
    well_formed: int

    @property
    def word(self) -> str:
        """`always calls` (nothing out of scope is declined), `never calls`, or nothing to say.

        It is `always begins calls` where none of them is well-formed.
        """
        if self.rows and not self.calls:
            return NEVER
        if not self.out_of_scope or self.out_of_scope_calls < self.out_of_scope:
            return ""
        return ALWAYS if self.well_formed else BEGINS

    def as_json(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "rows": self.rows,
            "out_of_scope_calls": self.out_of_scope_calls,
            "out_of_scope": self.out_of_scope,
            "well_formed": self.well_formed,
            "word": self.word,
        }


def conduct_of(outcomes: Iterable[tuple[Mapping[str, Any], Answer]]) -> Conduct:
    """Count calls over rows that have a right answer."""
    counted = [(row["expect"]["kind"] == "none", answer.kind) for row, answer in outcomes if row["expect"]]
    kinds = [kind for _, kind in counted]
    outside = [kind in CALLS for is_outside, kind in counted if is_outside]
    calls = sum(kind in CALLS for kind in kinds)
    return Conduct(calls, len(kinds), sum(outside), len(outside), kinds.count("call"))


def amended(found: Sequence[Verdict], before: Conduct, after: Conduct) -> list[Verdict]:
    """Return the verdicts with the one on out-of-scope rejection as conduct demands."""
    return [_amended(verdict, before, after) if verdict.axis == REJECTION else verdict for verdict in found]


def _amended(verdict: Verdict, before: Conduct, after: Conduct) -> Verdict:
    if after.word in (ALWAYS, BEGINS) and before.out_of_scope_calls < before.out_of_scope:
        return replace(verdict, word="regressed", rule=after.word)
    if after.word == NEVER and verdict.word == "improved":
        return replace(verdict, word="not comparable", rule=NEVER)
    return verdict


def remarks(before: Conduct | None, after: Conduct | None) -> list[str]:
    """Return what must be said beside the verdicts, without a score in it.

    Args:
        before: of the base model; None when it was not asked.
        after: of the tuned model; None when it was not asked.
    """
    said = []
    for name, conduct in (("base", before), ("tuned", after)):
        if conduct is not None and conduct.calls and not conduct.well_formed:
            where = "everywhere" if conduct.calls == conduct.rows else "in places"
            said.append(f"the {name} model begins a call {where}, none well-formed")
        elif conduct is not None and conduct.word == ALWAYS:
            said.append(f"the {name} model always calls: it declines nothing that is out of scope")
        if conduct is not None and conduct.word == NEVER:
            trivial = ": that it declines what is out of scope is trivial and no merit" if conduct.out_of_scope else ""
            said.append(f"the {name} model never calls a tool{trivial}")
    return said
