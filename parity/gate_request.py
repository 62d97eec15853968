"""What gate A0 asks of both sides: the same models, the same rows, the same positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

LOGITS_AT_MOST = 1 << 25  # numbers per row that are compared: 128 MiB of fp32
FORWARD, BACKWARD, TRACE = "forward", "backward", "trace"


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
        parts: `forward`, `backward`, and `trace` (torch only: backward, with hidden states and their gradients in
            float64; alone it computes nothing in float32).
        norm: torch only: `detached` or `attached` in place of what the adapter's file says.
        given: MLX only: an npz of torch's hidden states, to feed each layer with (see `runners.mlx_layers`).
        logits_at_most: how many logits of a row are compared.
    """

    base: str
    merged: str
    adapter: str
    rows: list[dict[str, Any]]
    backward_rows: list[dict[str, Any]]
    pad_id: int
    vocabulary: int
    out: str = ""
    parts: Sequence[str] = (FORWARD, BACKWARD)
    norm: str | None = None
    given: str = ""
    logits_at_most: int = LOGITS_AT_MOST

    @classmethod
    def of(cls, request: dict[str, Any]) -> GateRequest:
        return cls(**request)

    def with_(self, **changes: Any) -> GateRequest:
        """Return the same question but for some attributes."""
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def positions(self, row: dict[str, Any]) -> list[int]:
        """Return the positions whose logits are compared: all, or an even choice with the last when V is large."""
        tokens = len(row["ids"])
        step = -(-tokens * self.vocabulary // self.logits_at_most)
        return sorted(set(range(tokens - 1, -1, -step)))
