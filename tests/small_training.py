"""`train` on a copy of the prepared toy data: a short training, and how a refusal must look."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import Result
from helpers import call

SMALL = ("--set", "train.epochs=2", "--set", "train.batch_rows=8", "--set", "adapter.rank=4")


def train(run: Path, *words: object, data: Path | None = None) -> Result:
    """Train two epochs with a small adapter, by the public command."""
    return call("train", "--data", data or run, "--out", run, *SMALL, *words)


def refused(result: Result, message: str) -> None:
    """Want exit 1, the message, a hint and no traceback."""
    assert result.exit_code == 1, result.output
    assert re.search(message, result.stderr), result.stderr
    assert "\n  hint: " in result.stderr
    assert "Traceback" not in result.output
