"""Comparing two tensors, with the verdict as a value.

PSNR here is `20·log10(max|ref|) − 10·log10(mean((ref − x)²))` in float64, in dB; tensors that are equal
in every element are `exact` and have no finite PSNR (`psnr_db` is None).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class GateResult:
    """The verdict on one tensor or one fact.

    Attributes:
        tensor: what was compared, e.g. `row 3 / layer 7 hidden`.
        passed: whether it lies within its budget.
        reason: `exact`, `within budget`, or why it failed (`below budget`, `nan`, `missing`, `extra`, `shape`,
            `dtype`, `nothing compared`, `altered`, …).
        max_abs: largest absolute difference.
        max_rel: largest absolute difference over the largest reference magnitude.
        psnr_db: PSNR in dB, None when exact or not measured.
        budget: the least PSNR in dB that passes, None where the fact has no dB.
        would_pass_at: the budget in dB at which this would have passed, None when it could not.
        where: the place the failure points at: file, layer, tensor, token, byte.
        detail: found and wanted, in words.
    """

    tensor: str
    passed: bool
    reason: str
    max_abs: float | None = None
    max_rel: float | None = None
    psnr_db: float | None = None
    budget: float | None = None
    would_pass_at: float | None = None
    where: str = ""
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return a dictionary that JSON can hold (no NaN, no infinity)."""
        return asdict(self)

    def __str__(self) -> str:
        level = "exact" if self.reason == "exact" else "–" if self.psnr_db is None else f"{self.psnr_db:.1f} dB"
        budget = "" if self.budget is None else f" (budget {self.budget:g} dB)"
        tail = "".join(f" · {part}" for part in (self.where, self.detail) if part)
        return f"{'pass' if self.passed else 'FAIL'} {self.tensor}: {level}{budget}, {self.reason}{tail}"


def psnr_db(reference: Array, candidate: Array) -> float:
    """Return the PSNR of `candidate` against `reference` in dB; `inf` when they are equal."""
    ref, got = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    difference = np.abs(ref - got)
    largest, peak = float(difference.max()), float(np.abs(ref).max())
    if largest == 0.0:
        return math.inf
    if peak == 0.0:
        return -math.inf
    mse = float(np.mean((difference / largest) ** 2))  # of at most 1: squares neither overflow nor vanish
    return 20 * (math.log10(peak) - math.log10(largest)) - 10 * math.log10(mse)


def compare(tensor: str, reference: Array, candidate: Array, budget_db: float, where: str = "") -> GateResult:
    """Compare two tensors of any equal shape in float64.

    Args:
        tensor: the name to report.
        reference: the side that is right by definition.
        candidate: the side under test.
        budget_db: the least PSNR in dB that passes.
        where: the place to name when it fails.
    """

    def failed(reason: str, detail: str) -> GateResult:
        return GateResult(tensor, False, reason, budget=budget_db, where=where, detail=detail)

    if reference.shape != candidate.shape:
        return failed("shape", f"found {candidate.shape}, wanted {reference.shape}")
    if reference.dtype != candidate.dtype:
        return failed("dtype", f"found {candidate.dtype}, wanted {reference.dtype}")
    if reference.size == 0:
        return failed("nothing compared", "the tensors are empty")
    ref, got = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    bad = ~(np.isfinite(ref) & np.isfinite(got))
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        side = "both sides" if not (np.isfinite(ref[first]) or np.isfinite(got[first])) else "one side"
        return failed("nan", f"{int(bad.sum())} values are not finite on {side}, the first at {first}")
    difference = np.abs(ref - got)
    max_abs, peak = float(difference.max()), float(np.abs(ref).max())
    max_rel = max_abs / peak if peak else (0.0 if max_abs == 0 else None)
    level = psnr_db(ref, got)
    if math.isinf(level) and level > 0:
        return GateResult(tensor, True, "exact", 0.0, 0.0, None, budget_db, None, where)
    if math.isinf(level):
        return GateResult(
            tensor, False, "reference is zero", max_abs, max_rel, None, budget_db, None, where, "wanted all zeros"
        )
    passed = level >= budget_db
    reason = "within budget" if passed else "below budget"
    return GateResult(tensor, passed, reason, max_abs, max_rel, level, budget_db, math.floor(level), where)


def compare_sets(
    reference: Mapping[str, Array],
    candidate: Mapping[str, Array],
    budgets_db: Mapping[str, float] | float,
    prefix: str = "",
) -> list[GateResult]:
    """Compare two sets of tensors by name; a missing or an extra name fails by itself.

    Args:
        reference: name to tensor, the side that is right by definition.
        candidate: name to tensor, the side under test.
        budgets_db: one budget in dB, or one per name.
        prefix: put before each name in the report.
    """
    results = []
    names = sorted(set(reference) | set(candidate))
    budgets = dict.fromkeys(names, budgets_db) if isinstance(budgets_db, int | float) else budgets_db
    for name in names:
        label, budget = prefix + name, budgets.get(name)  # an extra name may have none
        if name not in candidate:
            results.append(GateResult(label, False, "missing", budget=budget, where=name))
        elif name not in reference:
            results.append(GateResult(label, False, "extra", budget=budget, where=name))
        else:
            results.append(compare(label, reference[name], candidate[name], budgets[name], where=name))
    return results or [GateResult(prefix or "set", False, "nothing compared")]


@dataclass
class GateReport:
    """All verdicts of one gate.

    Attributes:
        gate: `a0`, `a`, …
        results: one per tensor or fact; a report without any fails.
        facts: figures that carry no verdict (losses, prompt lengths, versions).
    """

    gate: str
    results: list[GateResult] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.results) and all(result.passed for result in self.results)

    @property
    def failures(self) -> list[GateResult]:
        return [result for result in self.results if not result.passed]

    def worst_db(self, containing: str = "") -> float | None:
        """Return the lowest PSNR in dB among results whose name contains a text; None when all are exact."""
        levels = [r.psnr_db for r in self.results if containing in r.tensor and r.psnr_db is not None]
        return min(levels) if levels else None

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": f"mlx-sentis/{self.gate}/1",
            "gate": self.gate,
            "passed": self.passed,
            "worst_db": self.worst_db(),
            "facts": self.facts,
            "results": [result.as_json() for result in self.results],
        }
