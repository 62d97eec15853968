"""Families: one I/O contract and one wrapper each, and which architectures they cover."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from weights_bridge import architectures
from weights_bridge.architectures.table import ALL_STAGES as STAGES
from weights_bridge.errors import unknown_name

FAMILIES = {"causal_lm": "converters.families.causal_lm"}


def get(family: str) -> ModuleType:
    """Return the module of one family.

    Raises:
        StageError: unknown, with the known names and the nearest.
    """
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    return importlib.import_module(FAMILIES[family])


def table() -> list[dict[str, Any]]:
    """Return one row per (family, architecture) with the stages that cover it."""
    rows = []
    for name in architectures.names():
        known = architectures.get(name)
        stages = [stage for stage in STAGES if stage in known.stages]
        rows.append({"family": known.family, "architecture": name, "sliding": known.sliding, "stages": stages})
    return sorted(rows, key=lambda row: (row["family"], row["architecture"]))
