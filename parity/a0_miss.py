"""Where a miss of gate A0 begins, and whether it is a convention rather than a bug.

Each MLX layer is fed with torch's own activations (`runners.mlx_layers`): the first one that then misses its budget is
the place. When every layer alone is within its budget, the fault lies between them: in how the trainer shares prefixes,
orders its passes or counts its labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parity.a0_compare import Compared, Depth, Sides, backward_results, depth_name, in_token_units, place_of, under
from parity.a0_sides import MLX_LAYERS, TORCH, answer_of
from parity.budgets import Budgets
from parity.gate_request import BACKWARD, FORWARD, TRACE, GateRequest
from parity.runners.torch_adapters import norm_of
from weights_bridge.adapter_file import read_adapter
from weights_bridge.compare import Array, GateResult, compare

Arrays = Mapping[str, Array]
BETWEEN, NORM = "between the layers", "adapter norm"
OTHER = {"detached": "attached", "attached": "detached"}


def explain_forward(asked: GateRequest, sides: Sides, forward: Compared, budgets: Budgets) -> Depth:
    """Find the first layer that misses by itself and put it before the results; return dB of each place alone."""
    given = {name: array for name, array in sides.fp64.items() if name.startswith("row")}
    found = answer_of(MLX_LAYERS, asked.with_(parts=[FORWARD]), given)
    begin, depth = forward_begin(given, found, len(asked.rows), budgets)
    forward.results.insert(0, begin)
    return depth


def forward_begin(given: Arrays, found: Arrays, rows: int, budgets: Budgets) -> tuple[GateResult, Depth]:
    """Return the place where the forward pass begins to miss, and dB of each place alone, by row.

    Args:
        given: torch's hidden states and logits.
        found: what each layer made of them.
        rows: how many.
        budgets: the architecture's.
    """
    by_row = [_row_alone(given, found, index, budgets.forward_db) for index in range(rows)]
    order = [result.where for result in by_row[0]]
    begin = _begin("forward", [result for row in by_row for result in row], order, budgets.forward_db)
    return begin, {f"forward row {i}": {result.where: result.psnr_db for result in row} for i, row in enumerate(by_row)}


def _row_alone(given: Arrays, found: Arrays, index: int, budget_db: float) -> list[GateResult]:
    results = []
    for k in range(sum(1 for name in given if name.startswith(f"row{index}/hidden"))):
        wanted, got = in_token_units(given[f"row{index}/hidden{k}"], found[f"row{index}/hidden{k}"])
        results.append(compare(f"row {index}", wanted, got, budget_db, where=depth_name(k)))
    logits = f"row{index}/logits"
    return [*results, compare(f"row {index}", given[logits], found[logits], budget_db, where="head")]


def explain_backward(asked: GateRequest, backward: Compared, budgets: Budgets) -> Depth:
    """Find the place whose gradients miss by themselves and put it before the results; return dB of each alone."""
    wanted = under("fp64/", answer_of(TORCH, asked.with_(parts=[TRACE])))
    trace = {name: array for name, array in wanted.items() if name.startswith("trace/")}
    found = answer_of(MLX_LAYERS, asked.with_(parts=[BACKWARD]), trace)
    begin, depth = backward_begin(wanted, found, len(asked.backward_rows), budgets)
    backward.results.insert(0, begin)
    return depth


def backward_begin(wanted: Arrays, found: Arrays, rows: int, budgets: Budgets) -> tuple[GateResult, Depth]:
    """Return the first place, from the head down, whose gradients miss by themselves, and dB of each place alone.

    A place's level is the worst of its tensors and of the gradient it hands on.

    Args:
        wanted: torch's trace and gradients.
        found: what each layer made of the trace.
        rows: how many.
        budgets: the architecture's.
    """
    alone = _gradients_alone(wanted, found, rows, budgets.backward_db)
    layers = sorted({int(r.where.split()[1]) for r in alone if r.where.startswith("layer ")}, reverse=True)
    order = ["head", *(f"layer {layer}" for layer in layers)]
    depth = {place: [r.psnr_db for r in alone if r.where == place and r.psnr_db is not None] for place in order}
    worst = {place: min(levels, default=None) for place, levels in reversed(depth.items())}
    return _begin("backward", alone, order, budgets.backward_db), {"backward": worst}


def _gradients_alone(given: Arrays, found: Arrays, rows: int, budget_db: float) -> list[GateResult]:
    layers = sum(1 for name in found if name.startswith("row0/grad")) - 1
    results = []
    for index in range(rows):
        for k in range(layers + 1):
            where = "head" if k == layers else f"layer {k}"
            wanted, got = given[f"trace/row{index}/grad{k}"], found[f"row{index}/grad{k}"]
            label = f"gradient handed on, row {index}"
            results.append(compare(label, wanted, got, budget_db, where=where))
    for name in sorted(given.keys() & found.keys()):
        short = name.removeprefix("grad/")
        if name.startswith("grad/") and place_of(short).startswith("layer "):
            results.append(compare(short, given[name], found[name], budget_db, where=place_of(short)))
    return results


def _begin(direction: str, alone: list[GateResult], order: list[str], budget_db: float) -> GateResult:
    """Return the failed result that names the first place in an order."""
    for place in order:
        missed = [result for result in alone if result.where == place and not result.passed]
        if missed:
            worst = min(missed, key=lambda r: -1e9 if r.psnr_db is None else r.psnr_db)
            named = "" if worst.tensor.startswith("row ") else f" ({worst.tensor})"
            level = worst.reason if worst.psnr_db is None else f"{worst.psnr_db:.1f} dB"
            within = len([p for p in order if p not in {r.where for r in alone if not r.passed}])
            detail = (
                f"{place} alone, fed with torch's activations: {level}{named}; {within} of {len(order)} places within"
            )
            return GateResult(
                f"{direction} begins", False, worst.reason, None, None, worst.psnr_db, budget_db, None, place, detail
            )
    detail = "every layer alone is within its budget: shared prefixes, order of passes or counting of labels differ"
    if direction == "forward":
        detail = "every layer alone is within its budget: small errors add up over the layers"
    return GateResult(f"{direction} begins", False, "below budget", budget=budget_db, where=BETWEEN, detail=detail)


def norm_result(asked: GateRequest, sides: Sides, backward: Compared, budgets: Budgets) -> GateResult | None:
    """Say whether gradients flow through the adapter's norms, and whether both sides agree on it.

    The file names the convention. Where gradients miss, torch computes the other one: if all then pass, the trainer
    followed another convention than it wrote down, and that is the finding. None for adapters without norms.
    """
    stated = norm_of(read_adapter(Path(asked.adapter)))
    if stated is None:
        return None
    if not backward.failed:
        return GateResult(NORM, True, "as stated", where=NORM, detail=stated)
    torch = answer_of(TORCH, asked.with_(parts=[BACKWARD], norm=OTHER[stated]))
    other = Sides(sides.mlx, under("fp32/", torch), under("fp64/", torch))
    return norm_verdict(stated, other, len(asked.backward_rows), budgets)


def norm_verdict(stated: str, other: Sides, rows: int, budgets: Budgets) -> GateResult:
    """Return whether MLX's gradients, which miss, are those of the convention that the file does not state."""
    if backward_results(other, rows, budgets).failed:
        return GateResult(NORM, True, "not the cause", where=NORM, detail=stated)
    detail = f"the trainer's gradients are those of {OTHER[stated]} norms, the adapter's file says {stated}"
    return GateResult(NORM, False, "altered", where=NORM, detail=detail)
