"""Gate A0 of a model that has no run yet, through the public command; real weights in the slow tier."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call

from parity.model_rows import model_rows

REAL = [("smollm2-135m", 101)]
GEMMA = Path(os.environ.get("MLX_SENTIS_MODELS", "")) / "gemma3-270m"  # its licence forbids embedding it
if GEMMA.is_dir():
    REAL.append((str(GEMMA), 513))


def worst(report: dict[str, Any], direction: str, column: str) -> float:
    levels = [e[column] for e in report["facts"]["columns"] if e["tensor"].startswith(direction)]
    return min(level for level in levels if isinstance(level, float))


@pytest.mark.slow
def test_a_model_without_a_run_is_measured_with_a_made_adapter_of_the_asked_convention(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model, out = toy_model("llama"), tmp_path / "out"
    result = call("parity", "--model", model, "--edge", "a0", "--json", "--set", "adapter.norm=attached", "--out", out)
    assert result.exit_code == 0, result.output[-2000:]
    (report,) = json.loads(result.stdout)["gates"]
    assert report["facts"]["adapter_norm"] == "attached"
    norm = next(row for row in report["results"] if row["tensor"] == "adapter norm")
    assert (norm["passed"], norm["detail"]) == (True, "attached")
    assert report["facts"]["precision"]["mlx"]["tf32"] is False
    assert report["facts"]["precision"]["torch"]["matmul_precision"] == "highest"
    named = {entry["tensor"] for entry in report["facts"]["columns"]}
    assert {"forward row 0 logits", "backward model.layers.1.mlp.down_proj.magnitude", "backward loss"} <= named
    assert json.loads((out / "a0.json").read_text(encoding="utf-8"))["results"] == report["results"]
    assert (out / "a0.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("model", "tokens"), REAL)
def test_real_models_reach_110_db_forward_and_100_db_backward(model: str, tokens: int) -> None:
    result = call("parity", "--model", model, "--edge", "a0", "--json", "--set", "adapter.rank=8")
    assert result.exit_code == 0, result.output[-2000:]
    (report,) = json.loads(result.stdout)["gates"]
    assert max(report["facts"]["row_tokens"]) >= tokens
    assert worst(report, "forward", "mlx_torch_fp64") >= 110
    assert worst(report, "backward", "mlx_torch_fp64") >= 100


def test_rows_of_a_model_cross_its_window_and_share_their_beginning(toy_model: Callable[[str], Path]) -> None:
    rows = model_rows(toy_model("gemma3_text"), 700)
    assert len(rows[0]["ids"]) > 700
    assert all(row["ids"][:40] == rows[0]["ids"][:40] for row in rows)
    for row in rows:
        assert all(0 < start < end <= len(row["ids"]) for start, end in row["trained"])


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "toy-llama", "--edge", "a"),
        ("run", "--out", "x"),
        ("run", "--set", "adapter.rank=2"),
        ("--model", "m.onnx"),
        ("--model", "m.onnx", "--fixture", "f.npz", "--self-test"),
    ],
)
def test_what_does_not_go_together_is_a_wrong_use(words: tuple[str, ...]) -> None:
    assert call("parity", *words).exit_code == 2
