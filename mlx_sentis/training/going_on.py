"""Whether a training goes on from a state that is on disk, and what that state must be of, in all processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlx_sentis.training import BLAS
from mlx_sentis.training.checkpoints import STATE
from mlx_sentis.training.ranks import Ranks
from mlx_sentis.training.resume import SavedState, differences, require_same, require_state
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.files import sha256_of, sha256_of_text
from weights_bridge.run_folder import RunFolder, versions


def hashes_of(run: RunFolder, recipe: dict[str, Any], base: dict[str, str]) -> dict[str, str]:
    """Return name to SHA-256 of what decides the updates: rows, recipe (wherever the model lies), base weights."""
    facts = recipe | {"model": {key: value for key, value in recipe["model"].items() if key != "path"}}
    hashes = {"recipe.json": sha256_of_text(json.dumps(facts, sort_keys=True))}
    hashes |= {f"data/{split}.jsonl": sha256_of(run.path("data", f"{split}.jsonl")) for split in ("train", "valid")}
    return hashes | {f"base weights {name}": digest for name, digest in base.items()}


def numbers_of() -> dict[str, str]:
    """Return what may change the last bit of a number and is no fault of the user's: versions, BLAS."""
    known = versions()
    return {name: known.get(name, "") for name in ("mlx", "mlx-lm", "numpy", "system")} | {"blas": BLAS.name}


def require_equal_in_all(origin: dict[str, Any], ranks: Ranks) -> None:
    """Refuse processes that read other rows, another recipe or other base weights than the first one.

    Raises:
        StageError: what differs, of the first process where something does; in all processes.
    """
    first = json.loads(ranks.text_of(json.dumps(origin["files"])))
    with ranks.together():
        names = sorted(first.keys() | origin["files"].keys())
        if faults := [name for name in names if first.get(name) != origin["files"].get(name)]:
            hint = "copy the prepared data and the model of the first machine to the others"
            raise all_at_once("these are not the first process's:", faults, hint=hint)


def state_for_all(
    checkpoints: Path, origin: dict[str, Any], resume: str, say: Callable[[str], None], ranks: Ranks
) -> SavedState | None:
    """Return the state to resume, None to start over; only the first process has it on disk (see `Trainer`).

    Raises:
        StageError: a resume was asked for and is not possible.
    """
    state = None
    with ranks.together():
        if ranks.first:
            state = state_to_go_on_from(checkpoints, origin, resume, say)
    document = json.loads(ranks.text_of(json.dumps(state.document if state else None)))
    return state if ranks.first or document is None else SavedState(checkpoints, document)


def state_to_go_on_from(
    checkpoints: Path, origin: dict[str, Any], resume: str, say: Callable[[str], None]
) -> SavedState | None:
    """Return the state to resume, None to start over; says what it found and why.

    Raises:
        StageError: a resume was asked for and is not possible.
    """
    if resume == "yes":
        state = require_state(checkpoints)
        require_same(state, origin)
    else:
        if not (checkpoints / "last" / STATE).is_file():
            return None
        try:
            state = require_state(checkpoints)
        except StageError as error:  # what cannot be gone on with is no reason not to train
            say(f"starting over: {error.message}")
            return None
        if state.document["finished"]:
            return None
        where = f"an unfinished training of {counted(state.document['step'], 'update')} is in {checkpoints}"
        if resume == "no":
            say(f"starting over: {where}; --resume would go on with it")
            return None
        if faults := differences(state, origin):
            say(f"starting over, as {where} but cannot be gone on with: {'; '.join(faults[:3])}")
            return None
    was, now = state.document["made_from"].get("versions", {}), origin["versions"]
    if changed := [f"{name} {was.get(name)} → {now[name]}" for name in now if was.get(name) != now[name]]:
        say(f"the last bits of numbers may differ from an uninterrupted run: {', '.join(changed)}")
    say(f"going on after update {state.document['step']}, epoch {state.progress.epoch}")
    return state
