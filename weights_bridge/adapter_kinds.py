"""The kinds of adapters: which tensors each has, how it is scaled, which norms it divides by.

Every weight is seen as a matrix W [out, in]; a Conv1d weight [out, channels, taps] has in = channels · taps, in
torch's order. With V = W + s Δ the effective weight is

- `lora`, `rslora`: V, with Δ = B A (Hu et al. 2021, arXiv 2106.09685);
- `dora`: m_i V_i / ‖V_i‖ by rows (Liu et al. 2024, arXiv 2402.09353, as PEFT has it);
- `dora-cols`: m_j V_j / ‖V_j‖ by columns, as the paper's figure has it;
- `bora`: R = m_r V / ‖V‖ by rows, then m_c R / ‖R‖ by columns (Wang et al. 2024, arXiv 2412.06441);
- `…-xs`: the same with Δ = U M Vᵀ, where U [out, r] and Vᵀ [r, in] are W's first singular vectors and only
  M [r, r] is trained (Bałazy et al. 2024, arXiv 2405.17604).

s is alpha / r, for `rslora` alpha / √r (Kalajdzievski 2023, arXiv 2312.03732).

Legend: `out`, `in` the matrix's sides, `r` rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weights_bridge.errors import unknown_name

FULL = "full"  # no adapter: the file holds the weights themselves
SYNONYMS = {"dora-rows": "dora"}


@dataclass(frozen=True)
class Kind:
    """One kind of adapter.

    Attributes:
        name: as in the settings and in the file's facts.
        rows: whether rows are divided by their norm and multiplied by a magnitude.
        columns: the same for columns, after the rows.
        fixed_bases: whether Δ is U M Vᵀ with fixed U and V.
        root_scale: whether s is alpha / √r.
    """

    name: str
    rows: bool = False
    columns: bool = False
    fixed_bases: bool = False
    root_scale: bool = False

    @property
    def has_norm(self) -> bool:
        return self.rows or self.columns

    @property
    def row_magnitude(self) -> str:
        """The name of the rows' magnitude tensor."""
        return "magnitude_r" if self.columns else "magnitude"

    @property
    def column_magnitude(self) -> str:
        """The name of the columns' magnitude tensor."""
        return "magnitude_c" if self.rows else "magnitude"

    def scale(self, rank: int, alpha: float) -> float:
        """Return s."""
        return alpha / (math.sqrt(rank) if self.root_scale else rank)

    def shapes(self, out: int, width: int, rank: int) -> dict[str, tuple[int, ...]]:
        """Return tensor name to shape of everything a file holds for a matrix [out, in]."""
        if self.fixed_bases:
            shapes: dict[str, tuple[int, ...]] = {"M_xs": (rank, rank), "U": (out, rank), "V": (width, rank)}
        else:
            shapes = {"lora_A": (rank, width), "lora_B": (out, rank)}
        if self.rows:
            shapes[self.row_magnitude] = (out,)
        if self.columns:
            shapes[self.column_magnitude] = (width,)
        return shapes

    @property
    def parts(self) -> set[str]:
        """The names of all tensors of a module."""
        return set(self.shapes(1, 1, 1))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("lora"),
        Kind("rslora", root_scale=True),
        Kind("dora", rows=True),
        Kind("dora-cols", columns=True),
        Kind("bora", rows=True, columns=True),
        Kind("lora-xs", fixed_bases=True),
        Kind("dora-rows-xs", rows=True, fixed_bases=True),
        Kind("dora-cols-xs", columns=True, fixed_bases=True),
        Kind("bora-xs", rows=True, columns=True, fixed_bases=True),
    )
}


def kind_of(name: str) -> Kind:
    """Return a kind by its name or a synonym (`dora-rows` is `dora`).

    Raises:
        StageError: unknown, with the known names and the nearest.
    """
    known = SYNONYMS.get(name, name)
    if known not in KINDS:
        raise unknown_name("adapter type", name, KINDS)
    return KINDS[known]
