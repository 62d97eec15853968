"""Checkpoints that appear whole or not at all; `best` and `last` are links.

`<update>/adapter.safetensors` is for other programs; `state.safetensors` and `state.json` are what an exact resume
needs: trained tensors, optimiser, random key, data cursor, schedule position and what all of it was made from.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_sentis.training.adapters import AdapterFacts, save_adapter
from mlx_sentis.training.definitions import CausalLM
from mlx_sentis.training.state_checks import DIGEST
from weights_bridge.adapter_file import ADAPTER, IMPORTED
from weights_bridge.files import CannotWriteError, folder_written_whole, sha256_of, write_json
from weights_bridge.safetensors_writer import write_safetensors

STATE_ARRAYS, STATE = "state.safetensors", "state.json"


def save_checkpoint(
    folder: Path, model: CausalLM, facts: AdapterFacts, state: dict[str, Any], arrays: dict[str, mx.array]
) -> Path:
    """Write `<folder>/<step>/` with adapter and state, whole or not at all.

    Args:
        folder: `checkpoints/` of the run.
        model: the decoder with its adapters.
        facts: what the adapter file says of itself.
        state: what JSON can hold; `step` names the checkpoint.
        arrays: name to fp32 array.
    """
    target = folder / str(state["step"])
    with folder_written_whole(target) as new:
        save_adapter(new / ADAPTER, model, facts)
        shapes = {name: array.shape for name, array in arrays.items()}
        write_safetensors(new / STATE_ARRAYS, shapes, ((name, np.array(array)) for name, array in arrays.items()))
        write_json(new / STATE, state | {DIGEST: sha256_of(new / STATE_ARRAYS)})
    return target


def forget_others(folder: Path, step: int) -> None:
    """Remove the checkpoints and links of an earlier training, once `last` is this one's; what was imported stays."""
    for entry in folder.iterdir():
        if entry.is_symlink():
            if entry.name != "last":
                entry.unlink()
        elif entry.name not in (str(step), IMPORTED):
            shutil.rmtree(entry, ignore_errors=True)


def prune(folder: Path, keep_last: int, best: int) -> None:
    """Remove all checkpoints but the newest `keep_last` and the best one."""
    steps = sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())
    for step in steps[:-keep_last]:
        if step != best:
            shutil.rmtree(folder / str(step), ignore_errors=True)


def link(folder: Path, name: str, step: int) -> None:
    """Point `checkpoints/<name>` at a step, replacing the old link in one rename.

    A copy of a run without links (some tools, some shares) has a folder there: it makes way.

    Raises:
        StageError: the disk is full or the place cannot be written.
    """
    beside, place = folder / f".{name}-new", folder / name
    try:
        beside.unlink(missing_ok=True)
        beside.symlink_to(str(step), target_is_directory=True)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        beside.replace(place)
    except OSError as error:
        raise CannotWriteError(place, error, kept=f"checkpoints/{step} is whole") from error
