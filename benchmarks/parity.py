"""`bench parity`: what the gates of a run cost, and how fast the exported graph decodes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.asked import TOY_MODEL, Asked
from benchmarks.contender import run_contender
from benchmarks.result import Bench, Budget, Figures, Table, ratio
from mlx_sentis.prepare.sources import shipped_sets
from parity.pipeline import run_stage
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import resolve

RUNS, TOKENS = 3, 32
MADE_ROWS = {"train": 24, "valid": 4, "calibration": 4, "holdout": 4}
MADE_STAGES = ("recipe", "export", "prepare", "train", "bridge", "swap")
GATES = {"a0": "gate A0, MLX ↔ torch", "base": "edge A, base weights", "tuned": "edge A, tuned weights"}
GATE_COLUMNS = {"gate": "gate", "seconds": "seconds", "checks": "checks", "passed": "passed", "worst_db": "worst dB"}
GATE_COLUMNS |= {"peak_memory_gib": "peak GiB"}
DECODE_COLUMNS = {
    "runtime": "runtime",
    "prefill_tokens_per_second": "prefill tok/s",
    "decode_tokens_per_second": "decode tok/s",
    "peak_memory_gib": "peak GiB",
}


def measure(asked: Asked) -> Bench:
    """Measure a finished run, or one made for this with a toy model."""
    if asked.run is not None:
        return measure_run(RunFolder.existing(asked.run), asked)
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        run = RunFolder(Path(work) / "run")
        make_run(run, asked)
        return measure_run(run, asked)


def make_run(run: RunFolder, asked: Asked) -> None:
    """Run the stages that the gates need.

    Raises:
        StageError: a stage failed.
    """
    model = asked.model or TOY_MODEL
    asked.say(f"parity: making a run of {model}")
    data = run.root.parent / "npc-commands"
    write_first_rows(data)
    chosen = (f"model.name={model}", f"data.source={data}", "train.epochs=1", "train.batch_rows=8")
    resolve(overrides=chosen).write(run.path("config.toml"))
    for stage in MADE_STAGES:
        if run_stage(stage, run.root, "off", quiet=True) != 0:
            raise StageError(f"stage {stage} failed", hint="it has said why above")


def write_first_rows(out: Path) -> None:
    """Write the first rows of the shipped set: the gates need an adapter that is not zero, not a good one."""
    shipped = shipped_sets()["npc-commands"]
    out.mkdir(parents=True)
    shutil.copyfile(shipped / "tools.json", out / "tools.json")
    for split, count in MADE_ROWS.items():
        write_jsonl(out / f"{split}.jsonl", read_jsonl(shipped / f"{split}.jsonl")[:count])


def measure_run(run: RunFolder, asked: Asked) -> Bench:
    """Measure every gate that the folder has the parts of, then both decoders.

    Raises:
        StageError: there is no graph in the run.
    """
    recipe, runs = read_json(run.path("recipe.json")), asked.runs or RUNS
    gates: list[Figures] = []
    for gate in _gates_of(run):
        asked.say(f"parity: {GATES[gate]}")
        gates.append({"gate": GATES[gate]} | run_contender("gate", run=str(run.root), gate=gate))
    title = f"{recipe['model']['name']}; decoding: greedy, K/V cache, fp32 CPU, median of {runs}"
    bench = Bench("parity", title, {"gates": Table(GATE_COLUMNS, gates)})
    bench.budgets += [Budget(f"{g['gate']}: checks passed", g["passed"], g["checks"], "", at_most=False) for g in gates]
    request = decode_request(run, recipe, runs)
    decoders = []
    for name, runtime in (("exported graph, ONNX Runtime", "onnx"), ("original, transformers eager", "transformers")):
        asked.say(f"parity: decoding, {name}")
        decoders.append({"runtime": name} | run_contender("decode", runtime=runtime, **request))
    bench.tables["decoders"] = Table(DECODE_COLUMNS, decoders)
    graph, original = decoders
    bench.facts = {"prompt_tokens": len(request["ids"]), "new_tokens": TOKENS}
    bench.facts["decode_over_transformers"] = ratio(*(d["decode_tokens_per_second"] for d in (graph, original)))
    equal = _equal(original.pop("ids"), graph.pop("ids"))
    bench.budgets.append(Budget("greedy tokens equal", equal, TOKENS + 1, "", at_most=False))
    return bench


def _gates_of(run: RunFolder) -> list[str]:
    parts = {"a0": run.path("merged"), "base": run.path("onnx", "base.onnx"), "tuned": run.path("onnx", "model.onnx")}
    found = [gate for gate, part in parts.items() if part.exists()]
    if "base" not in found and "tuned" not in found:
        raise StageError(f"{run.root}: no exported graph in it", hint="run `mlx-sentis run` to its end first")
    return found


def decode_request(run: RunFolder, recipe: dict[str, Any], runs: int) -> dict[str, Any]:
    """Return what both decoders are asked: the tuned weights where there are some, the first training prompt."""
    tuned = run.path("onnx", "model.onnx").is_file()
    row = read_jsonl(run.path("data", "train.jsonl"))[0]
    return {
        "graph": str(run.path("onnx", "model.onnx" if tuned else "base.onnx")),
        "contract": str(run.path("onnx", "contract.json")),
        "original": str(run.path("merged")) if tuned else recipe["model"]["path"],
        "ids": row["ids"][: row["prompt_tokens"]],
        "tokens": TOKENS,
        "runs": runs,
    }


def _equal(wanted: list[int], found: list[int]) -> int:
    """Return how many leading tokens are equal."""
    for index, (right, chosen) in enumerate(zip(wanted, found, strict=False)):
        if right != chosen:
            return index
    return min(len(wanted), len(found))
