"""The table for terminals and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from parity.tables import level, table
from parity.triple.answers import NOT_PREDICTED
from parity.triple.rows import EDGES, Row, Step, Triple
from weights_bridge.errors import counted

HEADING = ("edge", "sides", "fixture", "Sentis", "worst tensor", "max abs", "found", "budget", "verdict", "isolates")
SHOWN = 5


def cells(row: Row) -> tuple[str, ...]:
    """Return one row's cells."""
    worst, edge = row.worst, EDGES[row.edge]
    found = level(worst) if worst.passed or worst.psnr_db is not None else worst.reason
    apart = "–" if row.max_abs is None else f"{row.max_abs:.2e}"
    budget = f"{row.budget_db:g} dB"
    return (
        row.edge, edge.sides, row.fixture, row.sentis, worst.tensor, apart, found, budget, row.verdict, edge.isolates,
    )  # fmt: skip


def text_of(triple: Triple) -> str:
    """Return the table, what belongs to it, and the verdict in the last line."""
    lines = [table(HEADING, [cells(row) for row in triple.rows]), *_details(triple)]
    if triple.steps:
        lines += ["", "Where it begins, in the order to look:", *map(step_line, triple.steps)]
    if triple.disagreements:
        lines += ["", *map(str, triple.disagreements[:SHOWN])]
        if (more := len(triple.disagreements) - SHOWN) > 0:
            lines.append(f"… and {more} more")
    lines += [""] if emulator_line(triple) or triple.facts.get("notes") else []
    lines += [line for line in (emulator_line(triple),) if line]
    lines += [f"note: {note}" for note in triple.facts.get("notes", ())[:SHOWN]]
    return "\n".join([*lines, "", closing(triple)])


def _details(triple: Triple) -> list[str]:
    found = [(f"{row.edge} {row.fixture}", row.worst) for row in triple.rows if not row.passed]
    found += [("dump", fault) for fault in triple.faults]
    told = dict.fromkeys(
        f"  {where}: {r.tensor}: {r.reason}: {' '.join(r.detail.split())}" for where, r in found if r.detail
    )
    lines = list(told)
    more = len(lines) - SHOWN
    return lines[:SHOWN] + ([f"  … and {more} more; --json lists every result"] if more > 0 else [])


def step_line(step: Step) -> str:
    """Return one step: what was found, or that it is next, with its command."""
    said = step.found or "to do"
    return f"  {step.number:<3} {step.what}: {said}" + (f"\n      $ {step.command}" if step.command else "")


def emulator_line(triple: Triple) -> str:
    """Return how the emulator stands to what was measured; empty where nothing was measured."""
    if triple.compared is None:
        return ""
    if "not_predicted" in triple.facts:
        return f"emulator: {NOT_PREDICTED}: {triple.facts['not_predicted']}"
    if not triple.compared and not triple.disagreements:
        return "emulator: nothing of the CPU backend to hold it against"
    count = counted(len(triple.disagreements), "finding")
    verdict = "agrees with what was measured" if not triple.disagreements else f"{count} about it (not about the model)"
    return f"emulator: {verdict}, {counted(triple.compared, 'output')} of the CPU backend compared"


def closing(triple: Triple) -> str:
    """Return the verdict of each edge, and whether Sentis' side is measured or predicted."""
    words = []
    for edge in EDGES:
        rows = triple.of(edge)
        if rows:
            good = sum(row.passed for row in rows)
            kinds = sorted({row.sentis.split(" ")[0] for row in rows if edge != "A"})
            by = f" {' and '.join(kinds)}" if kinds else ""
            unknown = all(row.verdict == NOT_PREDICTED for row in rows)
            verdict = NOT_PREDICTED if unknown else "holds" if good == len(rows) else f"misses on {len(rows) - good}"
            words.append(f"{edge}{by}: {verdict} ({good} of {counted(len(rows), 'row')})")
    return " · ".join(words)


def markdown(triple: Triple, title: str, picture: str | None) -> str:
    """Return the page of a run.

    Args:
        triple: the table.
        title: its heading.
        picture: path of the picture from the page; None without one.
    """
    lines = [f"# {title}", "", closing(triple), "", _line(HEADING), "|" + "---|" * len(HEADING)]
    lines += [_line(cells(row)) for row in triple.rows]
    lines += ["", f"![agreement of each edge]({picture})"] if picture else []
    if details := _details(triple):
        lines += ["", "## What failed", "", *(f"- {line.strip()}" for line in details)]
    if triple.steps:
        lines += ["", "## Where it begins, in the order to look", ""]
        lines += [f"{_step(step)}" for step in triple.steps]
    if triple.compared is not None:
        lines += ["", "## The emulator against Unity", "", emulator_line(triple)]
        lines += ["", *(f"- {one}" for one in triple.disagreements)] if triple.disagreements else []
    lines += ["", "## Budgets", "", *_budgets(triple)]
    if dump := triple.facts.get("dump"):
        told = f"{dump['package']} {dump['version']}, Unity {dump['unity']}, {dump['date']}, "
        told += " ".join(dump["device"].split())
        lines += ["", "## Measured with", "", told]
    if notes := triple.facts.get("notes"):
        lines += ["", "## Notes", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _step(step: Step) -> str:
    command = f" – `{step.command}`" if step.command else ""
    return f"- {step.number} **{step.what}**: {step.found or 'to do'}{command}"


def _budgets(triple: Triple) -> list[str]:
    found = triple.facts.get("budgets", {})
    used = {edge: {row.budget_db for row in triple.of(edge)} for edge in EDGES}
    return [
        f"- {edge} {', '.join(f'{db:g} dB' for db in sorted(used[edge]))}: {entry['cause']} ({entry['measured']}; "
        f"{entry['date']}, {entry['file']})"
        for edge, entry in found.items()
        if edge in used
    ]


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
