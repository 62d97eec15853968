"""The converters' commands: export, swap, scan, explain, fix, families. They parse, call and print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import resolve

if TYPE_CHECKING:
    from converters.route import Route

PATH = click.Path(path_type=Path)
PLACES_SHOWN = 3  # of places of which the same is said; --json has them all
SENTIS = click.option("--sentis", default="2.6", show_default=True, help="Package version to predict for.")


@command(
    "export",
    examples=("export path/to/model --out onnx", "export path/to/model --out onnx --dtype fp16 --batch dynamic"),
)
@click.argument("model", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder for base.onnx and contract.json.")
@click.option("--family", default=None, help="Refuse a model of another family.")
@click.option("--opset", type=int, default=18, show_default=True, help="ONNX opset to write.")
@click.option("--dtype", default="fp32", show_default=True, help="fp32, or fp16 weights with fp32 arithmetic.")
@click.option("--batch", default="1", show_default=True, help="1, or dynamic.")
@click.option("--argmax", is_flag=True, help="Also put out the next token's id, so that logits can stay on the device.")
@click.option(
    "--slots", type=click.IntRange(1), default=None, help="A cache of this many slots instead of a growing one."
)
@click.option("--query", type=click.IntRange(1), default=1, show_default=True, help="New tokens a call, with --slots.")
@click.option("--path", default="auto", show_default=True, help="wrapper (ours), optimum (where installed), or auto.")
@click.option("--pt2", is_flag=True, help="Also write the exported program of torch beside it (Sentis 2.5 or newer).")
@click.option("--name", default="base.onnx", show_default=True, help="Name of the file.")
@SENTIS
def export(
    output: Output,
    model: Path,
    out: Path,
    family: str | None,
    opset: int,
    dtype: str,
    batch: str,
    argmax: bool,
    slots: int | None,
    query: int,
    path: str,
    pt2: bool,
    name: str,
    sentis: str,
) -> None:
    """Export a Hugging Face directory to one ONNX file, weights inside."""
    from converters import route
    from converters.export import export_model
    from converters.families.causal_lm import Slots
    from weights_bridge.model_folder import open_model_folder

    chosen = route.choose(model, path)
    output.story(str(chosen))
    if chosen.path == route.OPTIMUM:
        _with_optimum(output, model, out / name, opset, chosen)
        return
    flags = (f"export.opset={opset}", f'export.dtype="{dtype}"', f'export.batch="{batch}"', f'export.sentis="{sentis}"')
    settings = resolve(overrides=(*flags, f"export.argmax={str(argmax).lower()}")).settings.export
    known = open_model_folder(model).architecture
    if family is not None and family != known.family:
        raise StageError(f"{model}: family {known.family}, asked for {family}", hint="`mlx-sentis families` lists them")
    output.story(f"{model}: {known.model_type} as {known.family}; tracing prelude, one layer per kind, norm")
    cache = None if slots is None else Slots(slots, query)
    contract = export_model(model, out / name, settings, out / "contract.json", cache, chosen.as_json())
    size = (out / name).stat().st_size
    facts = {key: contract[key] for key in ("family", "architecture", "opset", "dtype", "batch", "topology_sha256")}
    document = {"model": str(out / name), "contract": str(out / "contract.json"), "bytes": size} | facts
    document["path"] = chosen.as_json()
    text = f"{out / name}: {size / 1e6:.1f} MB, opset {contract['opset']}, {dtype}"
    if dtype == "fp16":
        from converters.explain import HALF

        document["half_weights"] = HALF
        text += f"\nfp16 weights: {HALF}"
    if pt2:
        from converters.pt2 import write_pt2

        made = document["pt2"] = write_pt2(model, (out / name).with_suffix(".pt2"), out / name, contract)
        level = "equal to the ONNX file" if made["psnr_db"] is None else f"{made['psnr_db']} dB from the ONNX file"
        text += (
            f"\n{made['file']}: {made['bytes'] / 1e6:.1f} MB, torch {made['torch']}, {level}; not predicted for Sentis"
        )
    output.answer("export", document, text)


def _with_optimum(output: Output, model: Path, file: Path, opset: int, chosen: Route) -> None:
    """Export with optimum-onnx and say what was checked."""
    from converters.optimum_path import export_with_optimum

    made = export_with_optimum(model, file, opset)
    level = "equal to torch's" if made["psnr_db"] is None else f"{made['psnr_db']} dB from torch's"
    text = (
        f"{file}: {made['bytes'] / 1e6:.1f} MB, opset {made['opset']}, {made['checked']} {level}; no contract, no swap"
    )
    output.answer("export", made | {"path": chosen.as_json()}, text)


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
@click.option("--only", default=None, help="One pass by name.")
@click.option("--fixture", type=PATH, default=None, help="An npz file with in:: arrays to prove equality on.")
@click.option("--bind", multiple=True, metavar="INPUT=NUMBER", help="An input that becomes a constant; repeatable.")
@click.option("--check-each", is_flag=True, help="Prove each place by itself, so that a failure names the node.")
@click.option("--growth", default=0.25, show_default=True, help="What passes may add as constants, of the file's size.")
@click.option("--list", "list_passes", is_flag=True, help="Name the passes in their order.")
@SENTIS
def fix(
    output: Output,
    source: Path | None,
    out: Path | None,
    only: str | None,
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
        raise click.UsageError(f"--bind {text}: wanted INPUT=NUMBER")
    return name, number


def _together(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for all places of which the same is said."""
    from converters.scan.report import one_line

    places: dict[str, list[str]] = {}
    for text, place in pairs:
        places.setdefault(text, []).append(one_line(place))
    shown = ((text, named[:PLACES_SHOWN], len(named) - PLACES_SHOWN) for text, named in places.items())
    return [f"{', '.join(named)}{f' and {more} more' * (more > 0)}: {text}" for text, named, more in shown]


def _fix_text(report: dict[str, Any]) -> str:
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
    return "\n".join(lines)


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
