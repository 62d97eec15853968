"""A model directory as transformers can load it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weights_bridge.model_folder import open_base
from weights_bridge.model_writer import write_model_folder


@contextmanager
def plain_directory(folder: Path) -> Iterator[Path]:
    """Yield a base directory that transformers loads; weights that MLX packed are dequantised into one for the while.

    They are dequantised in fp32, as the trainer reads them.
    """
    base = open_base(folder)
    if base.origin == "torch":
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-plain-") as work:
        write_model_folder(Path(work), base, base.tensors(), "fp32")
        yield Path(work)
