"""What a benchmark found, as values: tables of figures and budgets that pass or miss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from parity.tables import table

Figures = dict[str, Any]


@dataclass(frozen=True)
class Budget:
    """One measure that must keep a limit.

    Attributes:
        measure: what was measured.
        found: the figure; None when there is none.
        limit: the most or the least that passes.
        unit: of both.
        at_most: whether `limit` is the most.
        exact: nothing differs at all, so that there is no figure in dB; passes.
        detail: where the figure comes from, or why there is none.
    """

    measure: str
    found: float | None
    limit: float
    unit: str
    at_most: bool = True
    exact: bool = False
    detail: str = ""

    @property
    def passed(self) -> bool:
        if self.found is None:
            return self.exact
        return self.found <= self.limit if self.at_most else self.found >= self.limit

    def as_json(self) -> Figures:
        return asdict(self) | {"passed": self.passed}

    def cells(self) -> tuple[str, ...]:
        """Return verdict, measure, found, budget and detail as text."""
        found = "exact" if self.exact else "not measured" if self.found is None else f"{number(self.found)} {self.unit}"
        limit = f"{'≤' if self.at_most else '≥'} {number(self.limit)} {self.unit}"
        return ("pass" if self.passed else "MISS", self.measure, found.strip(), limit.strip(), self.detail)


@dataclass(frozen=True)
class Table:
    """Figures in rows.

    Attributes:
        columns: key to heading, in order; one without a heading (a remark) shows only where a row has it.
        rows: one dictionary each; a key that is missing or None shows as –.
    """

    columns: dict[str, str]
    rows: list[Figures]

    def text(self) -> str:
        shown = {key: name for key, name in self.columns.items() if name or any(row.get(key) for row in self.rows)}
        return table(list(shown.values()), [[cell(row.get(key)) for key in shown] for row in self.rows])


@dataclass
class Bench:
    """One benchmark's answer.

    Attributes:
        name: `blas`, `train`, …
        title: what it is about, with what it was measured on.
        tables: name to table.
        budgets: what must hold; a miss is exit 3.
        facts: sizes and settings that the figures depend on.
        notes: what a reader must know to read the figures right.
    """

    name: str
    title: str
    tables: dict[str, Table] = field(default_factory=dict)
    budgets: list[Budget] = field(default_factory=list)
    facts: Figures = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def misses(self) -> list[Budget]:
        return [budget for budget in self.budgets if not budget.passed]

    def as_json(self) -> Figures:
        return {
            "bench": self.name,
            "title": self.title,
            "passed": not self.misses,
            "facts": self.facts,
            **{name: one.rows for name, one in self.tables.items()},
            "budgets": [budget.as_json() for budget in self.budgets],
            "notes": self.notes,
        }

    def text(self) -> str:
        """Return title, tables, budgets and notes for a terminal."""
        parts = [f"{self.name}: {self.title}", *(one.text() for one in self.tables.values())]
        if self.budgets:
            heading = ("verdict", "measure", "found", "budget", "detail")
            shown = 5 if any(budget.detail for budget in self.budgets) else 4
            parts.append(table(heading[:shown], [budget.cells()[:shown] for budget in self.budgets]))
        return "\n\n".join(parts + (["\n".join(f"  {note}" for note in self.notes)] if self.notes else []))


def number(value: float) -> str:
    """Return a figure with at least three significant digits."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def cell(value: Any) -> str:
    """Return a value of a row as text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def ratio(figure: float | None, base: float | None) -> float | None:
    """Return figure / base, or None where either is missing."""
    return round(figure / base, 3) if figure is not None and base else None


def all_misses(benches: Sequence[Bench]) -> list[tuple[str, Budget]]:
    """Return (benchmark, budget) of every miss."""
    return [(bench.name, budget) for bench in benches for budget in bench.misses]
