"""Weights as `ModelQuantizer` stores them, applied to the importer's constants before the graph runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weights_bridge.errors import StageError

if TYPE_CHECKING:
    from parity.emulator.graph import Graph


def quantised(graph: Graph, how: str) -> list[str]:
    """Replace the constants of a graph that `ModelQuantizer` would; return what was done, for the notes.

    Args:
        graph: `held` has the constants, `readers` tells which layers read which constant.
        how: `float16` or `uint8`.

    Raises:
        StageError: another kind.
    """
    raise StageError(f"quantisation {how!r} is not known", hint="float16 and uint8 are")
