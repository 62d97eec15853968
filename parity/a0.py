"""Gate A0: MLX against torch, forward and backward, on real rendered rows, and the facts that no dB shows.

What is compared, in this order:
1. the prompt contract and the rows' masks, rendered again from the merged directory's own template;
2. the merged directory against base + adapter: configuration and every tensor, exactly;
3. forward: MLX (base + adapter as trained) against torch (merged directory): hidden states by layer, logits;
4. backward: the trainer's own loss (shared prefix, head at labels) against plain torch autograd in float64: the
   loss, the gradient of every adapter tensor and of the input embeddings; on the same prompts with other rows'
   answers, where gradients are large (see `gate_rows.crossed`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.budgets import Budgets, load_budgets
from parity.children import run_child
from parity.gate_request import GateRequest
from parity.gate_rows import choose_rows, crossed
from weights_bridge.adapter_file import read_adapter
from weights_bridge.compare import Array, GateReport, GateResult, compare
from weights_bridge.files import read_json, read_jsonl, sha256_of
from weights_bridge.merge import merged_tensors
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.run_folder import RunFolder, versions
from weights_bridge.settings import ParitySettings

Row = dict[str, Any]
ROWS_RENDERED = 2000
NUMERIC_KEYS = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "rope_local_base_freq", "rope_scaling"),
    *("sliding_window", "sliding_window_pattern", "layer_types", "hidden_act", "hidden_activation"),
    *("query_pre_attn_scalar", "tie_word_embeddings", "attention_bias", "mlp_bias"),
)


def measure_a0(run: RunFolder, settings: ParitySettings, which: str = "best") -> GateReport:
    """Measure gate A0 of a run.

    Args:
        run: a run with a base model, prepared data, a checkpoint and a merged directory.
        settings: how many rows.
        which: the checkpoint, `best`, `last` or an update.

    Returns:
        The report; `facts["error_by_layer"]` holds dB by depth, `facts["merged_sha256"]` what it speaks for.

    Raises:
        StageError: a part is missing, or the data was prepared after the training.
    """
    from mlx_sentis.training.checkpoints import adapter_of

    run.require_trained_data()
    recipe = read_json(run.path("recipe.json"))
    base, merged = open_model_folder(Path(recipe["model"]["path"])), run.path("merged")
    adapter = adapter_of(run.root, which)
    window = base.config.get("sliding_window") if base.architecture.sliding else None
    prepared = read_jsonl(run.path("data", "train.jsonl"))
    rows = choose_rows(prepared, settings.fixture_rows, window)
    backward_rows = crossed(rows, prepared[::-1])
    report = GateReport("a0")
    report.facts |= {"rows": [row["id"] for row in rows], "row_tokens": [len(row["ids"]) for row in rows]}
    report.facts["backward_rows"] = [row["id"] for row in backward_rows]
    report.facts["merged_sha256"] = {p.name: sha256_of(p) for p in sorted(merged.iterdir()) if p.is_file()}
    report.facts["versions"] = versions()
    report.results += prompt_results(run, recipe)
    report.results += bridge_results(base, adapter, merged)
    mlx, torch = both_sides(base, merged, adapter, (rows, backward_rows), int(recipe["pad_id"]))
    budgets = load_budgets(base.config["model_type"])
    forward, depth = forward_results(mlx, torch, len(rows), budgets)
    report.results += forward
    report.results += backward_results(mlx, torch, len(backward_rows), budgets)
    report.facts["error_by_layer"] = depth
    report.facts["loss"] = {"mlx": float(mlx["loss"]), "torch": float(torch["loss"])}
    return report


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
    """Compare the merged directory with base + adapter: numeric configuration keys and every tensor, exactly."""
    merged = open_model_folder(merged_path)
    results = []
    for key in NUMERIC_KEYS:
        wanted, found = base.config.get(key), merged.config.get(key)
        if wanted != found:
            detail = f"found {found!r}, wanted {wanted!r}"
            results.append(GateResult(f"merged config {key}", False, "altered", where="config.json", detail=detail))
    found_names = merged.tensor_names()
    equal, names = 0, set()
    for name, wanted in merged_tensors(base, read_adapter(adapter)):
        names.add(name)
        if name not in found_names:
            if name != "lm_head.weight":
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
        detail = f"{equal} tensors and {len(NUMERIC_KEYS)} configuration keys equal base + adapter"
        results.append(
            GateResult("merged directory", equal > 0, "exact" if equal else "nothing compared", detail=detail)
        )
    return results


def _tensor_detail(name: str, wanted: Array, found: Array) -> str:
    if found.shape != wanted.shape:
        return f"found shape {found.shape}, wanted {wanted.shape}"
    different = int((found != wanted).sum())
    return f"{different} of {wanted.size} values differ from base + adapter, max {np.abs(found - wanted).max():.2e}"


def both_sides(
    base: ModelFolder, merged: Path, adapter: Path, rows: tuple[list[Row], list[Row]], pad_id: int
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Run MLX and torch, each in its own process, on (forward rows, backward rows); return what they wrote."""
    forward, backward = ([{key: row[key] for key in ("id", "ids", "trained")} for row in some] for some in rows)
    answers = []
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-a0-") as work:
        for side in ("mlx", "torch"):
            out = Path(work) / f"{side}.npz"
            request = GateRequest(
                base=str(base.path),
                merged=str(merged),
                adapter=str(adapter),
                rows=forward,
                backward_rows=backward,
                pad_id=pad_id,
                vocabulary=base.config["vocab_size"],
                out=str(out),
            )
            run_child(f"parity.runners.{side}_gate", request.as_json(), Path(work) / f"{side}.json")
            with np.load(out) as npz:
                answers.append({name: npz[name] for name in npz.files})
    return answers[0], answers[1]


def forward_results(
    mlx: Mapping[str, Array], torch: Mapping[str, Array], rows: int, budgets: Budgets
) -> tuple[list[GateResult], dict[str, dict[str, float | None]]]:
    """Compare hidden states and logits of each row; the first layer over budget is what the logits point at.

    Returns:
        The results, and dB by depth for each row.
    """
    results: list[GateResult] = []
    depth: dict[str, dict[str, float | None]] = {}
    for index in range(rows):
        first_bad = ""
        levels: dict[str, float | None] = {}
        layers = sum(1 for name in mlx if name.startswith(f"row{index}/hidden"))
        for k in range(layers):
            label = "embeddings" if k == 0 else f"layer {k - 1}"
            wanted, found = in_token_units(torch[f"row{index}/hidden{k}"], mlx[f"row{index}/hidden{k}"])
            result = compare(f"forward row {index} {label}", wanted, found, budgets.forward_db, where=label)
            first_bad = first_bad or ("" if result.passed else label)
            levels[label] = result.psnr_db
            results.append(result)
        key = f"row{index}/logits"
        where = first_bad or "head"
        results.append(compare(f"forward row {index} logits", torch[key], mlx[key], budgets.forward_db, where=where))
        levels["logits"] = results[-1].psnr_db
        depth[f"A0 row {index}"] = levels
    return results, depth


def in_token_units(reference: Array, candidate: Array) -> tuple[Array, Array]:
    """Divide both hidden states [T, H] by the root mean square of each reference token.

    Decoders park activations a thousand times the rest on the first token; against that peak a wrong layer would
    still read well, and the place would not be named.
    """
    scale = np.sqrt(np.mean(np.square(reference, dtype=np.float64), axis=-1, keepdims=True))
    unit = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0).astype(reference.dtype)
    return reference / unit, candidate / unit


def backward_results(
    mlx: Mapping[str, Array], torch: Mapping[str, Array], rows: int, budgets: Budgets
) -> list[GateResult]:
    """Compare the loss and every gradient."""
    results = [compare("backward loss", torch["loss"], mlx["loss"], budgets.backward_db, where="loss")]
    names = {n for n in {*mlx, *torch} if n.startswith("grad/") and not n.startswith("grad/embeddings/")}
    for name in sorted(names):
        short = name.removeprefix("grad/")
        if name in mlx and name in torch:
            results.append(compare(f"backward {short}", torch[name], mlx[name], budgets.backward_db, where=short))
        else:
            reason = "missing" if name in torch else "extra"
            results.append(GateResult(f"backward {short}", False, reason, where=short))
    return results + embedding_results(mlx, torch, rows, budgets)


def embedding_results(
    mlx: Mapping[str, Array], torch: Mapping[str, Array], rows: int, budgets: Budgets
) -> list[GateResult]:
    """Compare the gradients of the input embeddings; the shared prefix's is the sum over torch's rows."""
    prefix = mlx.get("grad/embeddings/prefix")
    shared = 0 if prefix is None else prefix.shape[0]
    results = []
    if prefix is not None:
        summed = np.sum([torch[f"grad/embeddings/row{i}"][:shared] for i in range(rows)], axis=0)
        label = f"backward embeddings of the shared prefix ({shared} tokens)"
        results.append(compare(label, summed, prefix, budgets.backward_db, where="embeddings"))
    for i in range(rows):
        key = f"grad/embeddings/row{i}"
        label = f"backward embeddings of row {i}"
        results.append(compare(label, torch[key][shared:], mlx[key], budgets.backward_db, where="embeddings"))
    return results
