"""The pages: one case file per model, and the two lists over all models that are kept with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parity.cases.cells import HEADING, MISSING, Facts, line, origin, short_hash
from parity.cases.fields import (
    data_field,
    export_command,
    export_field,
    export_rows,
    model_field,
    recipe_field,
    training_field,
)
from parity.cases.verdicts import edge_b_words, gate_lines, parity_field, traps_field
from parity.eval_words import words_of
from parity.report import GATE_LABELS, GATES, NOT_RUN

Records = Mapping[str, Any]
FIELDS = (
    ("Model and constants", model_field),
    ("Where the recipe stands", recipe_field),
    ("Data", data_field),
    ("Fine-tune", training_field),
    ("Export", export_field),
    ("Traps, by class", traps_field),
    ("Parity and scores", parity_field),
)


def case_page(records: Records) -> str:
    """Return a model's case file, fields 1 to 7; what no record holds is `not run`."""
    facts = Facts(records)
    lines = [
        f"# {facts.model}",
        "",
        f"Case file of {facts.date or 'a run without a finished stage'}, made by `mlx-sentis case` from the records of "
        "one run. Every value names the record it was read from;",
        f"`mlx-sentis case RUN --check FILE` names a line that says something else. "
        f"Records: {short_hash(records['sha256'])}.",
        "",
        f"**Status: {status(facts)}.**",
    ]
    for number, (title, field) in enumerate(FIELDS, 1):
        lines += ["", f"## {number}. {title}", "", *field(facts)]
    lines += ["", "## Records", "", "| file | SHA-256 |", "|---|---|"]
    lines += [line(f"`{file}`", short_hash(digest)) for file, digest in facts.hashes.items()]
    return "\n".join([*lines, ""])


def status(facts: Facts) -> str:
    """Return how far the model is: tuned or as it is, and which gates passed, failed or were not run."""
    words = {True: "passed", False: "FAILED"}
    gates = {label: facts.at(f"parity/{GATES[name]}") for name, label in GATE_LABELS.items()}
    told = [f"{label}: {NOT_RUN if found is MISSING else words[found['passed']]}" for label, found in gates.items()]
    tuned = facts.has("manifest.json", "stages.train")
    return "; ".join(
        ["fine-tuned" if tuned else "as it is, not fine-tuned here", *told, f"edge B: {edge_b_words(facts)}"]
    )


def verified_exports(all_records: Sequence[Records]) -> str:
    """Return the conversion's part of all case files: command, graph, edges."""
    lines = [
        "# Verified exports",
        "",
        "The conversion's part of the case files beside this page, made by `mlx-sentis case` from the same records.",
        "Verified is what a gate says here and no more: edge A in ONNX Runtime, edge B in Sentis.",
    ]
    for facts in map(Facts, all_records):
        lines += ["", f"## {facts.model}, {facts.date}: {_verified(facts)}", ""]
        lines += ["```sh", export_command(facts), "```", "", *HEADING, *export_rows(facts), ""]
        lines += gate_lines(facts, "edge_a_base", "edge_a_tuned")
    return "\n".join([*lines, ""])


def _verified(facts: Facts) -> str:
    found = [facts.at(f"parity/{GATES[name]}") for name in ("edge_a_base", "edge_a_tuned")]
    measured = [gate for gate in found if gate is not MISSING]
    if not measured:
        return f"edge A {NOT_RUN}"
    return "edge A passed" if all(gate["passed"] for gate in measured) else "edge A FAILED"


def eval_log(all_records: Sequence[Records]) -> str:
    """Return the held-out verdicts of all case files, axis by axis, without a score."""
    lines = [
        "# Held-out verdicts",
        "",
        "Made by `mlx-sentis case` from the records of the case files beside this page. Verdicts only: after against",
        "before the fine-tune on held-out rows, by axis, paired exact McNemar at p < 0.05. Scores are in field 7.",
        "",
        "| model | date | axis | verdict | from |",
        "|---|---|---|---|---|",
    ]
    file = "eval/axes.json"
    for facts in map(Facts, all_records):
        verdicts = facts.at(file, "verdicts")
        if verdicts is MISSING:
            lines.append(line(facts.model, facts.date, "all", NOT_RUN, origin(file)))
            continue
        for axis, found in verdicts.items():
            where = origin(file, f"verdicts.{axis}.word")
            lines.append(line(facts.model, facts.date, words_of(axis), found["word"], where))
        gated = facts.at(file, "gate.held_out")
        for axis, found in ({} if gated is MISSING else gated).items():
            where, words = origin(file, f"gate.held_out.{axis}.verdict.word"), f"{words_of(axis)}, runtime gate"
            lines.append(line(facts.model, facts.date, words, found["verdict"]["word"], where))
    return "\n".join([*lines, ""])
