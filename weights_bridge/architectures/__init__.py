"""Architecture tables: one module per `model_type`, read in both directions."""

from __future__ import annotations

import importlib
import pkgutil

from weights_bridge.architectures.table import Architecture
from weights_bridge.errors import unknown_name

NOT_ARCHITECTURES = {"table"}


def names() -> list[str]:
    """Return the `model_type` of every known architecture, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in NOT_ARCHITECTURES)


def get(model_type: str) -> Architecture:
    """Return the table of one architecture.

    Raises:
        StageError: unknown, with the known names and the nearest.
    """
    if model_type not in names():
        raise unknown_name("architecture (config.json model_type)", model_type, names())
    return importlib.import_module(f"{__name__}.{model_type}").ARCHITECTURE
