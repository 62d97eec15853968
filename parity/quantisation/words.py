"""The preview for terminals and as Markdown: fp32, Float16 and Uint8 side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.eval_words import axis_line, verdict_word, words_of
from parity.quantisation.choice import TITLES, mib
from parity.tables import table
from weights_bridge.compare import GateResult
from weights_bridge.errors import counted


def rows_of(document: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows: sizes, errors, then one row per axis of the task."""
    kinds: Mapping[str, Any] = document["kinds"]
    heading = ("", TITLES["fp32"], *(TITLES[name] for name in kinds))
    rows = [
        ("weights, MiB", mib(document["fp32_bytes"]), *(mib(one["stored_bytes"]) for one in kinds.values())),
        ("and at run time, at least", "–", *(f"+ {mib(document['widest_bytes'])}" for _ in kinds)),
        ("worst output", "–", *(_level(one["worst"], one["why_not"]) for one in kinds.values())),
        ("  largest error", "–", *(_largest(one["errors"]) for one in kinds.values())),
    ]
    if any(one["worst_truncated"] for one in kinds.values()):
        cells = (_level(one["worst_truncated"], "–") if one["worst_truncated"] else "–" for one in kinds.values())
        rows.append(("  if halves are cut off", "–", *cells))
    task = next((one["task"] for one in kinds.values() if one["task"]), None)
    if task is None:
        return heading, rows
    rows.append(("answers that change", "–", *(_changed(one) for one in kinds.values())))
    for axis, full in task["before"].items():
        rows.append((words_of(axis), axis_line(full), *(_axis(one, axis) for one in kinds.values())))
    return heading, rows


def _level(worst: Mapping[str, Any] | None, why_not: str) -> str:
    if worst is None:
        return why_not.partition(":")[0] or "–"
    level = worst["reason"] if worst["psnr_db"] is None else f"{worst['psnr_db']:.1f} dB"
    return f"{level} ({worst['tensor']})"


def _largest(errors: Sequence[Mapping[str, Any]]) -> str:
    largest = max((one["max_abs"] for one in errors if one["max_abs"] is not None), default=None)
    return "–" if largest is None else f"{largest:.2e}"


def _changed(one: Mapping[str, Any]) -> str:
    if one["task"] is None:
        return one["task_why_not"].partition(":")[0]
    return f"{one['changed']} of {len(one['task']['rows'])}"


def _axis(one: Mapping[str, Any], axis: str) -> str:
    if one["task"] is None:
        return "not measured"
    return f"{axis_line(one['task']['after'][axis])}, {verdict_word(one['task']['verdicts'][axis])}"


def text_of(document: Mapping[str, Any]) -> str:
    """Return the table, the rule's steps and the choice in the last line."""
    lines = [table(*rows_of(document)), "", *remarks(document), "", *document["choice"]["steps"]]
    return "\n".join([*lines, "", closing(document)])


def remarks(document: Mapping[str, Any]) -> list[str]:
    """Return what the figures are of."""
    chosen = document["chosen"]
    by = ", ".join(f"{op} {count}" for op, count in chosen["by_layer"].items())
    unread = "" if chosen["verified"] else f", read in an earlier version, not verified for {document['sentis']}"
    lines = [
        f"{counted(chosen['count'], 'constant')} of {by}: {chosen['elements']} of {document['numbers']} numbers"
        f" ({chosen['source']}{unread}); the rest stays as it is",
        "errors are predicted, against unquantised weights in the same emulator; one scale per tensor in Uint8",
    ]
    if "float16" in document["kinds"]:
        lines.append("how Unity rounds to half is not known: nearest even is assumed, cutting off is the other figure")
    if document["rows"]:
        lines.append(f"{counted(document['rows'], 'held-out row')} answered in ONNX Runtime with the stored numbers")
    elif document["task_why_not"]:
        lines.append(f"the task was not asked: {document['task_why_not']}")
    for name, one in document["kinds"].items():
        why = [text for text in (one["why_not"], one["task_why_not"], *one["notes"]) if text]
        lines += [f"{TITLES[name]}: {text}" for text in why]
    return lines


def closing(document: Mapping[str, Any]) -> str:
    """Return what to do in Unity."""
    choice = document["choice"]
    if choice["kind"] == "fp32":
        said = "leave the weights as they are" if choice["acceptable"] else "neither Float16 nor Uint8 will do"
        return f"Choice: {said}."
    call = f"ModelQuantizer.QuantizeWeights(QuantizationType.{TITLES[choice['kind']]}, ref model)"
    unfit = "" if choice["acceptable"] else ", but the limit is missed"
    return f"Choice: {TITLES[choice['kind']]}{unfit}. In Unity: {call}; then measure edge B again there."


def markdown(document: Mapping[str, Any]) -> str:
    """Return the page."""
    heading, rows = rows_of(document)
    lines = [f"# {document['model']}: Float16 and Uint8 before Unity", "", closing(document), ""]
    lines += [_line(heading), "|" + "---|" * len(heading), *map(_line, rows), ""]
    lines += [f"- {text}" for text in remarks(document)]
    lines += ["", "## The order", "", *(f"- {step.strip()}" for step in document["choice"]["steps"])]
    lines += ["", "Shares are followed by their 95 % Wilson interval; verdicts are exact McNemar tests at p < 0.05."]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.strip().replace("|", "\\|") for cell in cells) + " |"


def result_json(result: GateResult | None) -> dict[str, Any] | None:
    """Return an error without the fields of a verdict that nobody gave."""
    if result is None:
        return None
    return {key: getattr(result, key) for key in ("tensor", "reason", "psnr_db", "max_abs", "max_rel", "detail")}
