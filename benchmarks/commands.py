"""The `bench` command. It parses, calls and prints."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError

ALL = (
    "blas",
    "startup",
    "scan",
    "prepare",
    "train",
    "adapters",
    "bridge",
    "export",
    "parity",
    "emulator",
)  # `demo` joins where a run folder is given


CASES = ("shared", "mixed", "everything")
BUSY_SHARE = 0.5  # of the cores; small steps get up to forty times slower when threads wait for a busy core


def load_average() -> float | None:
    """Return how many processes wanted a core in the last minute, None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


@command("bench", examples=("bench blas", "bench demo runs/smollm2-135m-npc-commands --json"))
@click.argument("what", type=click.Choice([*ALL, "demo", "all"]), default="all")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--model", default=None, help="By default smollm2-135m, for parity toy-llama.")
@click.option("--runs", type=click.IntRange(min=1), help="Counted runs after the warm-up; each has its own default.")
@click.option("--rows", type=click.IntRange(min=1), help="train: rows in a step, 4. prepare: rows, 100000.")
@click.option(
    "--full",
    is_flag=True,
    help="train: the whole table, 16 rows, 19 GiB. export: all layers. bridge: to 3.8 GiB. All take long.",
)
@click.option("--case", type=click.Choice(CASES), default=None, help="train: one case only.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="train: a folder for JSON and picture.")
@click.option("--optimum-python", default="", metavar="PYTHON", help="export: of an environment with optimum-onnx.")
def bench(
    output: Output,
    what: str,
    run: Path | None,
    model: str | None,
    runs: int | None,
    rows: int | None,
    full: bool,
    case: str | None,
    out: Path | None,
    optimum_python: str,
) -> None:
    """Measure what the work costs, each contender in its own process; a missed budget is exit 3.

    RUN is a finished run folder: parity and emulator measure it, demo holds it against its budgets of time, memory and
    quality.
    """
    from benchmarks.asked import Asked
    from benchmarks.result import Bench, all_misses
    from parity.runners.onnx_decoder import usable_cores
    from weights_bridge.run_folder import versions

    if run is not None and what not in ("demo", "parity", "emulator", "all"):
        raise click.UsageError(f"{what} takes no run folder")
    if optimum_python and what not in ("export", "all"):
        raise click.UsageError(f"--optimum-python is for export, {what} has no use for it")
    asked = Asked(model, runs, rows, run, full, case, out, output.story, optimum_python)
    names = [*ALL, *(["demo"] if run else [])] if what == "all" else [what]
    load, cores = load_average(), usable_cores()
    found: list[Bench] = [importlib.import_module(f"benchmarks.{name}").measure(asked) for name in names]
    misses = all_misses(found)
    if load is not None and load > BUSY_SHARE * cores and names != ["demo"]:
        output.story(f"load was {load:.1f} on {cores} cores before the first run: these times are not this machine's")
    document = {"passed": not misses, "cores": cores, "load_before": load, "versions": versions()}
    document["benches"] = [one.as_json() for one in found]
    output.answer("bench", document, "\n\n".join(one.text() for one in found))
    if misses:
        lines = "".join(f"\n  {name}: {' '.join(filter(None, miss.cells()[1:4]))}" for name, miss in misses)
        count = "1 budget" if len(misses) == 1 else f"{len(misses)} budgets"
        raise BudgetMissedError(f"missed {count}:{lines}", hint="the tables above hold every figure")
