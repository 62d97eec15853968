"""Plain-text tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from parity.verify import worst_first
from weights_bridge.compare import GateReport, GateResult
from weights_bridge.errors import one_line


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return aligned columns under a heading and a rule; a cell with nothing behind it, a remark, widens no column."""
    lines = [tuple(heading), *(tuple(map(one_line, row)) for row in rows)]
    last = len(heading) - 1
    widths = [max(len(line[at]) for line in lines if at == last or any(line[at + 1 :])) for at in range(len(heading))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    rule = "  ".join("─" * width for width in widths)
    return "\n".join([text[0], rule, *text[1:]])


def level(result: GateResult) -> str:
    """Return a result's dB as text."""
    if result.reason == "exact":
        return "exact"
    return "–" if result.psnr_db is None else f"{result.psnr_db:.1f} dB"


def gates_table(reports: Sequence[GateReport], rows: int = 12) -> str:
    """Return verdicts, worst first, and one closing line per gate.

    Args:
        reports: of all gates.
        rows: how many results to show; failures beyond that are counted.
    """
    ordered = worst_first(reports)
    shown = [
        (
            "pass" if result.passed else "FAIL",
            gate,
            result.tensor,
            level(result),
            "" if result.budget is None else f"{result.budget:g} dB",
            result.reason,
            result.where,
        )
        for gate, result in ordered[:rows]
    ]
    text = table(("", "gate", "tensor", "found", "budget", "reason", "where"), shown)
    details = [result.detail for _, result in ordered[:rows] if result.detail and not result.passed]
    if details:
        text += "\n" + "\n".join(f"  {detail}" for detail in details[:3])
    if len(ordered) > rows:
        text += f"\n… and {len(ordered) - rows} more"
    return text + "\n\n" + "\n".join(map(closing_line, reports))


def closing_line(report: GateReport) -> str:
    """Return one gate in one line."""
    count, failed = len(report.results), len(report.failures)
    worst = report.worst_db()
    lowest = "" if worst is None else f", lowest {worst:.1f} dB"
    verdict = "pass" if report.passed else f"FAIL: {failed} of {count}"
    return f"{report.gate}: {verdict} ({count} results{lowest})"


def inside_table(report: GateReport) -> str:
    """Return every probed tensor inside the graph in its own order (`facts["localised"]`)."""
    results = [GateResult(**entry) for entry in report.facts.get("localised", [])]
    return table(("", "inside the graph", "found"), [("" if r.passed else "FAIL", r.tensor, level(r)) for r in results])
