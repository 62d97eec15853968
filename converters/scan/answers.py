"""What predicates and checks answer with, and how they follow a tensor back to where it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from converters.scan.view import Place

TRUTHS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Xor", "IsInf", "IsNaN"}
CARRIERS = {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Slice", "Gather", "Tile"}
CARRIED_AT_MOST = 64  # operators that only carry a tensor, followed back from where it is read
BOOL = 9


class Found(NamedTuple):
    """That a predicate holds.

    Attributes:
        evidence: what was found, for people; empty where the rule's words say it all.
        sure: False where only a run can tell.
    """

    evidence: str = ""
    sure: bool = True


Answer = Found | None
CHECKS: dict[str, Callable[[Place], Answer]] = {}


def check(function: Callable[[Place], Answer]) -> Callable[[Place], Answer]:
    """Register a predicate of one rule under its function's name."""
    CHECKS[function.__name__] = function
    return function


def origin(place: Place, name: str) -> str:
    """Follow a tensor back through operators that only carry it."""
    for _ in range(CARRIED_AT_MOST):
        maker = place.view.maker(name)
        if maker is None or maker.op_type not in CARRIERS or not maker.input:
            break
        name = maker.input[0]
    return name


def carried_from(place: Place, name: str) -> Any:
    """Return the node that computes a tensor, behind operators that only carry it; None for none."""
    return place.view.maker(origin(place, name))


def whole(value: np.ndarray | None) -> list[float] | None:
    """Return a constant's numbers as a list, None where they are not known."""
    return None if value is None or value.dtype.kind in "OSUV" else [float(item) for item in value.reshape(-1)]
