"""`bench export`: our export against the stock exporter on the whole model at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender, run_rival
from benchmarks.result import Bench, Budget, Figures, Table, ratio
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
    "decode_tokens_per_second": "decode tok/s",
    "not_measured": "",
}
LAYER_COLUMNS = {"layer": "predicted Sentis layer", "ours": "ours", "stock": "stock exporter"}


def measure(asked: Asked) -> Bench:
    """Export with both, each in its own process, and compare the two graphs' logits in ONNX Runtime."""
    model = asked.model or REAL_MODEL
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        ours_file, stock_file, contract = (str(Path(work) / n) for n in ("ours.onnx", "stock.onnx", "contract.json"))
        cut = run_contender("reduced_model", model=model, layers=0 if asked.full else LAYERS, out=f"{work}/model")
        asked.say(f"export: ours, {cut['layers']} of {cut['of']} layers")
        ours = run_contender("export_ours", model=cut["path"], graph=ours_file, contract=contract)
        asked.say("export: stock torch.onnx.export")
        stock = run_rival("export_stock", model=cut["path"], graph=stock_file)
        agreement, decoding = None, None
        if "not_measured" not in stock:
            asked.say("export: comparing the two graphs")
            agreement = run_contender("export_agreement", graph=ours_file, reference=stock_file, contract=contract)
            asked.say("export: both decode in turn")
            files = [ours_file, stock_file]
            decoding = run_contender("decode_graphs", graphs=files, contract=contract, runs=asked.runs or TURNS)
    return report(model, cut, ours, stock, agreement, decoding)


def report(
    model: str,
    cut: Figures,
    ours: Figures,
    stock: Figures,
    agreement: Figures | None,
    decoding: Figures | None = None,
) -> Bench:
    """Return the benchmark of both exporters' figures.

    Args:
        model: its name.
        cut: `layers` that were exported, `of` how many.
        ours: seconds, megabytes, nodes, peak_memory_gib.
        stock: the same, or `not_measured`.
        agreement: `logits_db` (None when equal), or None when there was nothing to compare.
        decoding: `graphs` with tokens per second and predicted layers of both; None where it was not measured.
    """
    rows: list[Figures] = [{"exporter": "ours"} | ours, {"exporter": "torch.onnx.export(dynamo=True)"} | stock]
    for row in rows:
        row["over_ours"] = ratio(row.get("seconds"), ours["seconds"])
    if decoding is not None:
        for row, graph in zip(rows, decoding["graphs"], strict=True):
            row |= {key: figure for key, figure in graph.items() if key != "layers"}
    whole = cut["layers"] == cut["of"]
    layers = f"all {cut['of']} layers" if whole else f"its first {cut['layers']} of {cut['of']} layers"
    bench = Bench("export", f"{model}, {layers}, fp32, flat K/V, one run", {"exporters": Table(COLUMNS, rows)})
    bench.facts = {"layers": cut["layers"], "of_layers": cut["of"]}
    if decoding is not None:
        found = (row.get("layers") or {} for row in decoding["graphs"])
        bench.tables["predicted"] = Table(LAYER_COLUMNS, predicted(*found))
    if agreement is not None:
        level, limit = agreement["logits_db"], load_budgets("default").edge_a_db
        label = "logits, ours against stock"
        detail = f"{agreement['tokens']} tokens in ONNX Runtime"
        bench.budgets.append(Budget(label, level, limit, "dB", at_most=False, exact=level is None, detail=detail))
    if decoding is not None:
        rates, layers = ([row[key] for row in rows] for key in ("decode_tokens_per_second", "sentis_layers"))
        label = f"decode behind {decoding['prompt']} tokens, ours over stock"
        bench.budgets.append(Budget(label, ratio(*rates), 1.0, "×", at_most=False))
        if None not in layers:
            bench.budgets.append(Budget("predicted Sentis layers, ours over stock", ratio(*layers), 1.0, "×"))
    if whole and "not_measured" not in stock:
        bench.budgets += [
            Budget("the stock exporter's time over ours", ratio(stock["seconds"], ours["seconds"]), FASTER, "×", False),
            Budget("our peak over the file", ratio(ours["peak_memory_gib"] * 2**30, ours["megabytes"] * 1e6), 3.0, "×"),
            Budget("nodes, ours over stock", ratio(ours["nodes"], stock["nodes"]), 1.0, "×"),
        ]
    if not whole:
        bench.notes.append("the stock exporter's time grows with the layers, ours hardly: --full exports all of them")
    return bench


def predicted(ours: dict[str, int], stock: dict[str, int]) -> list[Figures]:
    """Return the layers that Sentis makes of both graphs, one row a kind, the greatest difference first."""
    kinds = sorted(ours.keys() | stock.keys(), key=lambda kind: (-abs(stock.get(kind, 0) - ours.get(kind, 0)), kind))
    rows: list[Figures] = [{"layer": kind, "ours": ours.get(kind, 0), "stock": stock.get(kind, 0)} for kind in kinds]
    if rows:
        rows.append({"layer": "all", "ours": sum(ours.values()), "stock": sum(stock.values())})
    return rows
