"""The converters' commands but export: swap, scan, explain, fix, families. They parse, call and print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_version import SENTIS_VERSION

PATH = click.Path(path_type=Path)
PLACES_SHOWN = 3  # of places of which the same is said; --json has them all
SENTIS = click.option(
    "--sentis", type=SENTIS_VERSION, default="2.6", show_default=True, help="Package version to predict for."
)


@command("swap", examples=("swap runs/npc", "swap runs/npc --ungated"))
@click.argument("run", type=PATH)
@click.option("--ungated", is_flag=True, help="Go on without a passed gate A0; the manifest records it.")
def swap(output: Output, run: Path, ungated: bool) -> None:
    """Put a run's merged weights into its proven base graph."""
    from converters.swap import swap_run

    facts = swap_run(RunFolder.existing(run), ungated=ungated)
    note = " (ungated)" if ungated else ""
    output.answer("swap", facts, f"{facts['model']}: {facts['initialisers']} initialisers replaced{note}")


@command("scan", examples=("scan onnx/model.onnx", "scan onnx/model.onnx --sentis 2.4 --json"))
@click.argument("target", type=PATH)
@SENTIS
@click.option("--notes", is_flag=True, help="Add what costs time or a last digit only.")
@click.option("--sarif", type=PATH, default=None, help="Also write a SARIF 2.1.0 file, for code scanning pages.")
def scan(output: Output, target: Path, sentis: str, notes: bool, sarif: Path | None) -> None:
    """Say what Sentis will do with a file, a folder, a model directory or a hub id; no weights are read."""
    from converters.facts import facts
    from converters.scan import scan as findings_of
    from converters.scan.hub import is_hub_id, scan_hub
    from converters.scan.report import sarif_document, text_of

    if is_hub_id(target):
        findings, mirror = scan_hub(target.as_posix(), sentis, notes=notes)
        output.story(str(mirror))
    else:
        findings = findings_of(target, sentis, notes=notes)
    blocking = sum(finding.blocking for finding in findings)
    if sarif is not None:
        from weights_bridge.files import write_json

        write_json(sarif, sarif_document(findings, target, facts(sentis)))
        output.story(f"{sarif}: {len(findings)} results")
    document = {"target": str(target), "sentis": sentis, "findings": [finding.as_json() for finding in findings]}
    output.answer("scan", document | {"clean": not blocking}, text_of(findings, target, sentis))
    if blocking:
        click.get_current_context().exit(BudgetMissedError.exit_code)


@command("explain", examples=("explain onnx/base.onnx", "explain onnx/base.onnx --sentis 2.4 --json"))
@click.argument("model", type=PATH)
@SENTIS
def explain(output: Output, model: Path, sentis: str) -> None:
    """Say which layers Sentis makes of a model: what it fuses, and what it nearly fuses and why not."""
    from converters.explain import explain as explanation_of

    found = explanation_of(model, sentis)
    output.answer("explain", found.as_json(), str(found))
    if found.prediction.not_predicted:
        click.get_current_context().exit(BudgetMissedError.exit_code)


@command("fix", examples=("fix in.onnx --out out.onnx", "fix vad.onnx --out out.onnx --bind sr=16000"))
@click.argument("source", type=PATH, required=False)
@click.option("--out", type=PATH, default=None, help="The file to write; the input is never changed.")
@click.option("--only", multiple=True, metavar="PASS", help="A pass by name; repeatable.")
@click.option("--fixture", type=PATH, default=None, help="An npz file with in:: arrays to prove equality on.")
@click.option("--bind", multiple=True, metavar="INPUT=N[,N…]", help="An input that becomes a constant; repeatable.")
@click.option("--check-each", is_flag=True, help="Prove each place by itself, so that a failure names the node.")
@click.option("--growth", default=0.25, show_default=True, help="What passes may add as constants, of the file's size.")
@click.option("--list", "list_passes", is_flag=True, help="Name the passes in their order.")
@SENTIS
def fix(
    output: Output,
    source: Path | None,
    out: Path | None,
    only: tuple[str, ...],
    fixture: Path | None,
    bind: tuple[str, ...],
    check_each: bool,
    growth: float,
    list_passes: bool,
    sentis: str,
) -> None:
    """Mend a model for Sentis with passes that are proven in ONNX Runtime."""
    from converters.passes import PASSES

    if list_passes:
        kept = ("name", "why", "findings", "operators", "by_design", "on_request")
        rows = [{key: getattr(one, key) for key in kept} for one in PASSES.values()]
        text = "\n".join(f"{row['name']:<18} {row['why']}{' (only when named)' * row['on_request']}" for row in rows)
        output.answer("fix", {"passes": rows}, text)
        return
    if source is None or out is None:
        raise click.UsageError("give IN.onnx and --out OUT.onnx, or --list")
    from converters.fix import fix_model, read_fixture

    inputs = None if fixture is None else read_fixture(fixture)
    bound = dict(_pair(one) for one in bind)
    given = {"sentis": sentis, "inputs": inputs, "bind": bound, "check_each": check_each, "growth": growth}
    report = fix_model(source, out, only, **given)
    output.answer("fix", report, _fix_text(report))


def _pair(text: str) -> tuple[str, str]:
    name, equals, number = text.rpartition("=")
    if not equals or not name:
        raise click.UsageError(f"--bind {text}: wanted INPUT=NUMBER, or INPUT=NUMBER,NUMBER,…")
    return name, number


def _together(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for all places of which the same is said."""
    places: dict[str, list[str]] = {}
    for text, place in pairs:
        places.setdefault(text, []).append(place)
    shown = ((text, named[:PLACES_SHOWN], len(named) - PLACES_SHOWN) for text, named in places.items())
    return [f"{', '.join(named)}{f' and {more} more' * (more > 0)}: {text}" for text, named, more in shown]


def _fix_text(report: dict[str, Any]) -> str:
    from weights_bridge.errors import one_line

    lines = []
    for row in report["passes"]:
        if row["changed"] or row["left"]:
            lines.append(f"{row['name']:<18} {row['changed']:>5} changed  {row['proof']}")
        lines += [f"{'':<18} left {line}" for line in _together((why, name) for name, why in row["left"].items())]
    before, after = report["operators"]["before"], report["operators"]["after"]
    changed = [name for name in sorted(before | after) if before.get(name, 0) != after.get(name, 0)]
    lines += [f"{name:<24} {before.get(name, 0):>6} → {after.get(name, 0)}" for name in changed]
    found = [Counter(finding["id"] for finding in report["findings"][side]) for side in ("before", "after")]
    lines += [f"{name:<24} {found[0][name]:>6} → {found[1][name]}" for name in sorted(found[0] | found[1])]
    explained = ((f"{one['id']}: {one['why']}", one["node"]) for one in report["explained"])
    lines += [f"left: {line}" for line in _together(explained)]
    counts = [sum(side.values()) for side in found]
    lines.append(f"{report['output']}: {sum(after.values())} nodes, findings {counts[0]} → {counts[1]}")
    return "\n".join(map(one_line, lines))


@command("families", examples=("families", "families --json"))
def families(output: Output) -> None:
    """List families, the architectures they cover and the stages."""
    from converters import families as registry

    rows = registry.table()
    wide = [max(len(row[key]) for row in rows) for key in ("family", "architecture")]
    text = "\n".join(
        f"{row['family']:<{wide[0]}}  {row['architecture']:<{wide[1]}}  {' '.join(row['stages'])}" for row in rows
    )
    output.answer("families", {"families": rows}, text)
