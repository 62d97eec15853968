"""Gate A0's verdicts on what both sides computed, in three columns.

MLX is held against torch in float64: that is the verdict. Beside it stands MLX against torch in float32, and the floor,
torch's own float32 against its float64: a tensor that reads like its floor is as good as fp32 gets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.budgets import Budgets
from weights_bridge.compare import Array, GateResult, compare, psnr_db

EXACT = "exact"
COLUMNS = {
    "mlx_torch_fp32": "MLX ↔ torch fp32",
    "mlx_torch_fp64": "MLX ↔ torch fp64",
    "torch_fp32_fp64": "torch fp32 ↔ fp64",
}
Level = float | str | None  # dB, `exact`, or None where there is nothing to compare
Depth = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Sides:
    """What both sides wrote.

    Attributes:
        mlx: name to array, see `runners.mlx_gate.answer`.
        fp32: torch's, in float32.
        fp64: torch's, computed in float64 and rounded to float32.
        facts: device and precision of products, by side.
    """

    mlx: Mapping[str, Array]
    fp32: Mapping[str, Array]
    fp64: Mapping[str, Array]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, mlx: Mapping[str, Array], torch: Mapping[str, Array]) -> Sides:
        facts = {name: json.loads(str(side["facts"])) for name, side in (("mlx", mlx), ("torch", torch))}
        return cls({k: v for k, v in mlx.items() if k != "facts"}, under("fp32/", torch), under("fp64/", torch), facts)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass
class Compared:
    """Verdicts of one direction.

    Attributes:
        results: one per tensor.
        columns: per tensor its name, its place (`layer 3`) and the three levels.
        depth: per series, dB by place; the worst tensor of each place.
    """

    results: list[GateResult] = field(default_factory=list)
    columns: list[dict[str, Level]] = field(default_factory=list)
    depth: Depth = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return not all(result.passed for result in self.results)

    def add(self, label: str, arrays: tuple[Array, Array, Array], budget_db: float, where: str, place: str) -> None:
        """Compare (MLX, torch fp32, torch fp64) of one tensor."""
        mlx, fp32, fp64 = arrays
        result = compare(label, fp64, mlx, budget_db, where=where)
        own = result.psnr_db if result.reason != EXACT else EXACT
        levels = (level(fp32, mlx), own, level(fp64, fp32))
        self.results.append(result)
        self.columns.append({"tensor": label, "place": place, **dict(zip(COLUMNS, levels, strict=True))})


def level(reference: Array, candidate: Array) -> Level:
    """Return the PSNR in dB, `exact`, or None where the two cannot be compared."""
    if reference.shape != candidate.shape or not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return None
    found = psnr_db(reference, candidate)
    return (EXACT if found > 0 else None) if math.isinf(found) else found


def forward_results(sides: Sides, rows: int, budgets: Budgets) -> Compared:
    """Compare hidden states and logits of each row; the first layer over budget is what the logits point at."""
    compared = Compared()
    for index in range(rows):
        first_bad = ""
        levels: dict[str, float | None] = {}
        layers = sum(1 for name in sides.mlx if name.startswith(f"row{index}/hidden"))
        for k in range(layers):
            place, key = depth_name(k), f"row{index}/hidden{k}"
            arrays = in_token_units(sides.fp64[key], sides.mlx[key], sides.fp32[key])
            label = f"forward row {index} {place}"
            compared.add(label, (arrays[1], arrays[2], arrays[0]), budgets.forward_db, place, place)
            first_bad = first_bad or ("" if compared.results[-1].passed else place)
            levels[place] = compared.results[-1].psnr_db
        key = f"row{index}/logits"
        arrays = sides.mlx[key], sides.fp32[key], sides.fp64[key]
        compared.add(f"forward row {index} logits", arrays, budgets.forward_db, first_bad or "head", "logits")
        levels["logits"] = compared.results[-1].psnr_db
        compared.depth[f"A0 row {index}"] = levels
    return compared


def depth_name(k: int) -> str:
    """Return the name of hidden state k: 0 is what the first layer is given, k what layer k − 1 returns."""
    return "embeddings" if k == 0 else f"layer {k - 1}"


def in_token_units(reference: Array, *others: Array) -> tuple[Array, ...]:
    """Divide hidden states [T, H] by the root mean square of each reference token.

    Decoders park activations a thousand times the rest on the first token; against that peak a wrong layer would
    still read well, and the place would not be named.
    """
    scale = np.sqrt(np.mean(np.square(reference, dtype=np.float64), axis=-1, keepdims=True))
    unit = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0).astype(reference.dtype)
    return tuple(array / unit if array.shape == reference.shape else array for array in (reference, *others))


def backward_results(sides: Sides, rows: int, budgets: Budgets) -> Compared:
    """Compare the loss and every gradient."""
    compared, budget = Compared(), budgets.backward_db
    compared.add("backward loss", (sides.mlx["loss"], sides.fp32["loss"], sides.fp64["loss"]), budget, "loss", "head")
    names = {n for n in {*sides.mlx, *sides.fp64} if n.startswith("grad/") and not n.startswith("grad/embeddings/")}
    for name in sorted(names):
        short = name.removeprefix("grad/")
        if name in sides.mlx and name in sides.fp64:
            arrays = sides.mlx[name], sides.fp32[name], sides.fp64[name]
            compared.add(f"backward {short}", arrays, budget, short, place_of(short))
        else:
            reason = "missing" if name in sides.fp64 else "extra"
            compared.results.append(GateResult(f"backward {short}", False, reason, where=short))
    _add_embeddings(compared, sides, rows, budget)
    compared.depth = {"A0 gradients": worst_by_place(compared.columns)}
    return compared


def _add_embeddings(compared: Compared, sides: Sides, rows: int, budget: float) -> None:
    """Compare the gradients of the input embeddings; the shared prefix's is the sum over torch's rows."""
    prefix = sides.mlx.get("grad/embeddings/prefix")
    shared = 0 if prefix is None else prefix.shape[0]
    keys = [f"grad/embeddings/row{i}" for i in range(rows)]
    if prefix is not None:
        fp32, fp64 = (np.sum([side[key][:shared] for key in keys], axis=0) for side in (sides.fp32, sides.fp64))
        label = f"backward embeddings of the shared prefix ({shared} tokens)"
        compared.add(label, (prefix, fp32, fp64), budget, "embeddings", "embeddings")
    for i, key in enumerate(keys):
        arrays = sides.mlx[key], sides.fp32[key][shared:], sides.fp64[key][shared:]
        compared.add(f"backward embeddings of row {i}", arrays, budget, "embeddings", "embeddings")


def place_of(tensor: str) -> str:
    """Return `layer 7` for a tensor of that layer, `embeddings` for their table, `head` for what lies behind."""
    if match := re.search(r"\.layers\.(\d+)\.", f".{tensor}"):
        return f"layer {match[1]}"
    return "embeddings" if "embed_tokens" in tensor else "head"


def worst_by_place(columns: Iterable[Mapping[str, Level]], column: str = "mlx_torch_fp64") -> dict[str, float | None]:
    """Return place to the lowest dB of its tensors, embeddings and layers in order; None where all are exact."""
    worst: dict[str, float | None] = {}
    for entry in columns:
        place, found = str(entry["place"]), entry[column]
        before = worst.setdefault(place, None)
        if isinstance(found, float):
            worst[place] = found if before is None else min(before, found)
    return worst
