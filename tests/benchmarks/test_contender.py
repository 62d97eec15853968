"""One contender, one process."""

from __future__ import annotations

import sys

import pytest

from benchmarks.contender import run_contender, run_rival
from benchmarks.contenders.timing import timed
from weights_bridge.errors import StageError


def test_a_contender_runs_elsewhere_and_reports_its_peak_memory() -> None:
    figures = run_contender("blas_product", fast=True, size=64, runs=1)
    assert figures["mlx_gflops"] > 0
    assert figures["torch_gflops"] > 0
    assert 0.05 < figures["peak_memory_gib"] < 6


def test_mlx_imported_first_is_left_with_the_blas_of_its_wheel() -> None:
    wheel = "accelerate" if sys.platform == "darwin" else "reference"
    assert run_contender("blas_product", fast=False, size=64, runs=1)["blas"] == wheel


def test_what_a_contender_cannot_do_ends_ours_and_is_a_remark_for_a_rival() -> None:
    asked = {"graph": "missing.onnx", "reference": "missing.onnx", "contract": "no-contract.json", "form": "stock"}
    with pytest.raises(StageError, match=r"no-contract\.json: no such file"):
        run_contender("export_agreement", **asked)
    assert run_rival("export_agreement", **asked) == {"not_measured": "no-contract.json: no such file"}


def test_the_warm_up_is_not_counted() -> None:
    calls: list[int] = []

    def step() -> int:
        calls.append(len(calls))
        return calls[-1]

    first, seconds = timed(step, 3)
    assert first == 0
    assert len(calls) == 4
    assert len(seconds) == 3
