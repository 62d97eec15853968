"""Gate A0: MLX against torch, forward and backward, on real rendered rows, and the facts that no dB shows.

What is compared, in this order:
1. the prompt contract and the rows' masks, rendered again from the merged directory's own template;
2. the merged directory against base + adapter: configuration and every tensor, exactly;
3. forward: MLX (base + adapter as trained) against torch (merged directory): hidden states by layer, logits;
4. backward: the trainer's own loss (shared prefix, head at labels) against plain torch autograd: the loss, the
   gradient of every adapter tensor and of the input embeddings; on the same prompts with other rows' answers, where
   gradients are large (see `gate_rows.crossed`).
Torch's reference is float64 (see `a0_compare`). Where a direction misses, `a0_miss` says where it begins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parity.a0_compare import Compared, Sides, backward_results, forward_results
from parity.a0_miss import explain_backward, explain_forward, norm_result
from parity.a0_sides import both_sides
from parity.a0_tables import draw_depth
from parity.budgets import Budgets, load_budgets
from parity.gate_request import GateRequest
from parity.gate_rows import choose_rows, crossed
from parity.runners.torch_adapters import norm_of
from weights_bridge.adapter_file import adapter_of, read_adapter
from weights_bridge.compare import Array, GateReport, GateResult
from weights_bridge.files import read_json, read_jsonl, sha256_of
from weights_bridge.merge import merged_tensors
from weights_bridge.model_config import QUANTISED
from weights_bridge.model_folder import ModelFolder, open_base, open_model_folder
from weights_bridge.run_folder import RunFolder, versions
from weights_bridge.settings import ParitySettings

Row = dict[str, Any]
ROWS_RENDERED = 2000
MISS_PLOT = "a0-miss.png"  # agreement by depth, drawn after a miss
NO_MATTER = {  # what a merged directory says in its own way, or what says nothing about the computation
    *("dtype", "torch_dtype", "rope_traditional", "transformers_version", "_name_or_path"),
    *QUANTISED,
}


def measure_a0(run: RunFolder, settings: ParitySettings, which: str | None = None) -> GateReport:
    """Measure gate A0 of a run.

    Args:
        run: a run with a base model, prepared data, a checkpoint and a merged directory.
        settings: how many rows.
        which: the checkpoint, `best`, `last`, `imported` or an update; None for the one that was merged.

    Returns:
        The report; see `numeric_results` for its facts, and `facts["merged_sha256"]` for what it speaks for.

    Raises:
        StageError: a part is missing, or the data was prepared after the training.
    """
    run.require_trained_data()
    base, asked = request_of_run(run, settings, which)
    report = GateReport("a0")
    merged = Path(asked.merged)
    report.facts["merged_sha256"] = {
        path.relative_to(merged).as_posix(): sha256_of(path)
        for path in sorted(merged.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
    report.results += prompt_results(run, read_json(run.path("recipe.json")))
    report.results += bridge_results(base, Path(asked.adapter), merged)
    numeric_results(report, asked, load_budgets(base.config["model_type"]))
    if "each_layer_alone" in report.facts:
        draw_depth(report.as_json(), run.path("parity", "plots", MISS_PLOT))
    return report


def merged_checkpoint(run: RunFolder) -> str:
    """Return which checkpoint lies in `merged/`: the one that the last `bridge` recorded, `best` where none did."""
    entry = run.manifest()["stages"].get("bridge", {})
    return str(entry.get("facts", {}).get("checkpoint", "best"))


def request_of_run(
    run: RunFolder, settings: ParitySettings, which: str | None = None
) -> tuple[ModelFolder, GateRequest]:
    """Return a run's base model and what both sides are asked about it (`which` as in `measure_a0`)."""
    recipe = read_json(run.path("recipe.json"))
    base = open_base(Path(recipe["model"]["path"]))
    window = base.config.get("sliding_window") if base.architecture.sliding else None
    prepared = read_jsonl(run.path("data", "train.jsonl"))
    rows = choose_rows(prepared, settings.fixture_rows, window)
    asked = GateRequest(
        base=str(base.path),
        merged=str(run.path("merged")),
        adapter=str(adapter_of(run.root, which or merged_checkpoint(run))),
        rows=_needed(rows),
        backward_rows=_needed(crossed(rows, prepared[::-1])),
        pad_id=int(recipe["pad_id"]),
        vocabulary=base.config["vocab_size"],
    )
    return base, asked


def _needed(rows: list[Row]) -> list[Row]:
    return [{key: row[key] for key in ("id", "ids", "trained")} for row in rows]


def contract_results(run: RunFolder) -> list[GateResult]:
    """Hold the prompt contract against the trained checkpoint (template, tokenizer, stop ids, padding) and the rows."""
    from mlx_sentis.prepare.checks import check_contract
    from mlx_sentis.prepare.row_checks import turns_result

    path = run.path("prompt_contract.json")
    if not path.is_file():
        return [GateResult("contract", False, "missing", where=path.name, detail="`mlx-sentis prepare` writes it")]
    contract, rows = read_json(path), run.path("data", "train.jsonl")
    shown = turns_result(read_jsonl(rows), contract.get("train_turns", "all")) if rows.is_file() else None
    return check_contract(run.path("merged"), contract) + ([shown] if shown else [])


def prompt_results(run: RunFolder, recipe: dict[str, Any]) -> list[GateResult]:
    """Render prompt contract and training rows again with the merged directory's tokenizer and template.

    All rows up to `ROWS_RENDERED`, evenly chosen ones beyond: a thousand take a second.
    """
    from mlx_sentis.prepare.checks import check_rows

    rows = read_jsonl(run.path("data", "train.jsonl"))
    chosen = rows[:: -(-len(rows) // ROWS_RENDERED)]
    turns = read_json(run.path("prompt_contract.json")).get("train_turns", "all")
    return contract_results(run) + check_rows(chosen, run.path("merged"), recipe, train_turns=turns)


def bridge_results(base: ModelFolder, adapter: Path, merged_path: Path) -> list[GateResult]:
    """Compare the merged directory with base + adapter: configuration keys and every tensor, exactly."""
    merged = open_model_folder(merged_path)
    results = []
    keys = sorted((base.config.keys() | merged.config.keys()) - NO_MATTER)
    for key in keys:
        wanted, found = base.config.get(key), merged.config.get(key)
        if wanted != found:
            detail = f"found {found!r}, wanted {wanted!r}"
            results.append(GateResult(f"merged config {key}", False, "altered", where="config.json", detail=detail))
    found_names = merged.tensor_names()
    equal, names = 0, set()
    for name, wanted in merged_tensors(base, read_adapter(adapter)):
        names.add(name)
        if name not in found_names:
            if not base.architecture.is_dropped(name, base.config):
                results.append(GateResult(f"merged {name}", False, "missing", where=name))
            continue
        found = merged.tensor(name)
        if found.shape == wanted.shape and np.array_equal(found, wanted):
            equal += 1
        else:
            detail = _tensor_detail(name, wanted, found)
            results.append(GateResult(f"merged {name}", False, "altered", where=name, detail=detail))
    results += [GateResult(f"merged {n}", False, "extra", where=n) for n in sorted(found_names.keys() - names)]
    if not results:
        detail = f"{equal} tensors and {len(keys)} configuration keys equal base + adapter"
        results.append(
            GateResult("merged directory", equal > 0, "exact" if equal else "nothing compared", detail=detail)
        )
    return results


def _tensor_detail(name: str, wanted: Array, found: Array) -> str:
    if found.shape != wanted.shape:
        return f"found shape {found.shape}, wanted {wanted.shape}"
    different = int((found != wanted).sum())
    return f"{different} of {wanted.size} values differ from base + adapter, max {np.abs(found - wanted).max():.2e}"


def numeric_results(report: GateReport, asked: GateRequest, budgets: Budgets) -> None:
    """Run both sides and add their verdicts and facts to a report.

    Facts: `rows`, `row_tokens`, `backward_rows`, `versions`, `precision` (device and precision of products by side),
    `adapter_norm`, `columns` (three levels per tensor, see `a0_compare`), `error_by_layer` and `gradients_by_layer` (dB
    by depth), `loss`; after a miss `each_layer_alone` (dB of each layer fed with torch's own activations).
    """
    sides = both_sides(asked)
    forward = forward_results(sides, len(asked.rows), budgets)
    backward = backward_results(sides, len(asked.backward_rows), budgets)
    norm = norm_result(asked, sides, backward, budgets)
    alone: dict[str, Any] = {}
    if forward.failed:
        alone |= explain_forward(asked, sides, forward, budgets)
    if backward.failed:
        alone |= explain_backward(asked, backward, budgets)
    report.results += forward.results + ([norm] if norm else []) + backward.results
    report.facts |= _facts(asked, sides, forward, backward)
    if alone:
        report.facts["each_layer_alone"] = alone


def _facts(asked: GateRequest, sides: Sides, forward: Compared, backward: Compared) -> dict[str, Any]:
    return {
        "rows": [row["id"] for row in asked.rows],
        "row_tokens": [len(row["ids"]) for row in asked.rows],
        "backward_rows": [row["id"] for row in asked.backward_rows],
        "versions": versions(),
        "precision": sides.facts,
        "adapter_norm": norm_of(read_adapter(Path(asked.adapter))),
        "error_by_layer": forward.depth,
        "gradients_by_layer": backward.depth,
        "columns": forward.columns + backward.columns,
        "loss": {"mlx": float(sides.mlx["loss"]), "torch": float(sides.fp64["loss"])},
    }
