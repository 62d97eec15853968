"""What an export wrote down beside its graph: architecture and package version, where the graph is one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weights_bridge.files import read_json

SCHEMA = "mlx-sentis/contract/"  # any version: only what all of them have is asked for


def contract_beside(onnx: Path) -> dict[str, Any]:
    """Return the contract of a graph; empty where none lies beside it, or a file of that name that is not ours.

    Raises:
        StageError: it cannot be read as JSON.
    """
    path = onnx.parent / "contract.json"
    found = read_json(path) if path.is_file() else None
    if not isinstance(found, dict) or not str(found.get("schema")).startswith(SCHEMA):
        return {}
    return found
