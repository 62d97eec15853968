"""The page of all rules, generated: what Sentis does, how bad it is, whether `scan` finds it, in which version."""

from __future__ import annotations

from converters.facts import Facts, Rule, facts, versions
from converters.finding import TAXONOMY

HEAD = """# What Sentis does with a model

Every rule that `mlx-sentis scan` knows, generated from `converters/sentis/*.json` by `make readme`.
`checked`: found in the file. `run time`: only a run can show it. `not applicable`: there is nothing to find.
A version is ✓ where the rule was read in it, ? where it is handed on from an earlier one and not verified, – where it
does not hold any more or not yet. A finding that only may happen (a size that is not known) is a warning."""


def page() -> str:
    """Return the page as Markdown."""
    known = {version: facts(version) for version in versions()}
    rules: dict[str, Rule] = {}
    for one in known.values():
        rules = one.rules | rules
    classes = "\n".join(f"- **{letter}**: {text}" for letter, text in TAXONOMY.items())
    sources = "\n".join(f"- **{v}**: {f['package']}; {f['status']}. Source: {f['source']}." for v, f in known.items())
    unknown = "\n".join(f"- {version}: {text}" for version, one in known.items() for text in one["unknown"])
    of_operators = [rule for rule in rules.values() if rule.ops]
    of_models = [rule for rule in rules.values() if not rule.ops]
    parts = [HEAD, "## Classes", classes, "## Versions", sources, "Not known:", unknown]
    parts += [f"## Rules of operators: {len(of_operators)}", _table(of_operators, known, "read in")]
    parts += [f"## Rules of the model: {len(of_models)}", _table(of_models, known, "about")]
    return "\n\n".join(parts) + "\n"


def _table(rules: list[Rule], known: dict[str, Facts], subject: str) -> str:
    columns = ["id", "class", "severity", "Sentis", "mend", "status", subject, *known]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for rule in sorted(rules, key=lambda one: one.id):
        held = [_held(rule.id, one) for one in known.values()]
        cells = (f"`{rule.id}`", rule.taxonomy, rule.severity, rule.what, rule.mend or "–", rule.status, rule.subject)
        lines.append(f"| {' | '.join((*map(_cell, cells), *held))} |")
    return "\n".join(lines)


def _held(rule_id: str, known: Facts) -> str:
    if rule_id not in known.rules:
        return "–"
    return "✓" if known.rules[rule_id].verified else "?"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
