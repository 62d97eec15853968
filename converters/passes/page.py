"""The page of all passes, generated: what each writes, when it leaves a place, which findings have none."""

from __future__ import annotations

from converters.facts import Facts, Rule, facts
from converters.passes import IN_ORDER, PASSES
from converters.passes.base import BY_OPERATOR
from converters.passes.unmended import why_not

HEAD = """# What `mlx-sentis fix` mends

Every pass in the order they run, generated from their doc strings by `make readme`. A pass fires where the scanner
finds something and nowhere else, and is proven in ONNX Runtime on values around 0, on zeros and at a scale of 1e4."""
NEWEST = "2.6"


def page() -> str:
    """Return the page as Markdown."""
    known = facts(NEWEST)
    parts = [HEAD]
    for module in IN_ORDER:
        one = module.PASS
        notes = [f"Numbers change by design: {one.by_design}."] * bool(one.by_design)
        notes += [f"May outgrow the budget: {one.grows}."] * bool(one.grows)
        notes += ["Runs only when it is named (`--only`)."] * one.on_request
        found = ", ".join(f"`{rule}`" for rule in one.findings if rule not in BY_OPERATOR)
        operators = ", ".join(f"`{name}`" for name in one.operators)
        lines = [f"## {one.name}", (module.__doc__ or "").strip(), " ".join(notes)]
        lines += [f"Findings: {found}." if found else "", f"Operators: {operators}." if operators else ""]
        parts += [line for line in lines if line]
    return "\n\n".join([*parts, "## Findings without a pass", _without(known)]) + "\n"


def _without(known: Facts) -> str:
    mended = {rule for one in PASSES.values() for rule in one.findings}
    rows = [rule for rule in known.rules.values() if rule.severity in ("error", "deviation") and rule.id not in mended]
    lines = [
        "Errors and silent deviations that need another export or another model, with the reason that `fix` gives.",
        "",
    ]
    told: dict[str, list[Rule]] = {}
    for rule in sorted(rows, key=lambda one: one.id):
        told.setdefault(why_not(rule.id), []).append(rule)
    lines += ["| findings | why | what helps |", "|---|---|---|"]
    for why, rules in told.items():
        mends = "; ".join(dict.fromkeys(rule.mend for rule in rules if rule.mend)) or "–"
        lines.append(f"| {', '.join(f'`{rule.id}`' for rule in rules)} | {why} | {mends.replace('|', ' ')} |")
    return "\n".join([*lines, "", *_operators_without(known)])


def _operators_without(known: Facts) -> list[str]:
    mended = {operator for one in PASSES.values() for operator in one.operators}
    names = [f"{domain}::{op}" if domain else op for domain, op in known.not_handled]
    told: dict[str, list[str]] = {}
    for name in sorted(set(names) - mended):
        told.setdefault(why_not("OPERATOR.UNSUPPORTED", name), []).append(f"`{name}`")
    rows = [f"| {', '.join(operators)} | {why} |" for why, operators in told.items()]
    return ["| operators that Sentis does not import and no pass writes | why |", "|---|---|", *rows]
