"""The rule in which weights are made smaller, decided by what was measured: fine-tune first, then Float16, then Uint8.

Uint8 only where memory is short, because it is the coarser one; neither where it makes an axis of the task worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parity.eval_words import words_of
from parity.quantisation.preview import FULL, Kind

TITLES = {FULL: "fp32", "float16": "Float16", "uint8": "Uint8"}
MIB = 2**20
LEAST_DB = 20.0  # an error of a tenth of the peak: less is no cost but a fault, unless the task itself was asked


@dataclass(frozen=True)
class Choice:
    """What to do in Unity.

    Attributes:
        kind: `float16`, `uint8`, or `fp32` for leaving weights as they are.
        acceptable: False where a limit is missed, or where the kind that should be taken makes the task worse.
        steps: the rule's steps in order, each with what decided it.
    """

    kind: str
    acceptable: bool
    steps: tuple[str, ...]


def mib(count: float) -> str:
    """Return a number of bytes in MiB; below one, two digits that say something."""
    size = count / MIB
    return f"{size:.1f}" if size >= 1 else f"{size:.2g}"


def choose(kinds: Mapping[str, Kind], full_bytes: int, limit_bytes: int | None, fine_tuned: bool) -> Choice:
    """Apply the rule.

    Args:
        kinds: what was measured, `float16` and `uint8` or one of them.
        full_bytes: what fp32 weights take.
        limit_bytes: what the weights may take; None for no limit.
        fine_tuned: whether these are tuned weights.
    """
    tuned = "done, these are tuned weights" if fine_tuned else "these are no tuned weights: tune before you quantise"
    steps = [f"1. fine-tune first: {tuned}"]
    kind, acceptable = FULL, True
    for number, name in enumerate(("float16", "uint8"), start=2):
        if name not in kinds:
            continue
        one = kinds[name]
        title = TITLES[name]
        if name == "uint8" and _enough(kind, kinds, full_bytes, limit_bytes):
            saved = _bytes(kind, kinds, full_bytes) - one.stored_bytes
            steps.append(
                f"{number}. {title} only if memory-bound: not needed; it would save {mib(saved)} MiB, {_cost(one)}"
            )
            continue
        if why := _refused(one):
            steps.append(f"{number}. {title}: no, {why}")
            acceptable = acceptable and name != "float16"
            continue
        kind, acceptable = name, True
        steps.append(f"{number}. {title}: yes, {_cost(one)}")
    if limit_bytes is not None and _bytes(kind, kinds, full_bytes) > limit_bytes:
        acceptable = False
        takes = _bytes(kind, kinds, full_bytes)
        steps.append(f"   {TITLES[kind]} weights take {mib(takes)} MiB, the limit is {mib(limit_bytes)} MiB")
    return Choice(kind, acceptable, tuple(steps))


def _bytes(kind: str, kinds: Mapping[str, Kind], full_bytes: int) -> int:
    return full_bytes if kind == FULL else kinds[kind].stored_bytes


def _enough(kind: str, kinds: Mapping[str, Kind], full_bytes: int, limit_bytes: int | None) -> bool:
    return limit_bytes is None or _bytes(kind, kinds, full_bytes) <= limit_bytes


def _refused(one: Kind) -> str:
    """Return why a kind must not be taken; empty where nothing speaks against it."""
    if one.why_not:
        return one.why_not
    bad = [result for result in one.errors if not result.passed]
    if bad:
        return f"{bad[0].tensor}: {bad[0].reason} {bad[0].detail}".strip()
    worst = one.worst
    if one.task is None and worst is not None and worst.psnr_db is not None and worst.psnr_db < LEAST_DB:
        return f"{worst.tensor}: {worst.psnr_db:.1f} dB, below {LEAST_DB:g} dB, and the task was not asked"
    if one.regressed:
        return f"the task gets worse: {', '.join(map(words_of, one.regressed))}"
    return ""


def _cost(one: Kind) -> str:
    """Return what a kind costs, in words."""
    worst = one.worst
    if worst is None:
        numbers = "numbers not predicted"
    else:
        numbers = "exact" if worst.psnr_db is None else f"worst output {worst.psnr_db:.1f} dB"
    if one.task is None:
        return f"{numbers}; the task was not asked"
    answers = len(one.task["rows"])
    told = f"{one.changed} of {answers} answers change"
    worse = ", ".join(map(words_of, one.regressed))
    return f"{numbers}, {told}, " + (f"worse: {worse}" if worse else "no axis gets worse")
