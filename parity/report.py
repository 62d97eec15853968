"""The report of a run: what was measured, what it came to, and what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlx_sentis.model_card import licence_in_words
from parity.a0_tables import column_heading, column_rows, precision_line, worst_columns, worst_of
from parity.eval_words import axis_line, verdict_word, words_of
from parity.plots import plot_error_by_layer, plot_loss
from parity.tables import table
from parity.triple.in_report import current_triple, report_row, worst_rows
from weights_bridge.files import read_json, read_jsonl, write_json, write_text
from weights_bridge.run_folder import RunFolder, versions

SCHEMA = "mlx-sentis/report/1"
GATES = {"a0": "a0.json", "edge_a_base": "a-base.json", "edge_a_tuned": "a.json"}
GATE_LABELS = {
    "a0": "gate A0, MLX ↔ torch",
    "edge_a_base": "edge A, base weights",
    "edge_a_tuned": "edge A, tuned weights",
}
NOT_RUN = "not run"
EVAL_KEYS = ("before", "after", "verdicts", "remarks", "gate")
UNMEASURED = {
    "edge_b": "ONNX Runtime against Sentis in Unity: `parity RUN --edge ab` predicts it, and measures it with a dump",
    "speed_on_device": "tokens per second in Unity",
}


def write_report(run: RunFolder) -> dict[str, Any]:
    """Write `parity/report.json`, `parity/report.md` and `parity/plots/*.png` from what the stages left.

    Args:
        run: the folder; what is not there is reported as not run.

    Returns:
        What was written to `report.json`.
    """
    gates = {name: _read(run, "parity", file) for name, file in GATES.items()}
    axes, log = _read(run, "eval", "axes.json"), run.path("log.jsonl")
    triple = current_triple(run)
    inputs = [run.path("parity", f) for f in (*GATES.values(), *(["triple.json"] if triple else []))]
    inputs += [run.path("eval", "axes.json"), run.path("recipe.json")]
    with run.stage("report", [path for path in inputs if path.exists()]) as stage:
        report = _summary(run, gates, axes, triple)
        plots = run.path("parity", "plots")
        drawn = {
            "loss": log.exists() and plot_loss(read_jsonl(log), plots / "loss.png"),
            "error_by_layer": plot_error_by_layer(*_depth_series(gates), plots / "error_by_layer.png"),
        }
        report["plots"] = [f"plots/{name}.png" for name, done in drawn.items() if done]
        write_json(run.path("parity", "report.json"), report)
        write_text(run.path("parity", "report.md"), markdown(report))
        stage.wrote(*(run.path("parity", name) for name in ("report.json", "report.md", *report["plots"])))
    return report


def _read(run: RunFolder, *parts: str) -> dict[str, Any] | None:
    path = run.path(*parts)
    return read_json(path) if path.is_file() else None


def _summary(
    run: RunFolder,
    gates: Mapping[str, dict[str, Any] | None],
    axes: dict[str, Any] | None,
    triple: dict[str, Any] | None,
) -> dict[str, Any]:
    recipe = _read(run, "recipe.json") or {}
    stages = run.manifest()["stages"]
    found = {name: gate and gate_summary(gate) for name, gate in gates.items()}
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "passed": all(gate is not None and gate["passed"] for gate in gates.values())
        and (triple is None or triple["passed"]),
        "model": recipe.get("model", {}).get("name"),
        "architecture": recipe.get("architecture"),
        "licence": recipe.get("licence"),
        "licence_in_words": licence_in_words(recipe),
        "gates": found,
        "edge_b": worst_rows(triple),
        "a0_columns": _columns(gates["a0"]),
        "ungated": sorted(name for name, entry in stages.items() if entry["facts"].get("ungated")),
        "eval": None if axes is None else {key: axes.get(key) for key in EVAL_KEYS},
        "stages": {n: {k: e[k] for k in ("seconds", "peak_memory_gib", "finished")} for n, e in stages.items()},
        "versions": versions(),
        "not_measured": dict(UNMEASURED),
    }
    missing = {name: NOT_RUN for name, gate in found.items() if gate is None}
    report["not_measured"] |= missing | ({} if axes else {"eval": NOT_RUN})
    if any(row["sentis"].startswith("measured") for row in report["edge_b"]):
        del report["not_measured"]["edge_b"]
    return report


def gate_summary(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a gate's verdict, its worst dB by direction, its greedy count and its first failures."""
    results = gate["results"]
    greedy = [result for result in results if result["tensor"].startswith("greedy")]
    talk = [result for result in results if result["tensor"].startswith("sequence")]
    sides = {"backward": [r for r in results if r["tensor"].startswith("backward")]}
    sides["forward"] = [r for r in results if r not in sides["backward"] and r not in greedy and r not in talk]
    summary: dict[str, Any] = {"passed": gate["passed"], "results": len(results)}
    for side in ("forward", "backward"):
        measured = [r for r in sides[side] if r["psnr_db"] is not None]
        worst = min(measured, key=lambda r: r["psnr_db"], default=None)
        summary[side] = worst and {key: worst[key] for key in ("tensor", "psnr_db", "budget", "passed")}
    tokens = gate["facts"].get("greedy", {}).get("tokens", 0)
    summary["greedy"] = {"prompts": len(greedy), "equal": sum(r["passed"] for r in greedy), "tokens_each": tokens}
    if talk:
        summary["sequence"] = _talk_summary(talk, gate["facts"].get("sequence", {}))
    failures = [r for r in results if not r["passed"]]
    summary["failures"] = [{key: r[key] for key in ("tensor", "reason", "where", "detail")} for r in failures[:20]]
    return summary


def _talk_summary(results: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on the talk of several turns, its worst step, and how long it was."""
    measured = [r for r in results if r["psnr_db"] is not None]
    worst = min(measured, key=lambda r: r["psnr_db"], default=None)
    summary = {"passed": all(r["passed"] for r in results), "turns": len(facts.get("turns", ()))}
    summary |= {"steps": facts.get("steps"), "tokens": facts.get("tokens")}
    return summary | {"worst": worst and {key: worst[key] for key in ("tensor", "psnr_db", "budget", "where")}}


def _columns(gate: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return gate A0's worst tensors in three columns, and what they were computed with; None without a gate."""
    facts = (gate or {}).get("facts", {})
    if "columns" not in facts:
        return None
    return {"worst": worst_columns(facts["columns"]), "computed_with": precision_line(facts)}


def _depth_series(
    gates: Mapping[str, dict[str, Any] | None],
) -> tuple[dict[str, dict[str, float | None]], dict[str, float]]:
    """Return one series per gate (the worst over its rows or optimisation levels) and the budgets to draw."""
    series: dict[str, dict[str, float | None]] = {}
    budgets: dict[str, float] = {}
    for name, gate in gates.items():
        found = (gate or {}).get("facts", {}).get("error_by_layer", {})
        if gate is None or not found:
            continue
        label = "gate A0, hidden states" if name == "a0" else f"edge A, {name.removeprefix('edge_a_')} weights"
        series[label] = worst_of(found)
        forward = [r for r in gate["results"] if not r["tensor"].startswith("backward")]
        budget = [r["budget"] for r in forward if r["budget"] is not None]
        if budget:
            budgets["A0" if name == "a0" else "edge A"] = max(budget)
    return series, budgets


def verdict_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (check, verdict, figure) of everything the report knows."""
    rows: list[tuple[str, str, str]] = []
    for name, label in GATE_LABELS.items():
        rows += gate_rows(label, report["gates"][name])
    for axis, found in ((report["eval"] or {}).get("verdicts") or {}).items():
        before, after = (axis_line(report["eval"][side][axis]) for side in ("before", "after"))
        rows.append((f"held out: {words_of(axis)}", verdict_word(found), f"{before} → {after}"))
    rows += [(f"  {remark}", "", "") for remark in (report["eval"] or {}).get("remarks") or ()]
    for axis, found in ((report["eval"] or {}).get("gate") or {}).get("held_out", {}).items():
        without, with_gate = (axis_line(found[side]) for side in ("without_gate", "with_gate"))
        rows.append((f"held out with the gate: {words_of(axis)}", "", f"{without} → {with_gate}"))
    if report["eval"] is None:
        rows.append(("held out", NOT_RUN, ""))
    rows += [report_row(row) for row in report["edge_b"]]
    if not report["edge_b"]:
        rows.append(("edge B, ONNX Runtime ↔ Sentis", NOT_RUN, "`parity RUN --edge ab` predicts it"))
    if report["ungated"]:
        rows.append(("gate A0 was overridden", "UNGATED", ", ".join(report["ungated"])))
    return rows


def gate_rows(label: str, gate: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return (check, verdict, figure) of one gate's summary; `not run` without one."""
    if gate is None:
        return [(label, NOT_RUN, "")]
    rows = []
    for side in ("forward", "backward"):
        if (worst := gate[side]) is not None:
            name = f"{label}, {side}" if gate["backward"] else label
            figure = f"worst {worst['psnr_db']:.1f} dB, budget {worst['budget']:g} ({worst['tensor']})"
            rows.append((name, "pass" if worst["passed"] else "FAIL", figure))
    if (greedy := gate["greedy"])["prompts"]:
        verdict = "pass" if greedy["equal"] == greedy["prompts"] else "FAIL"
        figure = f"{greedy['equal']} of {greedy['prompts']} prompts, {greedy['tokens_each']} tokens each"
        rows.append((f"{label}: greedy tokens equal", verdict, figure))
    if (talk := gate.get("sequence")) is not None:
        worst = talk["worst"]
        level = "exact" if worst is None else f"worst step {worst['psnr_db']:.1f} dB, budget {worst['budget']:g}"
        figure = f"{talk['turns']} turns, {talk['steps']} steps, {talk['tokens']} tokens, one cache: {level}"
        rows.append((f"{label}: sequence", "pass" if talk["passed"] else "FAIL", figure))
    if not gate["passed"] and not any(row[1] == "FAIL" for row in rows):
        rows.append((label, "FAIL", ""))
    if not gate["passed"]:
        first = gate["failures"][0] if gate["failures"] else {"where": "", "reason": "nothing compared"}
        rows.append(("  begins at", "", first["where"] or first["reason"]))
    return rows


def verdict_table(report: Mapping[str, Any]) -> str:
    """Return the short table for the terminal, and the verdict of the whole."""
    return f"{table(('check', 'verdict', 'figure'), verdict_rows(report))}\n\n{_whole(report)}"


def _whole(report: Mapping[str, Any]) -> str:
    return "Every gate that belongs to the run passed." if report["passed"] else "Not every gate was run and passed."


def axes_table(document: Mapping[str, Any]) -> str:
    """Return evaluation axes as a table: counts with 95 % intervals, and verdicts where there are two sides."""
    if "after" not in document:
        return table(("axis", "base"), [(n.replace("_", " "), axis_line(a)) for n, a in document["before"].items()])
    rows = [
        (axis.replace("_", " "), axis_line(before), axis_line(document["after"][axis]), verdict_word(found))
        for (axis, before), found in zip(document["before"].items(), document["verdicts"].values(), strict=True)
    ]
    return table(("axis", "before", "after", "verdict"), rows)


def markdown(report: Mapping[str, Any]) -> str:
    """Return `report.md`."""
    lines = [f"# {report['model'] or 'Run'}: report", "", _whole(report), "", *_section(("check", "verdict", "figure"))]
    lines += [_line(row) for row in verdict_rows(report)]
    if report["plots"]:
        lines += [
            "",
            *(f"![{path.split('/')[-1].removesuffix('.png').replace('_', ' ')}]({path})" for path in report["plots"]),
        ]
    if (columns := report.get("a0_columns")) is not None:
        lines += ["", "## Gate A0 in three columns", "", *_section(column_heading())]
        lines += [_line(row) for row in column_rows(columns["worst"])]
        lines += [
            "",
            f"The verdict is on MLX ↔ torch fp64; torch fp32 ↔ fp64 is the floor. {columns['computed_with']}.",
        ]
    lines += [
        "",
        "## Not measured",
        "",
        *(f"- **{k.replace('_', ' ')}**: {v}" for k, v in report["not_measured"].items()),
    ]
    lines += ["", "## Stages", "", *_section(("stage", "seconds", "peak memory (GiB)"))]
    for name, entry in report["stages"].items():
        lines.append(_line((name, f"{entry['seconds']:.1f}", f"{entry['peak_memory_gib']:.2f}")))
    lines += ["", "## Made with", "", *(f"- {name} {version}" for name, version in report["versions"].items())]
    lines += ["", "## Licence of the model", "", report["licence_in_words"]]
    lines += ["", "Shares are followed by their 95 % Wilson interval; verdicts are exact McNemar tests at p < 0.05."]
    return "\n".join(lines) + "\n"


def _section(heading: tuple[str, ...]) -> list[str]:
    return [_line(heading), "|" + "---|" * len(heading)]


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
