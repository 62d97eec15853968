"""Every finding that matters has a pass, or says why it has none."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from scan_cases import graph

from converters.facts import facts, versions
from converters.fix import fix_model
from converters.passes import PASSES
from converters.passes.unmended import BY_OPERATOR, rows, why_not

MENDED = {rule for one in PASSES.values() for rule in one.findings}
OPERATORS = {operator for one in PASSES.values() for operator in one.operators}


def operators(version: str) -> set[str]:
    return {f"{domain}::{op}" if domain else op for domain, op in facts(version).not_handled}


@pytest.mark.parametrize("version", versions())
def test_every_finding_has_a_pass_or_a_reason(version):
    rules = [rule for rule in facts(version).rules.values() if rule.severity != "note" and rule.id not in BY_OPERATOR]
    assert [rule.id for rule in rules if rule.id not in MENDED and not why_not(rule.id)] == []


@pytest.mark.parametrize("version", versions())
def test_every_operator_that_is_not_imported_has_a_pass_or_a_reason(version):
    assert [name for name in operators(version) - OPERATORS if not why_not("OPERATOR.UNSUPPORTED", name)] == []


def test_every_reason_is_about_something_that_no_pass_mends():
    known = {rule for version in versions() for rule in facts(version).rules}
    lacking = {name for version in versions() for name in operators(version)}
    for row in rows():
        for pattern in row.get("findings", ()):
            named = {rule for rule in known if fnmatchcase(rule, pattern)}
            assert named and (not named <= MENDED or pattern == "ATTRIBUTE.IGNORED"), pattern
        for pattern in row.get("operators", ()):
            named = {name for name in lacking if fnmatchcase(name, pattern)}
            assert named and not named <= OPERATORS, pattern


def test_fix_prints_the_reason(tmp_path):
    source = tmp_path / "in.onnx"
    source.write_bytes(graph('y = com.microsoft.CDist<metric="euclidean">(x, x)').SerializeToString())
    told = fix_model(source, tmp_path / "out.onnx")["explained"]
    assert [one["why"][:18] for one in told] == ["cannot be mended: "] and "ReduceSumSquare" in told[0]["why"]
