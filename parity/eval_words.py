"""Evaluation in words: the lines of the terminal and of `eval_log.md`, which has verdicts and no scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlx_sentis.evaluation.verdicts import Verdict
from weights_bridge.errors import counted

GAP_AXES = ("function_selection", "arguments_exact_all")


def eval_log(document: Mapping[str, Any]) -> str:
    """Return the held-out verdicts as Markdown: words per axis, remarks, and what the gate does, without a score."""
    lines = [
        "# Held-out verdicts",
        "",
        f"{counted(document['rows_scored'], 'row')} answered through {document['runner']}; "
        "paired exact McNemar, p < 0.05.",
        _sentence(document["wording"]),
    ]
    lines += _word_table({axis: found["word"] for axis, found in document["verdicts"].items()})
    lines += [line for remark in document["remarks"] for line in ("", f"**{_sentence(remark)}**")]
    gate = document["gate"]
    lines += ["", "## Runtime gate", ""]
    if "why_not" in gate:
        return "\n".join([*lines, f"None was made: {gate['why_not']}."]) + "\n"
    lines += [line for line in (f"**{_sentence(gate['remark'])}**", "") if gate.get("remark")]
    lines += ["Chosen on the calibration rows. On held-out rows, with the gate against without it:"]
    lines += _word_table({axis: found["verdict"]["word"] for axis, found in gate["held_out"].items()})
    return "\n".join(lines) + "\n"


def wording_of(dataset: Mapping[str, Any]) -> str:
    """Return what `dataset.json` found out about how far held-out rows are worded from the rows of other splits."""
    near = dataset.get("near_duplicates")
    if near is None:
        return "how near the held-out rows are to trained ones was not looked at"
    pairs, listed = near["leaks"]["count"], near["leaks"]["listed"]
    held_out = sum("holdout" in (pair["earlier"]["split"], pair["later"]["split"]) for pair in listed)
    if held_out or pairs > len(listed):
        most = "at least " if pairs > len(listed) else ""
        return (
            f"not all are new phrasings: {most}{counted(held_out, 'pair')} of a held-out row and a row of another "
            f"split say almost the same (data.near_duplicate = {near['threshold']:g}; data/report.md names them)"
        )
    if near["threshold"] >= 1:
        return (
            "no held-out text stands in another split; almost equal ones were not looked for (data.near_duplicate = 1)"
        )
    if not near["complete"]:
        return "new phrasings as far as rows were compared; there were too many alike to compare all"
    looked = f"data.near_duplicate = {near['threshold']:g}"
    return f"new phrasings: none says almost the same as a row of another split ({looked})"


def _word_table(words: Mapping[str, str]) -> list[str]:
    return ["", "| axis | verdict |", "|---|---|", *(f"| {words_of(axis)} | {word} |" for axis, word in words.items())]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def words_of(axis: str) -> str:
    """Return an axis's name in words."""
    return axis.replace("_", " ")


def regressed(document: Mapping[str, Any]) -> list[str]:
    """Return the axes that the fine-tune made worse."""
    return [axis for axis, found in document["verdicts"].items() if found["word"] == "regressed"]


def axis_line(axis: Mapping[str, Any]) -> str:
    """Return `52/60 · 87 % (76–93)`, or a dash when nothing was counted."""
    if not axis["of"]:
        return "–"
    shares = [round(100 * axis[key]) for key in ("share", "low", "high")]
    return f"{axis['right']}/{axis['of']} · {shares[0]} % ({shares[1]}–{shares[2]})"


def verdict_word(found: Mapping[str, Any] | Verdict) -> str:
    """Return the verdict of one axis with its p-value, or with the rule that decided it."""
    entry = found.as_json() if isinstance(found, Verdict) else found
    if entry.get("rule"):
        return f"{entry['word']} ({entry['rule']})"
    return entry["word"] if entry["p_value"] is None else f"{entry['word']} (p = {entry['p_value']:.2g})"


def closing_lines(document: Mapping[str, Any]) -> list[str]:
    """Return what the terminal says below the table of axes: remarks, the gap, the gate."""
    said = [*([document["wording"]] if "wording" in document else []), *document["remarks"]]
    lines = [_sentence(text) for text in said]
    if "calibration" in document:
        lines += [gap_line(axis, document) for axis in GAP_AXES if document["calibration"][axis]["of"]]
    return lines + (gate_lines(document["gate"]) if "gate" in document else [])


def gap_line(axis: str, document: Mapping[str, Any]) -> str:
    """Return one axis of the tuned model on calibration rows and on held-out rows, whose wording is farther off."""
    seen, new = document["calibration"][axis], document["after"][axis]
    return f"{words_of(axis)}, tuned: calibration rows {axis_line(seen)}, held-out rows {axis_line(new)}"


def gate_lines(gate: Mapping[str, Any]) -> list[str]:
    """Return the gate in words: its threshold, what it costs and brings on both splits; or why there is none."""
    if "why_not" in gate:
        return [f"No gate.json: {gate['why_not']}."]
    left_out = f"; left out, as no calibration row wants them: {', '.join(gate['tools_left_out'])}"
    tools = f"{counted(len(gate['tools']), 'tool')}{left_out if gate['tools_left_out'] else ''}"
    lines = [f"gate.json: a call passes from a first-token margin of {gate['threshold']:.4g}; {tools}"]
    if gate.get("remark"):
        lines = [f"gate.json: {gate['remark']}; {tools}"]
    calibration = gate["calibration"]
    for axis in ("function_selection", "out_of_scope_rejection"):
        sides = (axis_line(calibration[side][axis]) for side in ("without_gate", "with_gate"))
        lines.append(f"  calibration (chosen here): {words_of(axis)} {' → '.join(sides)}")
    for axis, found in gate["held_out"].items():
        sides = (axis_line(found[side]) for side in ("without_gate", "with_gate"))
        lines.append(
            f"  held out (only reported): {words_of(axis)} {' → '.join(sides)}, {verdict_word(found['verdict'])}"
        )
    return lines
