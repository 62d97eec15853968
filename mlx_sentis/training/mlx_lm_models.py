"""mlx-lm's model definitions without the rest of mlx-lm.

`import mlx_lm` runs an `__init__` that pulls in its generator, transformers and, where it is installed, torch: 3–5 s
and 0.3 GiB in every training process, for nothing that training uses. The definitions themselves need MLX only, so
they are imported with a bare package object in `mlx_lm`'s place, which is taken away again at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from weights_bridge.errors import StageError


def models_module(name: str) -> Any:
    """Return `mlx_lm.models.<name>`.

    Raises:
        StageError: mlx-lm is not installed, or has no such definition.
    """
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or spec.submodule_search_locations is None:
        raise StageError("mlx-lm is not installed", hint="pip install mlx-lm")
    bare = "mlx_lm" not in sys.modules
    if bare:
        shell = types.ModuleType("mlx_lm")
        shell.__path__ = list(spec.submodule_search_locations)
        sys.modules["mlx_lm"] = shell
    try:
        return importlib.import_module(f"mlx_lm.models.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"mlx_lm.models.{name}":
            raise  # a definition that is there and cannot be imported is another fault
        raise StageError(
            f"mlx-lm has no definition {name!r}", hint="this project was tested with mlx-lm 0.32"
        ) from None
    finally:
        if bare:
            del sys.modules["mlx_lm"]
