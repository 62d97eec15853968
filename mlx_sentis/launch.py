"""Whether this process is one of several that train together; told from the environment, without MLX.

`mlx.launch` and `mpirun` say so in variables. Nothing else makes a training join others: without them no process ever
opens a connection.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def backend_of(environment: Mapping[str, str] | None = None) -> str:
    """Return MLX's backend for what launched this process, empty where it runs alone.

    Args:
        environment: variables; this process's own by default.

    Returns:
        `ring`, `jaccl`, `nccl`, `mpi` or nothing. One process launched by itself runs alone.
    """
    found = os.environ if environment is None else environment
    if "MLX_RANK" in found:
        if "MLX_HOSTFILE" in found:
            return "ring" if _hosts(Path(found["MLX_HOSTFILE"])) > 1 else ""
        if "MLX_IBV_DEVICES" in found:
            return "jaccl" if _hosts(Path(found["MLX_IBV_DEVICES"])) > 1 else ""
        return "nccl" if _number(found.get("MLX_WORLD_SIZE")) > 1 else ""
    sizes = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # Open MPI, MPICH and Intel MPI
    return "mpi" if any(_number(found.get(name)) > 1 for name in sizes) else ""


def _hosts(file: Path) -> int:
    """Return how many processes a file of hosts lists; `mlx.launch -n 1` writes an empty one."""
    try:
        listed = json.loads(file.read_text(encoding="utf-8") or "[]")
    except (OSError, ValueError):
        return 0
    return len(listed) if isinstance(listed, list) else 0


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
