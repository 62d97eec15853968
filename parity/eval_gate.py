"""The runtime gate of a run: chosen on the calibration rows, its effect on the held-out rows reported apart.

`gate_of` gets the two splits in two arguments, and only the first reaches `choose_gate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from mlx_sentis.evaluation.gate import (
    Gate,
    choose_gate,
    gate_document,
    judged_rows,
    refusal_of,
    require_enough,
)
from mlx_sentis.evaluation.scoring import Answer, score
from mlx_sentis.evaluation.verdicts import verdict
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.run_folder import RunFolder

GATED_AXES = ("function_selection", "whole_call", "out_of_scope_rejection")


@dataclass(frozen=True)
class Calibration:
    """The rows that the gate is chosen on.

    Attributes:
        rows: calibration rows that have a right answer.
        refusal_id: the first token of a refusal; None when no gate can be made.
        why_not: what is missing and how to mend it; empty when nothing is.
    """

    rows: list[dict[str, Any]]
    refusal_id: int | None = None
    why_not: str = ""


class SaidToRows(Protocol):
    """What a model said to rows, with the gate's score of each answer."""

    @property
    def pairs(self) -> list[tuple[dict[str, Any], Answer]]: ...

    @property
    def margins(self) -> list[float | None]: ...


def read_calibration(run: RunFolder) -> Calibration:
    """Return a run's calibration rows, and whether a gate can be chosen on them."""
    path = run.path("data", "calibration.jsonl")
    rows = [row for row in (read_jsonl(path) if path.is_file() else []) if row["expect"] is not None]
    try:
        require_enough(rows)
        return Calibration(rows, refusal_of(rows))
    except StageError as error:
        return Calibration(rows, why_not=f"{error.message} ({error.hint})")


def gate_of(
    run: RunFolder,
    calibration: Calibration,
    on_calibration: SaidToRows,
    on_held_out: SaidToRows,
    decode: Callable[[list[int]], str],
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Choose the gate and report what it does.

    Args:
        run: for the names of the tools.
        calibration: what was asked.
        on_calibration: what the tuned model said to it: the gate is chosen on this.
        on_held_out: what it said to held-out rows: nothing is chosen on this.
        decode: token ids to text.

    Returns:
        `gate.json`, None when none can be made, and the section `gate` of `axes.json`.
    """
    if calibration.refusal_id is None:
        return None, {"why_not": calibration.why_not}
    rows, read = zip(*on_calibration.pairs, strict=True)
    judged = judged_rows(rows, read, on_calibration.margins)
    gate = choose_gate(judged, calibration.refusal_id)
    dataset = read_json(run.path("data", "dataset.json"))
    known = [tool.get("function", tool)["name"] for tool in dataset["tools"]]
    document = gate_document(gate, judged, refusal=decode([gate.refusal_id]), known_tools=known)
    kept = ("threshold", "youden_j", "remark", "tools", "tools_left_out", "calibration")
    report = {key: document[key] for key in kept}
    return document, report | {"held_out": held_out_report(gate, on_held_out)}


def held_out_report(gate: Gate, said: SaidToRows) -> dict[str, Any]:
    """Return the axes that a gate touches with and without it, and paired verdicts: a report, nothing is chosen."""
    without = score(said.pairs)
    held_back = [
        (row, gate.gated(answer, margin)) for (row, answer), margin in zip(said.pairs, said.margins, strict=True)
    ]
    with_gate = score(held_back)
    return {
        name: {
            "without_gate": without[name].as_json(),
            "with_gate": with_gate[name].as_json(),
            "verdict": verdict(name, without[name], with_gate[name]).as_json(),
        }
        for name in GATED_AXES
    }
