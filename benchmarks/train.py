"""`bench train`: one update of our step, of mlx-lm's own loop and of a torch loop, case by case.

Nothing is timed before loss and gradients agree: on the model's first layers every contender's first loss must be
equal, and our gradients must be those of the plain step.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.asked import REAL_MODEL, Asked
from benchmarks.contender import run_contender, run_rival
from benchmarks.result import Bench, Budget, Figures, Table, ratio
from benchmarks.train_cases import Case, all_rows, cases
from benchmarks.turns import in_turn
from weights_bridge.errors import BudgetMissedError
from weights_bridge.files import read_json, write_json
from weights_bridge.run_folder import versions

RUNS, ROWS = 3, 4
LEAST_LAYERS = 2  # of the model, for parity and curves
LOSS_APART = 1e-3  # nats; equal rows, labels and weights give every contender the same first loss
LINEAR = 1.5  # times: the dearest token of the curve over the cheapest one, from 1,024 tokens on
FLAT = 1.5  # times: the head's peak with 2¹⁸ ids over the one with 2¹⁵
CONTENDERS = {"ours": "train_ours", "mlx-lm, its own loop": "train_mlx_lm", "torch loop": "train_torch"}
COLUMNS = {
    "case": "case",
    "contender": "contender",
    "device": "device",
    "seconds_per_step": "s per step",
    "rows_per_second": "rows/s",
    "ours_over": "ours ×",
    "core_seconds_per_step": "core s",
    "computed_tokens": "computed tokens",
    "trained_tokens": "supervised",
    "utilisation": "of peak",
    "elementwise_share": "elementwise",
    "drift": "last / first",
    "peak_memory_gib": "peak GiB",
    "first_loss": "first loss",
    "load": "load",
    "not_measured": "",
}


def measure(asked: Asked) -> Bench:
    """Measure every contender on every case, each in its own process, one step of each in turn.

    Raises:
        BudgetMissedError: losses or gradients do not agree; nothing was timed.
        StageError: our own step cannot run.
    """
    model, runs = asked.model or REAL_MODEL, asked.runs or RUNS
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        whole = run_contender("reduced_model", model=model, layers=0, out=f"{work}/whole")
        config = read_json(Path(whole["path"]) / "config.json")
        cut = run_contender("reduced_model", model=model, layers=first_layers(config), out=f"{work}/cut")
        gemma = config["model_type"].startswith("gemma3")
        rows = asked.rows or (all_rows(gemma) if asked.full else ROWS)
        wanted = [case for case in cases(gemma) if asked.case in (None, case.name)]
        proofs = [require_parity(asked, case, cut["path"]) for case in wanted]
        peak = run_contender("blas_product", fast=True, size=1024, runs=5)
        found = []
        for case in wanted:
            arguments = {"model": whole["path"], "case": case.name, "rows": rows, "runs": runs}
            found += measured(asked, case, arguments, Path(work))
        asked.say("train: curves")
        curves = run_contender("train_curves", model=cut["path"], runs=runs)
    bench = report(model, rows, runs, wanted, found, peak, full=asked.full)
    bench.tables["parity"] = Table(
        {"case": "case", "worst": "gradients apart", "floor": "floor", "limit": "limit"}, proofs
    )
    add_curves(bench, curves)
    if asked.out is not None:
        write(bench, asked.out)
    return bench


def first_layers(config: Figures) -> int:
    """Return how many layers parity needs: all kinds of attention among them, up to the first full one.

    Args:
        config: the model's `config.json`.
    """
    kinds = config.get("layer_types") or []
    return max(LEAST_LAYERS, kinds.index("full_attention") + 1 if "full_attention" in kinds else 0)


def require_parity(asked: Asked, case: Case, cut: str) -> Figures:
    """Return the proof of a case on the cut model.

    Raises:
        BudgetMissedError: the gradients or a contender's first loss are not ours.
    """
    asked.say(f"train: {case.name}, parity")
    proof = run_contender("train_parity", model=cut, case=case.name, rows=ROWS)
    faults = [] if proof["passed"] else [f"gradients differ by {proof['worst']:.1e} at {proof['parameter']}"]
    losses = {
        label: run_rival(module, model=cut, case=case.name, rows=ROWS, runs=1).get("first_loss")
        for label, module in CONTENDERS.items()
    }
    faults += [
        f"{label}: first loss {loss}, ours {losses['ours']}"
        for label, loss in losses.items()
        if loss is not None and abs(loss - losses["ours"]) > LOSS_APART
    ]
    if faults:
        raise BudgetMissedError(
            f"case {case.name}: nothing was timed:\n  " + "\n  ".join(faults), hint="train --prove-step"
        )
    return {"case": case.name, "losses": losses} | proof


def measured(asked: Asked, case: Case, arguments: dict[str, Any], work: Path) -> list[Figures]:
    """Return the contenders' figures of a case, one step of each in turn.

    Raises:
        StageError: our own step cannot run.
    """

    def runner(label: str) -> Callable[[str], Figures]:
        run = run_contender if label == "ours" else run_rival
        return lambda folder: run(CONTENDERS[label], **arguments, turns=folder)

    folder = work / case.name
    folder.mkdir()
    found = in_turn(
        {label: runner(label) for label in CONTENDERS},
        arguments["runs"] + 1,
        folder,
        lambda what: asked.say(f"train: {case.name}, {what}"),
    )
    return [{"case": case.name, "contender": label} | figures for label, figures in found.items()]


def report(
    model: str, batch_rows: int, runs: int, wanted: list[Case], found: list[Figures], peak: Figures, *, full: bool
) -> Bench:
    """Return the benchmark of contenders' figures.

    Args:
        model: its name.
        batch_rows: rows in a step.
        runs: counted steps.
        wanted: the cases.
        found: what `benchmarks.contenders.training.figures` returned, with `case` and `contender`, or `not_measured`.
        peak: `mlx_gflops` and `torch_gflops` of a matrix product.
        full: the budgets of all rows, else those of a few.
    """
    for row in found:
        add_rates(row, batch_rows, peak)
    title = f"one LoRA update of {model}, {batch_rows} rows, fp32, median of {runs} after one warm-up"
    bench = Bench("train", title, {"contenders": Table(COLUMNS, found)})
    for case in wanted:
        by_label = {row["contender"]: row for row in found if row["case"] == case.name}
        ours = by_label["ours"]
        for row in by_label.values():
            row["ours_over"] = ratio(row.get("seconds_per_step"), ours["seconds_per_step"])
            if row.get("parameters", ours["parameters"]) != ours["parameters"]:
                raise RuntimeError(f"{row['contender']} trains another number of parameters than ours")
        bench.budgets += budgets(case, by_label, full=full)
    first = found[0]
    bench.facts = {"rows": batch_rows, "parameters": first["parameters"], "chip": chip(), "blas": first.get("blas")}
    bench.facts |= {"product_gflops": peak, "versions": versions()}
    bench.notes.append("ours: shared tokens once, head at labels; the others: every row whole, logits at every token")
    bench.notes.append("mlx-lm's loop trains one padding token a row; its lengths are set so that the losses are equal")
    bench.notes.append("torch loop: at most 4 rows at once, gradients of a step added up; 16 rows do not fit 24 GiB")
    bench.notes.append(
        "elementwise: share of operator time outside of products and attention, from torch's profiler; MLX has none, "
        "there 1 − `of peak` is the most it can be"
    )
    bench.notes.append(
        "of peak: work in matrix products per second over a 1024³ product's; last / first: drift of steps"
    )
    if not any(row.get("device") == "mps" for row in found):
        bench.notes.append("torch on MPS: not measured here, this machine has none; the torch loop ran on the CPU")
    if first["device"] == "cpu":
        bench.notes.append("no contender's step is compiled: MLX's CPU backend would call a C++ compiler per kernel")
    return bench


def add_rates(row: Figures, batch_rows: int, peak: Figures) -> None:
    """Add medians and rates to a contender's figures."""
    if "seconds" not in row:
        return
    seconds, tenth = row["seconds"], max(1, len(row["seconds"]) // 10)
    median = statistics.median(seconds)
    row["seconds_per_step"] = round(median, 4)
    row["core_seconds_per_step"] = round(statistics.median(row["core_seconds"]), 3)
    row["rows_per_second"] = round(batch_rows / median, 3)
    row["computed_tokens_per_second"] = round(row["computed_tokens"] / median, 1)
    row["trained_tokens_per_second"] = round(row["trained_tokens"] / median, 1)
    row["drift"] = round(statistics.mean(seconds[-tenth:]) / statistics.mean(seconds[:tenth]), 3)
    fastest = peak.get("torch_gflops" if row["contender"].startswith("torch") else "mlx_gflops")
    row["utilisation"] = ratio(row["gflop"] / median, fastest)


def budgets(case: Case, rows: dict[str, Figures], *, full: bool) -> list[Budget]:
    """Return what a case must reach.

    Args:
        case: which.
        rows: contender to figures.
        full: all rows.
    """
    ours, mlx_lm, torch = (rows.get(label, {}) for label in CONTENDERS)
    why = mlx_lm.get("not_measured", "")
    found = [
        Budget(f"{case.name}: first loss of {label}, from ours", apart(row, ours), LOSS_APART, "nats")
        for label, row in rows.items()
        if label != "ours" and "first_loss" in row
    ]
    over = Budget(
        f"{case.name}: rows/s over mlx-lm's", mlx_lm.get("ours_over"), case.over_mlx_lm[full], "×", False, detail=why
    )
    found.append(over)
    if full and case.memory is not None:
        share = ratio(ours["peak_memory_gib"], mlx_lm.get("peak_memory_gib"))
        found.append(Budget(f"{case.name}: peak memory over mlx-lm's", share, case.memory, "×", detail=why))
    if case.over_torch is not None and "ours_over" in torch and "first_loss" in torch:
        found.append(Budget(f"{case.name}: rows/s over torch's", torch["ours_over"], case.over_torch, "×", False))
    return found


def apart(row: Figures, ours: Figures) -> float:
    return round(abs(row["first_loss"] - ours["first_loss"]), 7)


def add_curves(bench: Bench, curves: dict[str, list[Figures]]) -> None:
    """Add how cost grows with tokens and memory with the vocabulary."""
    for row in curves["tokens"]:
        row["milliseconds_per_token"] = round(1000 * row["seconds"] / row["tokens"], 4)
    names = {"tokens": "tokens", "seconds": "s per step", "milliseconds_per_token": "ms per token"}
    bench.tables["tokens"] = Table(names, curves["tokens"])
    names = {
        "vocabulary": "vocabulary",
        "peak_gib": "peak of the head GiB",
        "all_logits_gib": "all logits would be GiB",
    }
    bench.tables["vocabulary"] = Table(names, curves["vocabulary"])
    dear = [row["milliseconds_per_token"] for row in curves["tokens"] if row["tokens"] >= 1024]
    spread = "cost of a token on the first layers, dearest over cheapest"
    bench.budgets.append(Budget(spread, ratio(max(dear), min(dear)), LINEAR, "×", detail="1,024 tokens and more"))
    peaks = [row["peak_gib"] for row in curves["vocabulary"]]
    bench.budgets.append(Budget("memory of the head, 2¹⁸ over 2¹⁵ ids", ratio(peaks[-1], peaks[1]), FLAT, "×"))


def chip() -> str:
    """Return the processor's name, as far as the system tells."""
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or platform.processor()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(bench: Bench, folder: Path) -> None:
    """Write `train.json` and `train.png` into a folder."""
    from benchmarks.train_picture import draw

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "train.json", bench.as_json())
    draw(bench, folder / "train.png")
    bench.notes.append(f"written: {folder / 'train.json'}, {folder / 'train.png'}")
