"""Two greedy continuations, token for token."""

from __future__ import annotations

from collections.abc import Sequence

from weights_bridge.compare import Array, GateResult


def compare_greedy(
    name: str,
    wanted: tuple[Sequence[int], Sequence[Array]],
    found: tuple[Sequence[int], Sequence[Array]],
) -> GateResult:
    """Compare the ids a runtime chose with the reference's; the first difference is explained by both margins.

    Args:
        name: the prompt's name.
        wanted: the reference's ids, and the logits row [V] behind each.
        found: the same of the side under test.
    """
    label = f"greedy / {name}"
    if not wanted[0]:
        return GateResult(label, False, "nothing compared", where=name, detail="the reference chose no token")
    for step, (right, chosen) in enumerate(zip(wanted[0], found[0], strict=False)):
        if right != chosen:
            margins = (wanted[1][step][right] - wanted[1][step][chosen], found[1][step][chosen] - found[1][step][right])
            detail = (
                f"step {step}: the original chose {right} (ahead of {chosen} by {margins[0]:.4g}), "
                f"the graph chose {chosen} (ahead of {right} by {margins[1]:.4g})"
            )
            return GateResult(label, False, "token mismatch", where=f"{name}, step {step}", detail=detail)
    if len(wanted[0]) != len(found[0]):
        detail = f"found {len(found[0])} tokens, wanted {len(wanted[0])}"
        return GateResult(label, False, "length", where=f"{name}, step {len(found[0])}", detail=detail)
    return GateResult(label, True, "exact", where=name, detail=f"{len(wanted[0])} tokens equal")
