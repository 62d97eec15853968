"""Tuned weights into the proven graph: the initialisers change, nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from converters import families, onnx_file, onnx_writer
from converters.weights import check_fit, fill
from weights_bridge.errors import BudgetMissedError, StageError, all_at_once
from weights_bridge.files import read_json, sha256_of
from weights_bridge.model_folder import ModelFolder, open_model_folder
from weights_bridge.run_folder import RunFolder

GATE_HINT = "run `mlx-sentis bridge` on this run, or swap with --ungated (recorded in the manifest)"


def swap_weights(base_onnx: Path, contract: dict[str, Any], merged: Path, out: Path) -> dict[str, Any]:
    """Write the base graph with the weights of another checkpoint of the same architecture.

    Args:
        base_onnx: the exported graph.
        contract: its contract.json.
        merged: a Hugging Face directory in torch layout.
        out: the file to write; equal, byte for byte, to an export of `merged`.

    Returns:
        `{"initialisers": count, "tensors_left_out": names, "topology_sha256": hash}`.

    Raises:
        StageError: the graph is not the contract's, or the directory does not fit it (all mismatches at once).
    """
    model = onnx_file.read_skeleton(base_onnx).model
    if (found := onnx_file.topology_sha256(model)) != (wanted := contract["topology_sha256"]):
        what = f"{base_onnx}: topology {found[:12]}…, contract.json says {wanted[:12]}…"
        raise StageError(what, hint="export the base model again: graph and contract belong together")
    folder = open_model_folder(merged)
    _check_constants(folder, contract)
    sources = contract["initialisers"]
    left = check_fit(folder, model, sources)
    for tensor in model.graph.initializer:
        if tensor.name in sources:
            tensor.ClearField("raw_data")
    onnx_writer.write_model(out, model, fill(folder, model, sources))
    written = onnx_file.topology_sha256(onnx_file.read_skeleton(out).model)
    if written != wanted:
        out.unlink()
        raise StageError(f"{out}: the written graph is not the base graph", hint="run the swap again")
    return {"initialisers": len(sources), "tensors_left_out": left, "topology_sha256": wanted}


def _check_constants(folder: ModelFolder, contract: dict[str, Any]) -> None:
    """Shapes cannot tell a rotary base or a norm's epsilon apart, and both are baked into the graph."""
    constants = families.get(folder.architecture.family).constants(folder)
    faults = [
        f"{key}: found {constants.get(key)}, the graph has {value}"
        for key, value in contract["constants"].items()
        if constants.get(key) != value
    ]
    if folder.architecture.model_type != contract["architecture"]:
        faults.append(f"architecture: found {folder.architecture.model_type}, the graph is {contract['architecture']}")
    if faults:
        hint = "the tuned checkpoint must have the base model's config.json"
        raise all_at_once(f"{folder.path}/config.json does not fit the graph:", faults, hint=hint)


def swap_run(run: RunFolder, *, ungated: bool = False) -> dict[str, Any]:
    """Swap the merged weights of a run into its base graph and record the stage.

    Args:
        run: with `onnx/base.onnx`, `onnx/contract.json`, `merged/` and `parity/a0.json`.
        ungated: go on without a passed gate A0; the manifest says so.

    Returns:
        The facts of `swap_weights`, with `model` and `ungated`.

    Raises:
        BudgetMissedError: gate A0 has not passed for these weights.
        StageError: an input is missing, altered, or does not fit; the data was prepared after the training.
    """
    run.require_trained_data()
    base, contract = run.path("onnx", "base.onnx"), run.path("onnx", "contract.json")
    merged, gate = run.path("merged"), run.path("parity", "a0.json")
    if not ungated:
        check_gate(merged, gate)
    inputs = [base, contract, merged, *([gate] if gate.is_file() else [])]
    if not ungated and (changed := run.altered([merged, gate])):
        names = ", ".join(result.where for result in changed[:3])
        raise BudgetMissedError(
            f"gate A0 has not passed for these weights: {names} changed since they were recorded", hint=GATE_HINT
        )
    out = run.path("onnx", "model.onnx")
    with run.stage("swap", inputs) as stage:
        facts = swap_weights(base, read_json(contract), merged, out)
        stage.facts |= facts | {"ungated": ungated}
        stage.wrote(out)
    return facts | {"model": str(out), "ungated": ungated}


def check_gate(merged: Path, gate: Path) -> None:
    """Require that gate A0 passed on exactly these files.

    Raises:
        BudgetMissedError: no verdict, a failed one, or one on other weights; the reason is named.
    """
    why = _gate_fault(merged, gate)
    if why:
        raise BudgetMissedError(f"gate A0 has not passed for these weights: {why}", hint=GATE_HINT)


def _gate_fault(merged: Path, gate: Path) -> str:
    if not gate.is_file():
        return f"{gate} is not there"
    report = read_json(gate)
    if not isinstance(report, dict) or report.get("passed") is not True:
        return f"{gate} says it failed"
    measured = (report.get("facts") or {}).get("merged_sha256")
    if not measured:
        return f"{gate} does not say which files it measured"
    now = {
        file.relative_to(merged).as_posix(): sha256_of(file)
        for file in sorted(merged.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }
    changed = sorted(name for name in measured.keys() | now.keys() if measured.get(name) != now.get(name))
    return f"it was measured on other files: {', '.join(changed[:3])} changed since" if changed else ""
