"""A segment: tokens of some rows that are run in one pass. What it costs, and what its rows are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

MULTIPLE = 16  # tokens; on Metal every new shape is compiled once, multiples keep them few
LEAST_SAVED = 128  # tokens a further pass must save; it reads all weights again, as dear as some 40


@dataclass
class Segment:
    """Tokens `start:stop` of some rows that are run in one pass.

    Attributes:
        parent: index of the segment that ends where this one starts, −1 at the beginning of the rows.
        start: first token.
        stop: behind the last one; for leaves, behind the last token whose hidden state is read.
        rows: indices of the rows; those of a shared segment all have the same tokens here.
        leaf: the rows differ, and their labels are read from this pass.
        stream: where it runs.
    """

    parent: int
    start: int
    stop: int
    rows: list[int] = field(default_factory=list)
    leaf: bool = False
    stream: int = 0

    @property
    def computed_tokens(self) -> int:
        width = self.stop - self.start
        return rounded_up(width) * len(self.rows) if self.leaf else width


def rounded_up(count: int) -> int:
    return -(-count // MULTIPLE) * MULTIPLE


def read_tokens(row: Row) -> int:
    """Return how many leading tokens anybody reads: up to the hidden state that predicts the last label."""
    return row["trained"][-1][1] - 1


def computed_tokens(segments: Sequence[Segment]) -> int:
    """Return how many tokens go through the layers, padding included."""
    return sum(segment.computed_tokens for segment in segments)
