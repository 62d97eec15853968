"""Every rule: found where it is, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from scan_cases import CASES, Case

from converters.facts import facts
from converters.finding import TAXONOMY
from converters.scan import rules_page
from converters.scan.answers import CHECKS
from converters.scan.predicates import PREDICATES

READ = Path(__file__).parent / "goldens" / "sentis_2.4_rules.txt"
PAGE = Path(__file__).parents[3] / "docs" / "sentis-rules.md"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_rule_finds_its_case_and_not_its_neighbour(case: Case, scanned):
    fires, silent = case.graphs()
    found = [finding for finding in scanned(fires, "2.4", notes=True) if finding.id == case.id]
    assert len(found) == 1 and found[0].what and found[0].node and found[0].taxonomy in TAXONOMY
    rule = facts("2.4").rules[case.id]
    assert (found[0].severity in (rule.severity, "warning") and found[0].mend) or found[0].severity == "note"
    assert case.id not in [finding.id for finding in scanned(silent, "2.4", notes=True)]


def test_every_checked_rule_of_an_operator_has_a_case():
    checked = {rule.id for rule in facts("2.4").rules.values() if rule.when}
    external = {"CONSTANT.EXTERNAL", "CONSTANTOFSHAPE.EXTERNAL"}  # need a side file: test_external.py
    assert checked - external <= {case.id for case in CASES}


def test_every_rule_that_was_read_is_checked_or_says_why_not():
    read = [line.split()[0] for line in READ.read_text().splitlines() if not line.startswith("#")]
    rules = facts("2.4").rules
    assert len(read) == len(set(read)) == 211 and set(read) <= set(rules)
    unchecked = {rule_id: rules[rule_id].status for rule_id in read if rules[rule_id].status != "checked"}
    assert len(unchecked) == 12
    assert all(
        status.startswith(("run time (", "not applicable (")) and len(status) > 20 for status in unchecked.values()
    )
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{rule_id}` |" in page for rule_id in read)


def test_the_page_of_rules_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == rules_page.page(), "run `make readme`"


def test_rules_and_predicates_name_each_other():
    rules = [rule for version in ("2.4", "2.6") for rule in facts(version).rules.values()]
    assert {name for rule in rules for name in rule.when} == set(PREDICATES)
    assert {rule.when["check"] for rule in rules if "check" in rule.when} == set(CHECKS)


def test_every_operator_of_a_rule_is_handled():
    for version in ("2.4", "2.5", "2.6"):
        known = facts(version)
        assert {op for rule in known.rules.values() for op in rule.ops} <= set(known.operators)
