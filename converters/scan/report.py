"""What a scan found, as a table for people and as SARIF for code scanning pages."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from converters.facts import Facts
from converters.finding import TAXONOMY, Finding
from weights_bridge.errors import one_line

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "deviation": "error", "warning": "warning", "note": "note"}
WHOLE_FILE = {"startLine": 1}  # a graph has no lines; code scanning pages take no result without one
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
    many = f"{len(findings)} finding" + "s" * (len(findings) != 1)
    count = f"{many}, {blocking} of them errors or silent deviations" if findings else "clean"
    lines.append(f"{target}: {count} (Sentis {sentis}){_files_told(findings, target)}")
    lines += [f"  {letter}: {TAXONOMY[letter]}" for letter in classes]
    return "\n".join(lines)


def _files_told(findings: Sequence[Finding], target: Path) -> str:
    """Return how many of a folder's files have no error and no silent deviation; empty for a single file."""
    from converters.scan import onnx_files

    files = {str(file.relative_to(target)) for file in onnx_files(target)} if target.is_dir() else set()
    if len(files) < 2 or any(not finding.file for finding in findings):  # a model directory's findings name no file
        return ""
    sound = sorted(files - {finding.file for finding in findings if finding.blocking})
    return f"; {len(sound)} of {len(files)} files without errors and silent deviations"


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


def sarif_document(findings: Sequence[Finding], target: Path, known: Facts) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log: one run, its rules with their mends, one result per finding.

    Source: OASIS Static Analysis Results Interchange Format 2.1.0.
    """
    ids = sorted({finding.id for finding in findings})
    prints = _fingerprints(findings)
    run = {
        "tool": {
            "driver": {
                "name": "mlx-sentis scan",
                "version": importlib.metadata.version("mlx-sentis"),
                "rules": [_sarif_rule(known, rule_id) for rule_id in ids],
            }
        },
        "properties": {"sentis": known.version, "facts": known["status"]},
        "results": [_sarif_result(finding, ids, target, mark) for finding, mark in zip(findings, prints, strict=True)],
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


def _fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Return what tells results apart from run to run: pages take those of one rule and line for the same otherwise."""
    seen: Counter[str] = Counter()
    marks = []
    for finding in findings:
        place = "\n".join((finding.file, finding.id, finding.node))
        marks.append(hashlib.sha256(f"{place}\n{seen[place]}".encode(errors="replace")).hexdigest())
        seen[place] += 1
    return marks


def _sarif_result(finding: Finding, ids: list[str], target: Path, fingerprint: str) -> dict[str, Any]:
    location = {"artifactLocation": {"uri": quote(finding.file or target.name)}, "region": WHOLE_FILE}
    text = ". Mend: ".join(filter(None, [finding.what, mend_of(finding)]))
    node = {"fullyQualifiedName": one_line(finding.node), "kind": "node"}
    return {
        "ruleId": finding.id,
        "ruleIndex": ids.index(finding.id),
        "level": LEVELS[finding.severity],
        "message": {"text": one_line(text)},
        "locations": [{"physicalLocation": location, "logicalLocations": [node]}],
        "partialFingerprints": {"place/v1": fingerprint},
        "properties": {"severity": finding.severity, "taxonomy": finding.taxonomy, "verified": finding.verified},
    }
