"""Fields 6 and 7 of a case file: the traps by taxonomy class with what mended them, and every verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from converters.finding import TAXONOMY
from parity.cases.cells import MISSING, Facts, line, origin
from parity.cases.records import TRIPLE_FILE
from parity.eval_words import axis_line, verdict_word, words_of
from parity.report import GATE_LABELS, GATES, NOT_RUN, gate_rows
from parity.triple.in_report import report_row

FOUND_IN = (
    ("scan.json", "findings"),
    ("manifest.json", "stages.export.facts.findings"),
    ("fix.json", "findings.before"),
)
EDGE_B = ("edge B, ONNX Runtime ↔ Sentis", NOT_RUN, "`parity RUN --edge ab` predicts it, a dump from Unity measures it")


def traps_field(facts: Facts) -> list[str]:
    """Return field 6: per class A to G what was found, where, and what mended it."""
    lines = ["| class | means | found | mended by | from |", "|---|---|---|---|---|"]
    lines += [row for letter, meaning in TAXONOMY.items() for row in _class_rows(facts, letter, meaning)]
    padding = facts.value("prompt_contract.json", "padding", lambda found: f"id {found['value']}, {found['side']}")
    return [*lines, line("G", "what the caller pads with", padding, "–", origin("prompt_contract.json", "padding"))]


def _class_rows(facts: Facts, letter: str, meaning: str) -> list[str]:
    looked = [(file, place) for file, place in FOUND_IN if facts.has(file, place)]
    where = ", ".join(origin(file, place) for file, place in looked or FOUND_IN)
    if not looked:
        return [line(letter, meaning, NOT_RUN, NOT_RUN, where)]
    rows = []
    for file, place in looked:
        for finding in facts.at(file, place):
            if finding["taxonomy"] == letter:
                found = f"`{finding['id']}` ({finding['severity']}) × {finding['places']}"
                rows.append(line(letter, meaning, found, _mended(facts, finding, file), origin(file, place)))
    return rows or [line(letter, meaning, "nothing", "–", where)]


def _mended(facts: Facts, finding: Mapping[str, Any], file: str) -> str:
    """Return the passes that changed the graph for a finding, and whether any place is left."""
    passes = facts.at("fix.json", "passes")
    if passes is MISSING:
        return NOT_RUN
    fired = {row["name"]: row for row in passes if row["changed"]}
    helped = [f"`{name}` ({fired[name]['proof']})" for name in finding["passes"] if name in fired]
    after = facts.at("fix.json", "findings.after")
    left = sum(row["places"] for row in after if row["id"] == finding["id"])
    remaining = f"; {left} left" if left and file == "fix.json" else ""
    return (", ".join(helped) or (finding["mend"] and f"left: {finding['mend']}") or "left") + remaining


def parity_field(facts: Facts) -> list[str]:
    """Return field 7: gates, edges, held-out scores by axis, the runtime gate."""
    return [*gate_lines(facts, *GATES), "", *_axes(facts), *_runtime_gate(facts), *_remarks(facts)]


def gate_lines(facts: Facts, *names: str) -> list[str]:
    """Return a table of gates by their names in `GATES`, edge B at its end."""
    lines = ["| check | verdict | figure | from |", "|---|---|---|---|"]
    for name in names:
        file = f"parity/{GATES[name]}"
        lines += [line(*row, origin(file, "results")) for row in gate_rows(GATE_LABELS[name], facts.known(file))]
    rows = (facts.known(TRIPLE_FILE) or {"rows": []})["rows"]
    lines += [line(*report_row(row), origin(TRIPLE_FILE, "rows")) for row in rows]
    return lines if rows else [*lines, line(*EDGE_B, origin(TRIPLE_FILE))]


def edge_b_words(facts: Facts) -> str:
    """Return what is known of Sentis: predicted or measured, and each verdict; or that it was not run."""
    rows = [row for row in (facts.known(TRIPLE_FILE) or {"rows": []})["rows"] if row["edge"] == "B"]
    return "; ".join(f"{row['sentis']}: {row['verdict']}" for row in rows) or NOT_RUN


def _axes(facts: Facts) -> list[str]:
    file = "eval/axes.json"
    lines = ["| held-out axis | before | after | verdict | from |", "|---|---|---|---|---|"]
    verdicts = facts.at(file, "verdicts")
    if verdicts is MISSING:
        return [*lines, line("all", NOT_RUN, NOT_RUN, NOT_RUN, origin(file))]
    for axis, found in verdicts.items():
        before, after = (axis_line(facts.at(file, f"{side}.{axis}")) for side in ("before", "after"))
        where = f"`{file}: before.{axis}`, `after.{axis}`, `verdicts.{axis}`"
        lines.append(line(words_of(axis), before, after, verdict_word(found), where))
    return lines


def _runtime_gate(facts: Facts) -> list[str]:
    file, place = "eval/axes.json", "gate.held_out"
    held_out = facts.at(file, place)
    if held_out is MISSING:
        return []
    lines = ["", "| with the runtime gate | without | with | verdict | from |", "|---|---|---|---|---|"]
    for axis, found in held_out.items():
        without, with_gate = (axis_line(found[side]) for side in ("without_gate", "with_gate"))
        verdict = verdict_word(found["verdict"])
        lines.append(line(words_of(axis), without, with_gate, verdict, origin(file, f"{place}.{axis}")))
    threshold = facts.value(file, "gate.threshold")
    return [*lines, line("threshold, chosen on calibration rows", "–", threshold, "–", origin(file, "gate.threshold"))]


def _remarks(facts: Facts) -> list[str]:
    file = "eval/axes.json"
    said = [facts.at(file, "wording"), *(facts.at(file, "remarks") if facts.has(file, "remarks") else [])]
    lines = [f"- {text} ({origin(file)})" for text in said if text is not MISSING]
    return ["", *lines] if lines else []
