"""Before against after, one verdict per axis.

The same units are asked twice, so the test is paired: exact McNemar over the units that changed. A verdict is
`improved` or `regressed` when p < 0.05, else `unchanged`. Intervals are reported beside it and decide nothing: two
overlapping intervals can hide a certain change, because they ignore the pairing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mlx_sentis.evaluation.intervals import exact_mcnemar
from mlx_sentis.evaluation.scoring import Axis

SIGNIFICANCE = 0.05
Word = Literal["improved", "unchanged", "regressed", "not comparable"]


@dataclass(frozen=True)
class Verdict:
    """What became of one axis.

    Attributes:
        axis: its name.
        word: the verdict; `not comparable` when before and after have no unit in common.
        gained: units wrong before and right after.
        lost: units right before and wrong after.
        pairs: units asked both times.
        p_value: of exact McNemar, None when there are no pairs.
        rule: what decided instead of the test (see `conduct`), empty when the test did.
    """

    axis: str
    word: Word
    gained: int
    lost: int
    pairs: int
    p_value: float | None
    rule: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict(name: str, before: Axis, after: Axis) -> Verdict:
    """Compare one axis before and after on the units they share."""
    common = before.units.keys() & after.units.keys()
    if not common:
        return Verdict(name, "not comparable", 0, 0, 0, None)
    gained = sum(after.units[unit] and not before.units[unit] for unit in common)
    lost = sum(before.units[unit] and not after.units[unit] for unit in common)
    p_value = exact_mcnemar(gained, lost)
    word: Word = "unchanged"
    if p_value < SIGNIFICANCE:
        word = "improved" if gained > lost else "regressed"
    return Verdict(name, word, gained, lost, len(common), p_value)


def verdicts(before: Mapping[str, Axis], after: Mapping[str, Axis]) -> list[Verdict]:
    """Compare every axis, in the order of `before`."""
    return [verdict(name, before[name], after[name]) for name in before]
