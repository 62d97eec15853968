"""`bench emulator`: both runtimes answer the same prompt; a slow or a large emulator misses its budget."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from bad_files import MADE, NO_MODEL
from exports import Exported
from helpers import call

from benchmarks import emulator
from benchmarks.asked import Asked
from benchmarks.contenders import sentis_prefill
from weights_bridge.errors import StageError
from weights_bridge.run_folder import RunFolder


@pytest.fixture
def run(exported: Callable[..., Exported], tmp_path: Path) -> RunFolder:
    """Return a run folder that holds a toy export and nothing else."""
    toy = exported("llama")
    folder = tmp_path / "run"
    (folder / "onnx").mkdir(parents=True)
    shutil.copyfile(toy.onnx, folder / "onnx" / "base.onnx")
    (folder / "onnx" / "contract.json").write_text(json.dumps(toy.contract), encoding="utf-8")
    return RunFolder(folder)


def planted(monkeypatch: pytest.MonkeyPatch, slower: float, larger: float) -> None:
    """Measure here instead of in children, and plant how much slower and larger the emulator is."""

    def here(name: str, runtime: str, **given: Any) -> dict[str, Any]:
        assert name == "sentis_prefill"
        figures = sentis_prefill.measure(runtime, **given)
        factor = (1.0, 1.0) if runtime == "onnx" else (slower, larger)
        return figures | {"median": factor[0], "peak_memory_gib": factor[1]}

    monkeypatch.setattr(emulator, "run_contender", here)


def test_both_runtimes_answer_the_same_prompt(run: RunFolder, monkeypatch: pytest.MonkeyPatch):
    planted(monkeypatch, 2.0, 1.5)
    found = emulator.measure_run(run, Asked(runs=1))
    assert not found.misses and found.facts["tokens"] == 64
    assert found.facts["largest_logits_apart"] < 1e-4
    assert [budget.found for budget in found.budgets] == [2.0, 1.5]


def test_a_slow_and_a_large_emulator_miss_their_budgets(run: RunFolder, monkeypatch: pytest.MonkeyPatch):
    planted(monkeypatch, 6.0, 3.0)
    assert len(emulator.measure_run(run, Asked(runs=1)).misses) == 2


def test_a_run_without_a_graph_is_told(tmp_path: Path):
    (tmp_path / "onnx").mkdir()
    with pytest.raises(StageError, match="no exported graph"):
        emulator.measure_run(RunFolder(tmp_path), Asked())


@pytest.mark.parametrize("name", [*NO_MODEL, "cyclic", "enormous_dims", "names_of_weights_and_outputs"])
def test_a_damaged_graph_is_told_by_its_name_before_a_process_is_started(run: RunFolder, name: str):
    graph = run.path("onnx", "base.onnx")
    graph.unlink()
    MADE[name](graph)
    (run.root / "manifest.json").write_text("{}", encoding="utf-8")
    answer = call("bench", "emulator", run.root)
    assert answer.exit_code == 1 and isinstance(answer.exception, SystemExit), answer.output
    said = answer.stderr.strip().split("\n")[-2:]
    assert said[0].startswith(f"error: {graph if graph.is_file() else run.root}: ") and said[1].startswith("  hint: ")


def test_a_graph_that_does_not_run_is_told_by_its_name(run: RunFolder):
    model = onnx.load(str(run.path("onnx", "base.onnx")))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
    run.path("onnx", "base.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(StageError, match=r"base\.onnx: ONNX Runtime cannot run it"):
        emulator.measure_run(run, Asked(runs=1))
