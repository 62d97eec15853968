"""Preparing the shipped rows for a model, so that every training contender reads the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_sentis.prepare.run import run_prepare
from weights_bridge.settings import DataSettings

DATA = "npc-commands"


def measure(model: str, out: str) -> dict[str, Any]:
    """Write a folder with `recipe.json` and `data/`; return how many training rows there are.

    Args:
        model: a catalogue name, a directory or a hub id.
        out: the folder to write.
    """
    facts = run_prepare(DATA, model, Path(out), DataSettings())
    return {"rows": facts["splits"]["train"]["rows"]}
