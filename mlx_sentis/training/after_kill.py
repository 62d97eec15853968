"""What a killed training left, put right before the next: nothing half-written stays, nothing whole is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

from weights_bridge.files import bring_back
from weights_bridge.run_folder import RunFolder

PROOF = ".prove-"  # folders of a resume certificate begin so


def log_set_aside(log: Path) -> Path:
    """Return where an earlier run's log waits until the new run has saved something."""
    return log.with_name(f".{log.name}-before")


def clear_up(run: RunFolder) -> None:
    """Remove half-written checkpoints and proofs, and bring back what was set aside; who calls holds the folder."""
    checkpoints = run.path("checkpoints")
    for entry in checkpoints.glob(".*"):
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink()
            continue
        bring_back(checkpoints / entry.name[1:].rpartition("-")[0])  # a kill between the two renames of a swap
        shutil.rmtree(entry, ignore_errors=True)
    for entry in run.root.glob(f"{PROOF}*"):
        shutil.rmtree(entry, ignore_errors=True)
    before = log_set_aside(run.path("log.jsonl"))
    if before.is_file():  # its run was to be replaced, and the new one saved nothing before it was killed
        before.replace(run.path("log.jsonl"))
