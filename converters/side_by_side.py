"""Several modules as one, for one call of the exporter. Imports torch at the top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn


class SideBySide(nn.Module):
    """Modules that share nothing: each has its own tuple of inputs, the outputs are all of theirs in order.

    Args:
        modules: no parameter belongs to two of them, or it would be found under one's name only.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.modules_ = nn.ModuleList(modules)

    def forward(self, *inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        found: list[Any] = []
        for module, own in zip(self.modules_, inputs, strict=True):
            out = module(*own)
            found += out if isinstance(out, tuple) else (out,)
        return tuple(found)
