"""Levels of a sequence, step by step.

A step's level is `20·log10(max|ref|) − 10·log10(mean((ref − x)²))` with the reference's peak over the whole sequence:
a probability near zero in silence is not asked for more digits than one near one in speech.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.sequences.spec import SequenceSpec
from weights_bridge.compare import Array, GateResult

LISTED = 4096  # steps of a series that a report keeps


def step_levels(reference: Array, found: Array) -> list[float | None]:
    """Return every step's level in dB, None where it is exact, −inf where nothing finite is there to compare.

    Args:
        reference: [steps, …].
        found: as many steps of as many values.
    """
    ref, got = (np.asarray(side, np.float64).reshape(len(reference), -1) for side in (reference, found))
    peak = float(np.abs(ref).max())
    with np.errstate(all="ignore"):
        errors = np.mean((ref - got) ** 2, axis=1)
    return [_level(peak, float(error)) for error in errors]


def _level(peak: float, error: float) -> float | None:
    if error == 0:
        return None
    if not (math.isfinite(error) and math.isfinite(peak)) or peak == 0:
        return -math.inf
    return 20 * math.log10(peak) - 10 * math.log10(error)


def agree(found: Array, reference: Array, budget_db: float) -> bool:
    """Tell whether every step reaches a level."""
    if found.size != reference.size or len(found) != len(reference):
        return False
    return all(level is None or level >= budget_db for level in step_levels(reference, found))


def first_below(found: Array, reference: Array, budget_db: float) -> int:
    """Return the first step below a level; there is one."""
    levels = step_levels(reference, found)
    return next(at for at, level in enumerate(levels) if level is not None and level < budget_db)


def step_name(at: int, spec: SequenceSpec) -> str:
    """Return a step's number, and its time where the signal has a clock."""
    return f"step {at}" + (f" ({at * spec.chunk / spec.rate:.2f} s)" if spec.rate else "")


def verdict(label: str, wanted: Array, found: Array, spec: SequenceSpec, budget_db: float) -> GateResult:
    """Return the verdict on all steps of one output: the worst one's level, and the first below the budget."""

    def failed(reason: str, where: str, detail: str) -> GateResult:
        return GateResult(label, False, reason, budget=budget_db, where=where, detail=detail)

    if wanted.size == 0 or found.size == 0:
        return failed("nothing compared", "", "no step on one side")
    if found.ndim == 0:
        return failed("shape", "step 0", "one number, wanted the steps in front")
    if len(wanted) != len(found):
        detail = f"found {len(found)} steps, wanted {len(wanted)}"
        return failed("length", f"step {min(len(wanted), len(found))}", detail)
    if wanted[0].size != found[0].size:
        return failed("shape", "step 0", f"a step is {found[0].shape}, wanted {wanted[0].shape}")
    ref, got = (np.asarray(side, np.float64).reshape(len(wanted), -1) for side in (wanted, found))
    if (bad := ~(np.isfinite(ref) & np.isfinite(got)).all(axis=1)).any():
        return failed("nan", step_name(int(np.argmax(bad)), spec), f"{int(bad.sum())} steps have values not finite")
    far, peak = float(np.abs(ref - got).max()), float(np.abs(ref).max())
    if far == 0:
        return GateResult(label, True, "exact", 0.0, 0.0, None, budget_db, None, "", f"{len(ref)} steps")
    if peak == 0:
        return failed("reference is zero", "", "wanted all zeros")
    return _measured(label, step_levels(ref, got), far, far / peak, spec, budget_db)


def _measured(
    label: str, levels: list[float | None], far: float, relative: float, spec: SequenceSpec, budget_db: float
) -> GateResult:
    worst = min(level for level in levels if level is not None)
    below = [at for at, level in enumerate(levels) if level is not None and level < budget_db]
    figures = (far, relative, worst, budget_db, math.floor(worst))
    if not below:
        return GateResult(label, True, "within budget", *figures, "", f"{len(levels)} steps")
    where = f"first at {step_name(below[0], spec)}"
    detail = f"{len(below)} of {len(levels)} steps below the budget, the worst {step_name(levels.index(worst), spec)}"
    return GateResult(label, False, "below budget", *figures, where, detail)


def series(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> dict[str, Any]:
    """Return per output its levels by step, and its values where a step is one number, for reports and pictures."""
    found: dict[str, Any] = {}
    for name, array in outputs.items():
        if (
            name in reference
            and np.size(array) == reference[name].size
            and np.shape(array)[:1] == reference[name].shape[:1]
        ):
            levels = step_levels(reference[name], np.asarray(array))[:LISTED]
            shown = [None if level is None or not math.isfinite(level) else round(level, 2) for level in levels]
            found[name] = {"db": shown, "values": values(np.asarray(array))}
    return found


def values(array: Array) -> list[float | None] | None:
    """Return one number per step, None where a step is more than one."""
    if array.size != len(array):
        return None
    return [float(value) if math.isfinite(value) else None for value in array.ravel()[:LISTED]]
