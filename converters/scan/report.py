"""What a scan found, as a table for people and as SARIF for code scanning pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from converters.facts import Facts
from converters.finding import TAXONOMY, Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "deviation": "error", "warning": "warning", "note": "note"}
NODES_SHOWN = 3  # of findings that say the same; --json has them all


def text_of(findings: Sequence[Finding], target: Path, sentis: str) -> str:
    """Return findings for a terminal, those that say the same about several nodes together."""
    lines: list[str] = []
    for alike in _alike(findings):
        first, count = alike[0], len(alike)
        nodes = ", ".join(one_line(finding.node) for finding in alike[:NODES_SHOWN])
        nodes = f"{one_line(first.file)}: {nodes}" if target.is_dir() and first.file else nodes
        more = f" and {count - NODES_SHOWN} more" if count > NODES_SHOWN else ""
        lines.append(f"{first.severity:<9} {first.id:<24} {first.taxonomy}  {nodes}{more}")
        unread = "" if first.verified else f" (read in an earlier version, not verified for {sentis})"
        lines.append(f"{'':<9} {one_line(first.what)}{unread}")
        if mend := mend_of(first):
            lines.append(f"{'':<9} mend: {mend}")
    blocking = sum(finding.blocking for finding in findings)
    classes = sorted({finding.taxonomy for finding in findings})
    count = f"{len(findings)} findings, {blocking} of them errors or silent deviations" if findings else "clean"
    lines.append(f"{target}: {count} (Sentis {sentis})")
    lines += [f"  {letter}: {TAXONOMY[letter]}" for letter in classes]
    return "\n".join(lines)


def mend_of(finding: Finding) -> str:
    """Return how a finding is mended: the pass that does it first."""
    passes = [f"mlx-sentis fix --only {name}" for name in finding.passes]
    return "; ".join(filter(None, [*passes, finding.mend]))


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings in groups that differ in their node only, in the order of their first."""
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.file, finding.id, finding.severity, finding.what), []).append(finding)
    return list(groups.values())


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, as names in a damaged file may hold."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def sarif_document(findings: Sequence[Finding], target: Path, known: Facts) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log: one run, its rules with their mends, one result per finding.

    Source: OASIS Static Analysis Results Interchange Format 2.1.0.
    """
    ids = sorted({finding.id for finding in findings})
    run = {
        "tool": {"driver": {"name": "mlx-sentis scan", "rules": [_sarif_rule(known, rule_id) for rule_id in ids]}},
        "properties": {"sentis": known.version, "facts": known["status"]},
        "results": [_sarif_result(finding, ids, target) for finding in findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(known: Facts, rule_id: str) -> dict[str, Any]:
    rule = known.rules[rule_id]
    return {
        "id": rule_id,
        "shortDescription": {"text": rule.what},
        "help": {"text": rule.mend or "nothing needs to be done"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"taxonomy": rule.taxonomy, "tags": [TAXONOMY[rule.taxonomy]]},
    }


def _sarif_result(finding: Finding, ids: list[str], target: Path) -> dict[str, Any]:
    location = {"artifactLocation": {"uri": quote(finding.file or target.name)}}
    text = ". Mend: ".join(filter(None, [finding.what, mend_of(finding)]))
    node = {"fullyQualifiedName": one_line(finding.node), "kind": "node"}
    return {
        "ruleId": finding.id,
        "ruleIndex": ids.index(finding.id),
        "level": LEVELS[finding.severity],
        "message": {"text": one_line(text)},
        "locations": [{"physicalLocation": location, "logicalLocations": [node]}],
        "properties": {"severity": finding.severity, "taxonomy": finding.taxonomy, "verified": finding.verified},
    }
