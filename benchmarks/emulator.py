"""`bench emulator`: what a prediction of Sentis costs, beside the same graph in ONNX Runtime."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.asked import TOY_MODEL, Asked
from benchmarks.contender import run_contender
from benchmarks.result import Bench, Budget, Figures, Table, ratio
from converters.onnx_file import read_skeleton
from parity.pipeline import run_stage
from parity.runners.decoder_io import empty_cache, prefill_inputs
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import resolve

RUNS, TOKENS, SENTIS = 5, 64, "2.6"
TIMES_SLOWER, TIMES_MEMORY = 5.0, 2.5
COLUMNS = {
    "runtime": "runtime",
    "opened": "open s",
    "median": "prefill s, median",
    "fastest": "fastest s",
    "slowest": "slowest s",
    "peak_memory_gib": "peak GiB",
}
RUNTIMES = {"onnx": "ONNX Runtime, all outputs", "emulator": f"emulator of Sentis {SENTIS}, all outputs"}


def measure(asked: Asked) -> Bench:
    """Measure a prefill of 64 tokens in a run's graph, or in that of a model exported for this."""
    if asked.run is not None:
        return measure_run(RunFolder.existing(asked.run), asked)
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        run = RunFolder(Path(work) / "run")
        model = asked.model or TOY_MODEL
        asked.say(f"emulator: exporting {model}")
        resolve(overrides=(f"model.name={model}",)).write(run.path("config.toml"))
        for stage in ("recipe", "export"):
            if run_stage(stage, run.root, "off", quiet=True) != 0:
                raise StageError(f"stage {stage} failed", hint="it has said why above")
        return measure_run(run, asked)


def measure_run(run: RunFolder, asked: Asked) -> Bench:
    """Measure both runtimes, each in its own process.

    Raises:
        StageError: no graph in the run, or none that its contract tells of; Sentis' import is predicted to fail.
    """
    graph, contract = graph_of(run), run.path("onnx", "contract.json")
    known = read_json(contract)
    ids = [(7 + 13 * at) % known["constants"]["vocab"] for at in range(TOKENS)]
    require_ends(graph, set(prefill_inputs(ids, 0, known) | empty_cache(known)))
    rows: list[Figures] = []
    for runtime, name in RUNTIMES.items():
        asked.say(f"emulator: {name}")
        request = {"graph": str(graph), "contract": str(contract), "ids": ids, "runs": asked.runs or RUNS}
        rows.append({"runtime": name} | run_contender("sentis_prefill", runtime=runtime, version=SENTIS, **request))
    bench = Bench("emulator", f"{graph.name} of {graph.stat().st_size / 2**20:.0f} MiB, a prefill of {TOKENS} tokens")
    plain, emulated = rows
    wanted, found = plain.pop("logits"), emulated.pop("logits")
    bench.tables["runtimes"] = Table(COLUMNS, rows)
    bench.facts = {"tokens": TOKENS, "sentis": SENTIS, "graph_bytes": graph.stat().st_size}
    bench.facts["largest_logits_apart"] = max(abs(a - b) for a, b in zip(wanted, found, strict=True))
    slower = ratio(emulated["median"], plain["median"])
    memory = ratio(emulated["peak_memory_gib"], plain["peak_memory_gib"])
    bench.budgets.append(Budget("prefill, emulator / ONNX Runtime", slower, TIMES_SLOWER, "×"))
    bench.budgets.append(Budget("peak memory, emulator / ONNX Runtime", memory, TIMES_MEMORY, "×"))
    return bench


def graph_of(run: RunFolder) -> Path:
    """Return a run's graph: that of the tuned weights where there is one."""
    for name in ("model.onnx", "base.onnx"):
        if (path := run.path("onnx", name)).is_file():
            return path
    raise StageError(f"{run.root}: no exported graph in it", hint="run `mlx-sentis run` to its end first")


def require_ends(graph: Path, inputs: set[str]) -> None:
    """Look at a graph before a process is started for it.

    Raises:
        StageError: unreadable, or it has other inputs or no logits.
    """
    found = read_skeleton(graph).model.graph
    held = {value.name for value in found.input} - {tensor.name for tensor in found.initializer}
    if held != inputs or "logits" not in {value.name for value in found.output}:
        message = f"{graph}: its inputs and outputs are not those that contract.json tells"
        raise StageError(message, hint="`mlx-sentis export` writes both")
