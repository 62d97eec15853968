"""Loss and gradients of a case before anything is timed: our step against the plain one, on a cut model."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.training import ADAPTER, read_task
from mlx_sentis.training import adapters
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.prove import prove_step
from mlx_sentis.training.sharing import sharing_of


def measure(model: str, case: str, rows: int) -> dict[str, Any]:
    """Return the proof's figures.

    Args:
        model: the directory of a cut model.
        case: which rows.
        rows: in the batch.
    """
    task = read_task(model, case, rows)
    network = load_causal_lm(task.folder)
    adapters.add_adapters(network, ADAPTER, seed=0)
    return prove_step(network, task.rows, sharing_of(task.rows), task.pad_id).as_json()
