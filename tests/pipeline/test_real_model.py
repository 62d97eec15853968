"""The demo itself: real weights, every stage, every budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import call

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_demo_reaches_all_its_measures(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    # the fast tests hold OpenMP to one thread; the demo has all cores
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "cli", "run", "--out", str(root), "--progress", "off"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    measured = call("bench", "demo", root, "--json")
    assert measured.exit_code == 0, measured.output[-3000:]
    gate = json.loads((root / "parity" / "a0.json").read_text(encoding="utf-8"))
    assert max(gate["facts"]["row_tokens"]) > 100
    assert (root / "parity" / "plots" / "loss.png").stat().st_size > 1000
