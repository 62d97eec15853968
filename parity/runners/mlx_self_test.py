"""The self-test of gate A0, the MLX side: one bug after the other in one loaded model, each measured as the gate does.

Torch's answers are computed once and given; MLX is loaded once. A bug counts as caught when the gate misses and its
explanation names the place it was planted at, and when the model without it passes on the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from parity.a0_compare import Sides, backward_results, forward_results, under
from parity.a0_miss import backward_begin, forward_begin, norm_verdict
from parity.budgets import Budgets, load_budgets
from parity.gate_request import FORWARD, GateRequest
from parity.mutations import MUTATIONS, DoesNotApplyError, Mutation
from weights_bridge.compare import Array


@dataclass(frozen=True)
class Trial:
    """What became of one bug.

    Attributes:
        bug: its name.
        caught: whether the gate missed and named the place; None where the model cannot have the bug.
        wanted: the place it was planted at.
        found: the place that the gate named; empty when it passed.
        detail: the gate's words, or why the model cannot have it.
    """

    bug: str
    caught: bool | None
    wanted: str = ""
    found: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Reference:
    """Torch's answers.

    Attributes:
        fp32: logits, hidden states, loss and gradients in float32.
        fp64: the same in float64, and the trace.
        other: gradients in float32 and float64 of the norm convention that the adapter's file does not state; empty
            for adapters without norms.
        norm: the stated convention, None without norms.
    """

    fp32: Mapping[str, Array]
    fp64: Mapping[str, Array]
    other: tuple[Mapping[str, Array], Mapping[str, Array]]
    norm: str | None

    @classmethod
    def of(cls, arrays: Mapping[str, Array], norm: str | None) -> Reference:
        return cls(
            under("fp32/", arrays),
            under("fp64/", arrays),
            (under("other/fp32/", arrays), under("other/fp64/", arrays)),
            norm,
        )


def answer(request: dict[str, Any]) -> None:
    """Write the trials as JSON to `out`.

    Args:
        request: a `GateRequest` with `given` (torch's arrays) and beside it `norm_stated` and `bugs`.
    """
    import numpy as np

    from parity.runners import mlx_gate

    norm, bugs = request.pop("norm_stated"), request.pop("bugs")
    asked = GateRequest.of(request)
    model = mlx_gate.load(asked)
    with np.load(asked.given) as npz:
        torch = Reference.of({name: npz[name] for name in npz.files}, norm)
    budgets = load_budgets(model.folder.config["model_type"])
    trials = [clean(model, asked, torch, budgets)]
    if trials[0].caught:
        trials += [tried(model, asked, torch, MUTATIONS[bug], budgets) for bug in bugs]
    Path(asked.out).write_text(json.dumps([asdict(trial) for trial in trials]), encoding="utf-8")


def clean(model: Any, asked: GateRequest, torch: Reference, budgets: Budgets) -> Trial:
    """Measure the model as it is: the gate must pass, else nothing is shown by a miss."""
    from parity.runners.mlx_gate import measured

    sides = Sides(measured(model, asked), torch.fp32, torch.fp64)
    failures = [r for r in forward_results(sides, len(asked.rows), budgets).results if not r.passed]
    failures += [r for r in backward_results(sides, len(asked.backward_rows), budgets).results if not r.passed]
    detail = str(failures[0]) if failures else "the gate passes"
    return Trial("none", not failures, found=failures[0].where if failures else "", detail=detail)


def tried(model: Any, asked: GateRequest, torch: Reference, mutation: Mutation, budgets: Budgets) -> Trial:
    """Plant one bug, measure its direction, and explain the miss; the model is as before afterwards."""
    try:
        with mutation.planted(model) as wanted:
            look = _forward if mutation.direction == FORWARD else _backward
            found, detail = look(model, asked.with_(parts=[mutation.direction]), torch, budgets)
    except DoesNotApplyError as why:
        return Trial(mutation.name, None, detail=str(why))
    return Trial(mutation.name, found == wanted, wanted, found, detail)


def _forward(model: Any, asked: GateRequest, torch: Reference, budgets: Budgets) -> tuple[str, str]:
    from parity.runners import mlx_gate, mlx_layers

    rows = len(asked.rows)
    if not forward_results(Sides(mlx_gate.measured(model, asked), torch.fp32, torch.fp64), rows, budgets).failed:
        return "", "the gate passed"
    begin, _ = forward_begin(torch.fp64, mlx_layers.forward(model, asked, dict(torch.fp64)), rows, budgets)
    return begin.where, begin.detail


def _backward(model: Any, asked: GateRequest, torch: Reference, budgets: Budgets) -> tuple[str, str]:
    from parity.runners import mlx_gate, mlx_layers

    rows, mlx = len(asked.backward_rows), mlx_gate.measured(model, asked)
    if not backward_results(Sides(mlx, torch.fp32, torch.fp64), rows, budgets).failed:
        return "", "the gate passed"
    if torch.norm is not None:
        norm = norm_verdict(torch.norm, Sides(mlx, *torch.other), rows, budgets)
        if not norm.passed:
            return norm.where, norm.detail
    begin, _ = backward_begin(torch.fp64, mlx_layers.backward(model, asked, dict(torch.fp64)), rows, budgets)
    return begin.where, begin.detail
