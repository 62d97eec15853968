"""Preparing made-up rows: seconds and memory of the whole stage, and what the index of the first reading takes."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contenders.made_rows import write_rows
from mlx_sentis.catalogue import resolve_model
from mlx_sentis.prepare.run import run_prepare
from mlx_sentis.prepare.survey import surveyed
from mlx_sentis.prepare.workers import workers_for
from mlx_sentis.recipe import make_recipe
from weights_bridge.settings import DataSettings

SAMPLED_EVERY = 0.5  # seconds


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
        began, spent = time.perf_counter(), _cpu_seconds()
        with _sampled_memory() as peak:
            facts = run_prepare(str(data), model, Path(work) / "run", settings)
        seconds, spent = time.perf_counter() - began, _cpu_seconds() - spent
        megabytes = data.stat().st_size / 1e6
    splits = facts["splits"].values()
    return {
        "rows": sum(one["rows"] for one in splits),
        "tokens": sum(one["tokens"] for one in splits),
        "megabytes": round(megabytes, 1),
        "workers": workers_for(rows),
        "seconds_reading": round(reading, 2),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(spent, 2),
        "index_bytes_per_row": round(index / rows, 1),
        "near_duplicate_rows": facts["near_duplicates"]["rows"],
        "all_gib": round(peak[0], 3),
    }


def _cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


@contextmanager
def _sampled_memory() -> Iterator[list[float]]:
    """Yield a list whose one number is the largest resident size of this process and its children so far, in GiB.

    The system's own peaks will not do: a child's begins with what its parent had, so workers would count double.
    """
    peak, done = [0.0], threading.Event()

    def sample() -> None:
        while True:
            listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,rss="], capture_output=True, text=True).stdout
            rows = (map(int, line.split()) for line in listed.splitlines())
            peak[0] = max(peak[0], sum(kib for pid, parent, kib in rows if os.getpid() in (pid, parent)) / 2**20)
            if done.wait(SAMPLED_EVERY):
                return

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        done.set()
        sampler.join()
