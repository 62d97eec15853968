"""Findings: signs that something is wrong with the data, each with its meaning, how often, and where first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlx_sentis.prepare.index import place_of

EXAMPLES, SHOWN_CHARACTERS = 5, 80


@dataclass
class Finding:
    """Rows that show one sign.

    Attributes:
        name: of the sign.
        means: what it means and how to mend it.
        rows: how many show it.
        examples: `file:line: what was seen`, the first few.
    """

    name: str
    means: str
    rows: int = 0
    examples: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "means": self.means, "rows": self.rows, "examples": self.examples}


class Findings:
    """Collects findings.

    Args:
        meanings: every possible finding's name to its meaning, in the order in which they are told.
    """

    def __init__(self, meanings: Mapping[str, str]) -> None:
        self._found = {name: Finding(name, means) for name, means in meanings.items()}

    def note(self, name: str, source: str, seen: str, rows: int = 1) -> None:
        """Count rows that show a sign."""
        finding = self._found[name]
        finding.rows += rows
        if len(finding.examples) < EXAMPLES:
            finding.examples.append(f"{place_of(source)}: {seen}")

    def count(self, names: Iterable[str]) -> int:
        """Return how often some signs were noted."""
        return sum(self._found[name].rows for name in names)

    def found(self) -> list[Finding]:
        """Return what was found, in the order of the meanings."""
        return [finding for finding in self._found.values() if finding.rows]


def finding_lines(findings: list[dict[str, Any]], *, one: str = "row", several: str = "rows") -> list[str]:
    """Return findings as lines of Markdown, the examples indented.

    Args:
        findings: as `Finding.as_json` gives them.
        one: what shows a sign, in the singular.
        several: the same in the plural.
    """
    lines = []
    for finding in findings:
        rows, examples = finding["rows"], finding["examples"]
        lines.append(f"**{finding['name']}** in {rows} {one if rows == 1 else several}: {finding['means']}")
        lines += [f"  - {example}" for example in examples]
        if rows > len(examples) == EXAMPLES:
            lines.append(f"  - … and {rows - len(examples)} more")
    return lines


def shown(text: str) -> str:
    """Return the beginning of a text as one line."""
    return repr(text[:SHOWN_CHARACTERS]) + ("…" if len(text) > SHOWN_CHARACTERS else "")
