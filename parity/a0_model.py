"""Gate A0 of a model that has no run yet: a made adapter on its base weights, on rows of ours.

It answers whether MLX's definition of this architecture and this checkpoint is trained as torch would train it, before
any data is prepared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from parity.a0 import bridge_results, numeric_results
from parity.budgets import load_budgets
from parity.children import run_child
from parity.gate_request import GateRequest
from parity.gate_rows import crossed
from parity.model_rows import model_rows
from weights_bridge.adapter_file import read_adapter
from weights_bridge.compare import GateReport
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import ModelFolder, open_base
from weights_bridge.settings import AdapterSettings


def measure_a0_of_model(folder: Path, adapter: AdapterSettings) -> GateReport:
    """Measure gate A0 of a model directory.

    Args:
        folder: the model.
        adapter: what kind of adapter to put on it.

    Raises:
        StageError: the directory cannot be loaded, or the adapter does not fit it.
    """
    report = GateReport("a0")
    with made_request(folder, adapter) as (base, asked):
        report.results += bridge_results(base, Path(asked.adapter), Path(asked.merged))
        numeric_results(report, asked, load_budgets(base.config["model_type"]))
    report.facts["model"] = folder.name
    return report


@contextmanager
def made_request(folder: Path, adapter: AdapterSettings) -> Iterator[tuple[ModelFolder, GateRequest]]:
    """Make an adapter and a merged directory that last as long as the block, and yield what to ask about them."""
    base = open_base(folder)
    window = base.config.get("sliding_window") if base.architecture.sliding else None
    rows = model_rows(base.path, window)
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-a0-") as work:
        file, merged = Path(work) / "adapter.safetensors", Path(work) / "merged"
        request = {"model": str(base.path), "out": str(file), "settings": asdict(adapter)}
        run_child("parity.runners.mlx_made_adapter", request, Path(work) / "request.json")
        write_merged(base, read_adapter(file), merged, [])
        yield (
            base,
            GateRequest(
                base=str(base.path),
                merged=str(merged),
                adapter=str(file),
                rows=rows,
                backward_rows=crossed(rows, rows[::-1]),
                pad_id=int(base.config.get("pad_token_id") or 0),
                vocabulary=base.config["vocab_size"],
            ),
        )
