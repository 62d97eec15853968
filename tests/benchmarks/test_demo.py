"""`bench demo`: a run folder against time, memory, level and quality; each planted miss is exit 3 and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call, edit_json

from benchmarks.demo import STAGES
from weights_bridge.files import write_json
from weights_bridge.run_folder import SCHEMA

Edit = Callable[[dict[str, Any]], object]


def entry(number: int) -> dict[str, Any]:
    return {"seconds": 30.0, "peak_memory_gib": 1.5, "finished": f"2026-01-01T10:{number + 1:02d}:00Z"} | {
        "versions": {"python": "3.11"},
        "facts": {},
        "inputs": {},
        "outputs": {},
    }


def checked(tensor: str, level: float | None) -> dict[str, Any]:
    return {"tensor": tensor, "passed": True, "psnr_db": level, "reason": "exact" if level is None else "within budget"}


def axis(right: int, of: int) -> dict[str, Any]:
    return {"right": right, "of": of, "share": right / of, "low": 0.0, "high": 1.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A made run folder that keeps every budget: 14 minutes, 1.5 GiB, 90 %."""
    root = tmp_path / "made"
    write_json(root / "manifest.json", {"schema": SCHEMA, "stages": {name: entry(i) for i, name in enumerate(STAGES)}})
    write_json(root / "recipe.json", {"model": {"name": "smollm2-135m"}})
    a0 = [checked("contract ids", None), checked("forward row 0 logits", 131.0), checked("backward x.lora_A", 118.0)]
    edge = [checked("off / r / logits", 131.0), checked("all / r / logits", 128.0), checked("greedy / r", None)]
    write_json(root / "parity" / "a0.json", {"results": a0, "facts": {}})
    for name in ("a-base.json", "a.json"):
        write_json(root / "parity" / name, {"results": edge, "facts": {"greedy": {"tokens": 32}}})
    sides = {
        "before": {"function_selection": axis(1, 60), "out_of_scope_rejection": axis(2, 40)},
        "after": {"function_selection": axis(54, 60), "out_of_scope_rejection": axis(30, 40)},
    }
    verdicts = {name: {"word": "better"} for name in sides["after"]}
    write_json(root / "eval" / "axes.json", sides | {"verdicts": verdicts})
    return root


def test_a_run_within_every_budget_passes_and_shows_rejection_beside_selection(run: Path) -> None:
    result = call("bench", "demo", run, "-q")
    assert result.exit_code == 0, result.stderr
    selection = next(line for line in result.stdout.splitlines() if "held out: function selection" in line)
    assert "90 %" in selection
    assert "out-of-scope rejection beside it: 30 of 40 (75 %)" in selection
    assert "MISS" not in result.stdout
    assert all(name in result.stdout for name in STAGES)


def test_the_document_holds_stages_axes_and_each_verdict(run: Path) -> None:
    document = json.loads(call("bench", "demo", run, "--json", "-q").stdout)
    (found,) = document["benches"]
    assert [row["stage"] for row in found["stages"]] == list(STAGES)
    assert found["facts"]["seconds_in_stages"] == 30.0 * len(STAGES)
    assert found["axes"][0] == {
        "axis": "function selection",
        "before": "1 of 60 (2 %)",
        "after": "54 of 60 (90 %)",
        "verdict": "better",
    }
    by_name = {budget["measure"]: budget for budget in found["budgets"]}
    assert by_name["all stages"]["found"] == 13.5  # fourteen stages end a minute apart, the first took half of one
    assert by_name["gate A0: backward"]["found"] == 118.0
    assert (by_name["edge A, tuned: forward"]["found"], by_name["edge A, tuned: forward"]["detail"]) == (
        (128.0, "all / r / logits")
    )


def late(document: dict[str, Any]) -> None:
    document["stages"]["report"]["finished"] = "2026-01-01T10:30:00Z"


def large(document: dict[str, Any]) -> None:
    document["stages"]["train"]["peak_memory_gib"] = 6.2


def unfinished(document: dict[str, Any]) -> None:
    del document["stages"]["eval"]


def low(index: int, level: float) -> Edit:
    return lambda document: document["results"][index].update(psnr_db=level)


def failed(index: int) -> Edit:
    return lambda document: document["results"][index].update(passed=False, reason="nan", psnr_db=None)


def emptied(document: dict[str, Any]) -> None:
    document["results"].clear()


def weak(document: dict[str, Any]) -> None:
    document["after"]["function_selection"] = axis(50, 60)


@pytest.mark.parametrize(
    ("file", "plant", "measure"),
    [
        ("manifest.json", late, "all stages 29.5 min"),
        ("manifest.json", large, "largest process 6.2 GiB"),
        ("manifest.json", unfinished, "all stages not measured"),
        ("parity/a0.json", low(1, 109.9), "gate A0: forward 109.9 dB"),
        ("parity/a0.json", low(2, 89.9), "gate A0: backward 89.9 dB"),
        ("parity/a0.json", failed(0), "gate A0: checks passed 2"),
        ("parity/a-base.json", low(0, 105.0), "edge A, base: forward 105 dB"),
        ("parity/a.json", failed(2), "edge A, tuned: greedy answers equal 0"),
        ("parity/a.json", emptied, "edge A, tuned: checks passed not measured"),
        ("eval/axes.json", weak, "held out: function selection 83.3 %"),
    ],
)
def test_a_planted_miss_is_exit_3_and_named(run: Path, file: str, plant: Edit, measure: str) -> None:
    edit_json(run / file, plant)
    result = call("bench", "demo", run, "-q")
    assert result.exit_code == 3
    assert f"demo: {measure}" in result.stderr


def test_a_gate_that_was_never_run_is_a_miss(run: Path) -> None:
    (run / "parity" / "a0.json").unlink()
    result = call("bench", "demo", run, "-q")
    assert result.exit_code == 3
    assert "gate A0: checks passed not measured" in result.stderr


def test_without_a_run_folder_the_demo_benchmark_says_what_it_wants(tmp_path: Path) -> None:
    bare, wrong = call("bench", "demo"), call("bench", "demo", tmp_path)
    assert (bare.exit_code, wrong.exit_code) == (1, 1)
    assert "hint: mlx-sentis bench demo runs/NAME" in bare.stderr
    assert "not a run folder" in wrong.stderr
