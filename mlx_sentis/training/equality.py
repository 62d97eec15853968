"""Two trainings compared bit by bit: their logs and their last states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from mlx_sentis.training.checkpoints import STATE, STATE_ARRAYS
from mlx_sentis.watch.log import read_log
from weights_bridge.files import read_json

FIGURES = ("train/loss", "train/lr", "train/grad_norm", "train/lora_magnitude")


@dataclass(frozen=True)
class Compared:
    """One kind of value of both runs.

    Attributes:
        what: the kind.
        count: how many there are.
        differing: how many are not equal to the bit.
        worst: the largest absolute difference.
        first: the first that differs.
    """

    what: str
    count: int
    differing: int
    worst: float = 0.0
    first: str = ""

    def row(self) -> tuple[str, str]:
        if not self.differing and self.count:
            return self.what, f"{self.count} equal to the bit"
        found = f"{self.differing} of {self.count} differ, by {self.worst:.3g} at most, first {self.first}"
        return self.what, found if self.count else "nothing to compare"


def compare(whole: Path, cut: Path, total: int) -> list[Compared]:
    """Compare the logs and last states of two runs, bit by bit."""
    logs = [{step["step"]: step for step in read_log(folder / "log.jsonl").steps} for folder in (whole, cut)]
    wanted = [(f"{figure} of update {step}", step, figure) for step in range(1, total + 1) for figure in FIGURES]
    figures = [
        {name: log[step][figure] for name, step, figure in wanted if figure in log.get(step, {})} for log in logs
    ]
    found = [compare_values("figures in the log", figures, [name for name, _, _ in wanted])]
    arrays = [load_file(folder / "checkpoints" / "last" / STATE_ARRAYS) for folder in (whole, cut)]
    for what, prefix in (("trained tensors", "trained."), ("optimiser arrays", "optimizer.")):
        found.append(compare_values(what, [{n: a for n, a in one.items() if n.startswith(prefix)} for one in arrays]))
    states = [read_json(folder / "checkpoints" / "last" / STATE) for folder in (whole, cut)]
    for what, names in (
        ("random key", ("rng",)),
        ("place in the data", ("cursor", "step")),
        ("schedule, best", ("optimizer", "best_score", "best_step", "stale_epochs", "valid_losses")),
    ):
        parts = [{name: state[name] for name in names if name in state} for state in states]
        found.append(compare_values(what, parts, names))
    return found


def compare_values(what: str, sides: Sequence[dict[str, Any]], wanted: Sequence[str] | None = None) -> Compared:
    """Compare what both have; what is wanted (all that one has, without a list) and missing in one differs.

    None is a value: before the first epoch has ended no score is the best.
    """
    before, after = sides
    names = sorted(before.keys() | after.keys()) if wanted is None else wanted
    differing, worst, first = 0, 0.0, ""
    for name in names:
        if name in before and name in after:
            one, other = before[name], after[name]
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape:
                if one.tobytes() == other.tobytes():
                    continue
                worst = max(worst, float(np.abs(one.astype(np.float64) - other).max()))
            elif not isinstance(one, np.ndarray) and one == other:
                continue
            elif isinstance(one, float) and isinstance(other, float):
                worst = max(worst, abs(one - other))
        differing, first = differing + 1, first or name
    return Compared(what, len(names), differing, worst, first)
