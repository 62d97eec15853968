"""`bridge` as a stage: merge the adapter, write the Hugging Face directory, end with gate A0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weights_bridge.adapter_file import adapter_of, read_adapter
from weights_bridge.compare import GateReport
from weights_bridge.errors import BudgetMissedError
from weights_bridge.files import read_json, write_json
from weights_bridge.merge import require_base, write_merged
from weights_bridge.model_folder import open_base
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import ParitySettings


def merge_run(run: RunFolder, which: str = "best", dtype: str = "fp32") -> dict[str, Any]:
    """Merge a run's adapter into its base weights and write `merged/`.

    Args:
        run: with `recipe.json` and `checkpoints/`.
        which: the checkpoint, `best`, `last` or an update.
        dtype: of the merged weights.

    Returns:
        Which checkpoint, how many modules, the size in bytes, how much of the adapter's effect was kept.

    Raises:
        StageError: no such checkpoint, or the data was prepared after the training.
    """
    run.require_trained_data()
    recipe = read_json(run.path("recipe.json"))
    base, adapter = open_base(Path(recipe["model"]["path"])), adapter_of(run.root, which)
    with run.stage("bridge", [*base.weight_files(), adapter.resolve(), run.path("recipe.json")]) as stage:
        found = read_adapter(adapter)
        require_base(base, found)
        effect = write_merged(base, found, run.path("merged"), recipe["stop_ids"], template_of(recipe), dtype)
        stage.wrote(run.path("merged"))
        size = sum(file.stat().st_size for file in run.path("merged").iterdir())
        stage.facts |= {"checkpoint": adapter.resolve().parent.name, "modules": len(found.modules), "bytes": size}
        stage.facts |= {"dtype": dtype, "effect": effect.as_json()}
        stage.facts |= {"quantised": found.facts.get("quantised", "no"), "packed_base": base.origin == "mlx"}
    return stage.facts


def copy_merged(run: RunFolder, precision: str, out: Path) -> dict[str, Any]:
    """Write a run's merged model once more in fewer bits; the library it is for opens it before it is called done.

    Args:
        run: bridged, with a passed gate A0.
        precision: one of `merged_copy.PRECISIONS`.
        out: the directory to make.

    Returns:
        Precision, bytes, how much of the adapter's effect is kept, who opened it.

    Raises:
        StageError: gate A0 has not passed for the merged model, or too little of the adapter would be left.
    """
    from converters.swap import check_gate
    from parity.a0 import merged_checkpoint
    from parity.adapters_in_out import base_of, opened_before_done, require_own_place
    from weights_bridge.merged_copy import PACKED, write_merged_copy

    base = base_of(run)
    require_own_place(out, "config.json", [base.path], run)
    gate = run.path("parity", "a0.json")
    check_gate(run.path("merged"), gate)
    run.require_unaltered("--precision", [gate, run.path("merged"), run.path("recipe.json")])
    which, recipe = merged_checkpoint(run), read_json(run.path("recipe.json"))
    found = read_adapter(adapter_of(run.root, which))
    require_base(base, found)
    with opened_before_done(out, "mlx-lm" if precision in PACKED else "transformers", base) as (made, opened):
        effect = write_merged_copy(base, found, made, precision, recipe["stop_ids"], template_of(recipe))
    size = sum(file.stat().st_size for file in out.iterdir())
    return {
        "precision": precision,
        "out": str(out),
        "checkpoint": which,
        "bytes": size,
        "effect": effect.as_json(),
    } | opened


def template_of(recipe: dict[str, Any]) -> Path | None:
    """Return the template's file where it took the place of the model's own."""
    return Path(recipe["template"]["file"]) if recipe["template"]["source"] == "--template" else None


def gate_a0(run: RunFolder, settings: ParitySettings, which: str = "best") -> GateReport:
    """Measure gate A0 and write `parity/a0.json`, passed or not.

    Raises:
        BudgetMissedError: something lies outside its budget; the worst results are named.
    """
    from parity.a0 import measure_a0

    inputs = [run.path("merged"), run.path("data"), run.path("prompt_contract.json")]
    with run.stage("a0", inputs) as stage:
        report = measure_a0(run, settings, which)
        write_json(run.path("parity", "a0.json"), report.as_json())
        stage.wrote(run.path("parity", "a0.json"))
        stage.facts |= {"passed": report.passed, "worst_forward_db": report.worst_db("forward")}
        stage.facts |= {"worst_backward_db": report.worst_db("backward")}
    require(report, "gate A0", "see parity/a0.json; `mlx-sentis parity RUN --edge a0` measures again")
    return report


def require(report: GateReport, name: str, hint: str) -> None:
    """Turn a failed report into exit 3 with its first failures.

    Raises:
        BudgetMissedError: when anything failed.
    """
    if report.passed:
        return
    failures = report.failures
    lines = "".join(f"\n  {result}" for result in failures[:5])
    more = f"\n  … and {len(failures) - 5} more" if len(failures) > 5 else ""
    raise BudgetMissedError(f"{name} missed: {len(failures)} of {len(report.results)} checks{lines}{more}", hint=hint)


def bridge_run(run: RunFolder, settings: ParitySettings, which: str, say: Callable[[str], None]) -> GateReport:
    """Merge, gate, and let mlx-lm's own loader open what was merged; transformers has opened it for the gate."""
    from parity.adapters_in_out import reopen

    facts = merge_run(run, which)
    say(
        f"merged {facts['modules']} modules of checkpoint {facts['checkpoint']} into {facts['bytes'] / 1e6:.1f} MB "
        f"{facts['dtype']}, which keep {facts['effect']['kept']:.2%} of the adapter's effect"
    )
    if facts["packed_base"]:
        say("the base is packed: its weights were dequantised in fp32, as they were trained on, before the merge")
    if facts["quantised"] != "no":
        say("trained on quantised weights and merged into the full ones: the gates and eval measure what is shipped")
    report = gate_a0(run, settings, which)
    reopen(run.path("merged"), "mlx-lm")
    return report
