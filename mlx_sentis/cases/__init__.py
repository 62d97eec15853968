"""Case files: what is known of fine-tuning one model beyond its own files, each entry with its source."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Iterable
from typing import Any


def case_of(names: Iterable[str]) -> tuple[str, dict[str, Any]] | None:
    """Return the case file of a model and what it says, None when no case knows it.

    Args:
        names: what the model is called: catalogue name, hub id, the base models of its card.
    """
    wanted = set(names)
    for file in sorted(importlib.resources.files(__name__).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        case = tomllib.loads(file.read_text(encoding="utf-8"))
        if wanted & {file.name.removesuffix(".toml"), *case["base_models"]}:
            return file.name, case
    return None
