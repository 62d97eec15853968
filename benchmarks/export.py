"""`bench export`: our export against the stock exporter on the whole model at once, and optimum-onnx where given."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender, run_rival
from benchmarks.result import Bench, Budget, Figures, Table, ratio
from converters.optimum_python import require_optimum
from parity.budgets import load_budgets

TURNS = 5
FASTER = 10.0  # times, on all of SmolLM2's layers; what both import is loaded before either clock starts
LAYERS = 4  # the stock exporter takes 6 minutes for SmolLM2's 30
COLUMNS = {
    "exporter": "exporter",
    "seconds": "seconds",
    "over_ours": "× ours",
    "peak_memory_gib": "peak GiB",
    "megabytes": "MB",
    "nodes": "nodes",
    "sentis_layers": "Sentis layers",
    "findings": "scan findings",
    "decode_tokens_per_second": "decode tok/s",
    "not_measured": "",
}
NAMES = {"ours": "ours", "stock": "torch.onnx.export(dynamo=True)", "optimum": "optimum-onnx"}
SHORT = {"ours": "ours", "stock": "stock exporter", "optimum": "optimum-onnx"}


def measure(asked: Asked) -> Bench:
    """Export with each, all in processes of their own, and compare the graphs' logits in ONNX Runtime."""
    model, python = asked.model or REAL_MODEL, asked.optimum_python
    if python:
        require_optimum(python)  # before the minutes of the others
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        ours_file, stock_file, contract = (str(Path(work) / n) for n in ("ours.onnx", "stock.onnx", "contract.json"))
        cut = run_contender("reduced_model", model=model, layers=0 if asked.full else LAYERS, out=f"{work}/model")
        asked.say(f"export: ours, {cut['layers']} of {cut['of']} layers")
        sides = {"ours": run_contender("export_ours", model=cut["path"], graph=ours_file, contract=contract)}
        asked.say("export: stock torch.onnx.export")
        sides["stock"] = run_rival("export_stock", model=cut["path"], graph=stock_file)
        if python:
            asked.say("export: optimum-onnx")
            sides["optimum"] = run_rival("export_optimum", model=cut["path"], folder=f"{work}/optimum", python=python)
        files = {"ours": ours_file, "stock": stock_file, "optimum": sides.get("optimum", {}).pop("graph", "")}
        files = {form: files[form] for form, side in sides.items() if "not_measured" not in side}
        agreements: dict[str, Figures] = {}
        for form in list(files)[1:]:
            asked.say(f"export: comparing our graph with {NAMES[form]}'s")
            given = {"graph": ours_file, "reference": files[form], "contract": contract, "form": form}
            agreements[form] = run_rival("export_agreement", **given)
            if "not_measured" in agreements[form]:
                del files[form]
        decoding = None
        if len(files) > 1:
            asked.say("export: all decode in turn")
            decoding = run_contender("decode_graphs", graphs=files, contract=contract, runs=asked.runs or TURNS)
    return report(model, cut, sides, agreements, decoding)


def report(
    model: str,
    cut: Figures,
    sides: dict[str, Figures],
    agreements: dict[str, Figures],
    decoding: Figures | None = None,
) -> Bench:
    """Return the benchmark of all exporters' figures.

    Args:
        model: its name.
        cut: `layers` that were exported, `of` how many.
        sides: `ours`, `stock` and, where it was asked for, `optimum` to seconds, megabytes, nodes, peak_memory_gib; of
            a rival also `not_measured` instead.
        agreements: rival to `logits_db` (None when equal) or `not_measured`, of those that wrote a graph.
        decoding: `graphs`, side to tokens per second and predicted layers; None where it was not measured.
    """
    graphs: dict[str, Figures] = decoding["graphs"] if decoding is not None else {}
    rows = {side: row_of(side, figures, graphs.get(side, {}), sides["ours"]) for side, figures in sides.items()}
    whole = cut["layers"] == cut["of"]
    layers = f"all {cut['of']} layers" if whole else f"its first {cut['layers']} of {cut['of']} layers"
    tables = {"exporters": Table(COLUMNS, list(rows.values()))}
    bench = Bench("export", f"{model}, {layers}, fp32, flat K/V, one run", tables)
    bench.facts = {"layers": cut["layers"], "of_layers": cut["of"]}
    if "versions" in sides.get("optimum", {}):
        bench.facts["optimum_versions"] = sides["optimum"]["versions"]
    if graphs:
        columns = {"layer": "predicted Sentis layer"} | {side: SHORT[side] for side in graphs}
        bench.tables["predicted"] = Table(columns, predicted({side: row["layers"] for side, row in graphs.items()}))
        bench.facts["findings"] = {side: row["found"] for side, row in graphs.items()}
    bench.budgets += agreement_budgets(agreements)
    if decoding is not None:
        bench.budgets += decode_budgets(rows, decoding["prompt"])
    elif why := sides.get("optimum", {}).get("not_measured"):
        bench.budgets.append(Budget("decode, ours over optimum-onnx", None, 1.0, "×", at_most=False, detail=why))
    if whole and "not_measured" not in sides["stock"]:
        bench.budgets += whole_budgets(sides["ours"], sides["stock"])
    if not whole:
        bench.notes.append("the stock exporter's time grows with the layers, ours hardly: --full exports all of them")
    return bench


def row_of(side: str, figures: Figures, graph: Figures, ours: Figures) -> Figures:
    """Return a row of the table: what an exporter took, and what its graph does."""
    counted = {key: figure for key, figure in graph.items() if key not in ("layers", "found")}
    taken = {key: figure for key, figure in figures.items() if key != "versions"}
    return {"exporter": NAMES[side]} | taken | counted | {"over_ours": ratio(figures.get("seconds"), ours["seconds"])}


def agreement_budgets(agreements: dict[str, Figures]) -> list[Budget]:
    """Return what holds our logits against each rival's."""
    limit, found = load_budgets("default").edge_a_db, []
    for side, one in agreements.items():
        label, level = f"logits, ours against {SHORT[side]}", one.get("logits_db")
        if why := one.get("not_measured"):
            found.append(Budget(label, None, limit, "dB", at_most=False, detail=why))
            continue
        detail = f"{one['tokens']} tokens in ONNX Runtime"
        found.append(Budget(label, level, limit, "dB", at_most=False, exact=level is None, detail=detail))
    return found


def decode_budgets(rows: dict[str, Figures], prompt: int) -> list[Budget]:
    """Return what holds our graph's rate and predicted layers against each rival's; a rival without is not measured."""
    ours, found = rows["ours"], []
    for side, row in rows.items():
        if side == "ours" or (side == "stock" and "not_measured" in row):
            continue
        label = f"decode behind {prompt} tokens, ours over {SHORT[side]}"
        rate = ratio(ours["decode_tokens_per_second"], row.get("decode_tokens_per_second"))
        found.append(Budget(label, rate, 1.0, "×", at_most=False, detail=row.get("not_measured", "")))
        layers = ratio(ours["sentis_layers"], row.get("sentis_layers"))
        if layers is not None:
            found.append(Budget(f"predicted Sentis layers, ours over {SHORT[side]}", layers, 1.0, "×"))
    return found


def whole_budgets(ours: Figures, stock: Figures) -> list[Budget]:
    """Return what only the whole model is held against."""
    return [
        Budget("the stock exporter's time over ours", ratio(stock["seconds"], ours["seconds"]), FASTER, "×", False),
        Budget("our peak over the file", ratio(ours["peak_memory_gib"] * 2**30, ours["megabytes"] * 1e6), 3.0, "×"),
        Budget("nodes, ours over stock", ratio(ours["nodes"], stock["nodes"]), 1.0, "×"),
    ]


def predicted(layers: dict[str, dict[str, int]]) -> list[Figures]:
    """Return the layers that Sentis makes of each graph, one row a kind, the greatest difference first."""
    every = {kind for of in layers.values() for kind in of}
    counts = {kind: [of.get(kind, 0) for of in layers.values()] for kind in every}
    kinds = sorted(counts, key=lambda kind: (min(counts[kind]) - max(counts[kind]), kind))
    rows: list[Figures] = [{"layer": kind} | dict(zip(layers, counts[kind], strict=True)) for kind in kinds]
    if rows:
        rows.append({"layer": "all"} | {side: sum(of.values()) for side, of in layers.items()})
    return rows
