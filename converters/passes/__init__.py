"""Graph passes in the order they run: one file each, each with its reasons for not firing."""

from __future__ import annotations

from converters.passes import clamp_int64, drop_metadata, inline_weights
from converters.passes.base import Pass

PASSES: dict[str, Pass] = {module.PASS.name: module.PASS for module in (inline_weights, drop_metadata, clamp_int64)}
