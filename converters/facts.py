"""Sentis facts: one data file per package version, later ones as deltas on an earlier one.

A file `sentis/<version>.json` holds limits, types, one row per operator, operators that are not handled, fusions of the
optimiser, and the rules of the scanner. A delta names its `base` and only what differs (`operators_added`,
`operators_changed`, `rules_added`, `rules_changed`, `rules_removed`). `read` lists the parts of the package that were
read for a version; a rule of another part is handed on from the base and said to be not verified.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from converters.finding import Finding
from weights_bridge.errors import StageError
from weights_bridge.sentis_version import minor_version

SEVERITY_OF = {  # what the package does -> how bad that is here
    "import_error": "error",
    "runtime_error": "error",
    "silent_deviation": "deviation",
    "import_warning": "deviation",  # a substitution: other numbers, and the message is easily missed
    "backend_error": "warning",
    "precision": "note",
    "performance": "note",
}
FIRST_MENTIONED = ("error", "backend_error", "performance")


@dataclass(frozen=True)
class Rule:
    """One thing that Sentis does with an operator, or with a model as a whole.

    Attributes:
        id: `MAXPOOL.CEIL`; `{OP}` in a file stands for the operator's name in capitals.
        ops: operators it is about; empty for rules of the whole model.
        subject: part of the package it was read in (`importer`, `inference`, `optimiser`, `kernel`), or what a rule of
            the whole model is about.
        severity: of `finding.SEVERITIES`.
        taxonomy: A–G, see `Finding`.
        what: what Sentis does.
        mend: what helps; empty where nothing needs to be done.
        when: predicates that must all hold, name to argument (`converters/scan/predicates.py`).
        run_time: why only a run can show it; empty where it is checked.
        not_applicable: why there is nothing to find; empty where there is.
        verified: whether it was read in this version, not handed on from an earlier one.
    """

    id: str
    ops: tuple[str, ...]
    subject: str
    severity: str
    taxonomy: str
    what: str
    mend: str
    when: dict[str, Any]
    run_time: str = ""
    not_applicable: str = ""
    verified: bool = True

    @property
    def status(self) -> str:
        """`checked`, `run time (why)` or `not applicable (why)`."""
        if self.run_time:
            return f"run time ({self.run_time})"
        return f"not applicable ({self.not_applicable})" if self.not_applicable else "checked"


@dataclass(frozen=True)
class Facts:
    """What is known about one version.

    Attributes:
        version: `2.6`.
        data: the file with its deltas applied; limits and types are read from here.
        operators: name to row: `kinds`, `reads` (attribute to `required`, `below`, `from` opset), `ignores` (attribute
            to harmless values), `modes`, `ranks`, `cpu_inputs`, `cpu_instead_of`.
        not_handled: (domain, operator) to its group: `kind`, `mend`.
        rules: id to rule.
        rules_of: operator to its checked rules.
    """

    version: str
    data: dict[str, Any]
    operators: dict[str, dict[str, Any]]
    not_handled: dict[tuple[str, str], dict[str, Any]]
    rules: dict[str, Rule]
    rules_of: dict[str, tuple[Rule, ...]]

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def kind(self, type_name: str) -> str:
        """Return what a type becomes: `float`, `int`, or empty for none."""
        if type_name in self["float_types"]:
            return "float"
        return "int" if type_name in self["int_types"] else ""

    def finding(
        self, rule_id: str, node: str, evidence: str, *, sure: bool = True, what: str = "", mend: str = ""
    ) -> Finding:
        """Return a finding of a rule.

        Args:
            rule_id: the rule.
            node: the node, tensor or file.
            evidence: what was found there.
            sure: whether it surely happens; an error or deviation that only may happen is a warning.
            what: said instead of the rule's own words.
            mend: said instead of the rule's own words.
        """
        rule = self.rules[rule_id]
        severity = rule.severity if sure or rule.severity == "note" else "warning"
        text = f"{evidence}: {what or rule.what}" if evidence else (what or rule.what)
        return Finding(rule_id, severity, node, text, mend or rule.mend, rule.taxonomy, rule.verified)


def versions() -> list[str]:
    """Return the versions with a facts file, oldest first."""
    files = resources.files("converters").joinpath("sentis").iterdir()
    return oldest_first(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def oldest_first(names: Iterable[str]) -> list[str]:
    """Return versions in their order: 2.10 is newer than 2.9."""
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def unknown_version(version: str) -> StageError:
    """Return the error for a version without facts, the same wherever one is taken."""
    newest = versions()[-1]
    hint = f"known: {', '.join(versions())}; a patch is read as its minor version, {newest}.1 as {newest}"
    return StageError(f"no facts about Sentis {version}: not predicted", hint=hint)


def facts(version: str) -> Facts:
    """Return what is known about one version of Sentis, deltas applied; `2.6.1` is `2.6`.

    Raises:
        StageError: a version without facts: nothing is predicted about it.
    """
    minor = minor_version(version)
    if minor not in versions():
        raise unknown_version(version)
    return _read(minor)


@functools.cache
def _read(version: str) -> Facts:
    text = resources.files("converters").joinpath("sentis", f"{version}.json").read_text(encoding="utf-8")
    known = json.loads(text)
    base = _read(known["base"]) if "base" in known else None
    data = (base.data if base else {}) | known
    rules = _rules(known, base)
    not_handled = {(group["domain"], op): group for group in data["not_handled"] for op in group["ops"]}
    rules_of: dict[str, tuple[Rule, ...]] = {}
    for rule in rules.values():
        for op in rule.ops if rule.when else ():
            rules_of[op] = (*rules_of.get(op, ()), rule)
    return Facts(version, data, _operators(known, base), not_handled, rules, rules_of)


def _operators(known: dict[str, Any], base: Facts | None) -> dict[str, dict[str, Any]]:
    rows = dict(base.operators) if base else {row["op"]: row for row in known["operators"]}
    rows |= {row["op"]: row for row in known.get("operators_added", ())}
    for op, change in known.get("operators_changed", {}).items():
        rows[op] = rows[op] | change
    return rows


def _rules(known: dict[str, Any], base: Facts | None) -> dict[str, Rule]:
    read, verified = set(known["read"]), set(known.get("verified", ()))
    inherited = base.rules.items() if base else ()
    rules = {rule_id: _handed_on(rule, read, verified) for rule_id, rule in inherited}
    for rule_id in known.get("rules_removed", ()):
        del rules[rule_id]
    for rule_id, change in known.get("rules_changed", {}).items():
        texts = {"subject": change["where"], "what": change["what"], "severity": SEVERITY_OF[change["effect"]]}
        rules[rule_id] = replace(rules[rule_id], **texts, verified=True)
    for row in (*known.get("rules", ()), *known.get("rules_added", ())):
        rules |= {rule.id: rule for rule in _rules_of_row(row)}
    for row in known.get("model_rules", ()):
        texts = (row["severity"], row["class"], row["what"], row["mend"])
        rules[row["id"]] = Rule(row["id"], (), row["subject"], *texts, when={})
    return rules


def _handed_on(rule: Rule, read: set[str], verified: set[str]) -> Rule:
    parts = ("importer", "inference", "optimiser", "kernel")
    return replace(rule, verified=rule.subject in read or rule.id in verified or rule.subject not in parts)


def _rules_of_row(row: dict[str, Any]) -> list[Rule]:
    """Return one rule, or one per operator where the id says `{OP}`."""
    effect = row["effect"]
    taxonomy = row.get("class") or ("A" if effect.endswith(FIRST_MENTIONED) else "C")
    severity = row.get("severity", SEVERITY_OF[effect])
    why = (row.get("run_time", ""), row.get("not_applicable", ""))
    groups = [(op,) for op in row["ops"]] if "{OP}" in row["id"] else [tuple(row["ops"])]
    return [
        Rule(
            row["id"].replace("{OP}", ops[0].upper()), ops, row["where"], severity, taxonomy,
            row["what"], row.get("mend", ""), row.get("when", {}), *why,
        )
        for ops in groups
    ]  # fmt: skip
