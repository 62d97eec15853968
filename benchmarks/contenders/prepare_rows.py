"""Preparing made-up rows: seconds and memory of the whole stage, and what the index of the first reading takes."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.made_rows import write_rows
from mlx_sentis.catalogue import resolve_model
from mlx_sentis.prepare.run import run_prepare
from mlx_sentis.prepare.survey import surveyed
from mlx_sentis.prepare.workers import workers_for
from mlx_sentis.recipe import make_recipe
from weights_bridge.settings import DataSettings


def measure(model: str, rows: int) -> dict[str, Any]:
    """Prepare `rows` rows for a model and return the figures.

    Args:
        model: a catalogue name, a directory or a hub id.
        rows: how many.
    """
    settings = DataSettings(max_tokens=4096)  # no row is longer, whatever the tokenizer
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-bench-") as work:
        data = Path(work) / "made.jsonl"
        write_rows(data, rows)
        tools = make_recipe(resolve_model(model))["tools"]
        began = time.perf_counter()
        with surveyed(data, tools, settings, Path(work)) as survey:
            reading, index = time.perf_counter() - began, survey.index.bytes_in_memory
        began = time.perf_counter()
        facts = run_prepare(str(data), model, Path(work) / "run", settings)
        seconds = time.perf_counter() - began
        megabytes = data.stat().st_size / 1e6
    splits = facts["splits"].values()
    workers = workers_for(rows)
    return {
        "rows": sum(one["rows"] for one in splits),
        "tokens": sum(one["tokens"] for one in splits),
        "megabytes": round(megabytes, 1),
        "workers": workers,
        "seconds_reading": round(reading, 2),
        "seconds": round(seconds, 2),
        "index_bytes_per_row": round(index / rows, 1),
        "near_duplicate_rows": facts["near_duplicates"]["rows"],
        **_peaks(workers),
    }


def _peaks(workers: int) -> dict[str, float]:
    """Return the largest resident sizes in GiB; the sum counts every worker as the largest, so it is an upper bound."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is bytes on macOS, KiB on Linux
    own, worker = (
        resource.getrusage(who).ru_maxrss * unit / 2**30 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    worker = worker if workers else 0.0
    return {"own_gib": round(own, 3), "worker_gib": round(worker, 3), "all_gib": round(own + workers * worker, 3)}
