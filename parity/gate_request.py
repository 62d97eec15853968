"""What gate A0 asks of both sides: the same models, the same rows, the same positions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

LOGITS_AT_MOST = 1 << 25  # numbers per row that are compared: 128 MiB of fp32


@dataclass(frozen=True)
class GateRequest:
    """One question.

    Attributes:
        base: the base model's directory.
        merged: the merged model's directory (the torch side's forward pass).
        adapter: the interchange file.
        rows: prepared rows (`ids`, `trained`, `id`) for the forward pass.
        backward_rows: rows for loss and gradients (see `gate_rows.crossed`).
        pad_id: the padding token.
        vocabulary: V.
        out: the npz to write.
    """

    base: str
    merged: str
    adapter: str
    rows: list[dict[str, Any]]
    backward_rows: list[dict[str, Any]]
    pad_id: int
    vocabulary: int
    out: str

    @classmethod
    def of(cls, request: dict[str, Any]) -> GateRequest:
        return cls(**request)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def positions(self, row: dict[str, Any]) -> list[int]:
        """Return the positions whose logits are compared: all, or an even choice with the last when V is large."""
        tokens = len(row["ids"])
        step = -(-tokens * self.vocabulary // LOGITS_AT_MOST)
        return sorted(set(range(tokens - 1, -1, -step)))
