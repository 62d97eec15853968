"""Comparing outputs that differ in type because Sentis knows float32 and int32 only.

Floats are held in dB. Integers and truth values are names of things (token ids, classes, places): they must be equal,
because one id off by one would read as a splendid PSNR.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.localiser import place_of
from weights_bridge.compare import Array, GateResult, compare

INTEGERS = "biu"


def compare_outputs(
    reference: Mapping[str, Array], candidate: Mapping[str, Array], budget_db: float, prefix: str = ""
) -> list[GateResult]:
    """Compare two sets of outputs by name, in the reference's order.

    Args:
        reference: the side that is right by definition.
        candidate: the other one; int32 for any integer or bool and float32 for any float is the same type here.
        budget_db: the least PSNR in dB that passes for floats.
        prefix: put before each name.
    """
    results = []
    for name, wanted in reference.items():
        label = f"{prefix}{name}"
        if name in candidate:
            results.append(compare_one(label, wanted, candidate[name], budget_db, place_of(name)))
        else:
            results.append(GateResult(label, False, "missing", budget=budget_db, where=place_of(name)))
    extra = [name for name in candidate if name not in reference]
    results += [GateResult(f"{prefix}{name}", False, "extra", where=place_of(name)) for name in extra]
    return results or [GateResult(prefix or "set", False, "nothing compared")]


def compare_one(label: str, wanted: Array, found: Array, budget_db: float, where: str = "") -> GateResult:
    """Compare one tensor: floats in dB, integers and truth values for equality.

    Args:
        label: the name to report.
        wanted: the reference.
        found: the candidate.
        budget_db: the least PSNR in dB that passes.
        where: the place to name when it fails.
    """
    whole = wanted.dtype.kind in INTEGERS, found.dtype.kind in INTEGERS
    if whole[0] != whole[1]:
        detail = f"found {found.dtype}, wanted {wanted.dtype}"
        return GateResult(label, False, "dtype", budget=None if whole[0] else budget_db, where=where, detail=detail)
    if not whole[0]:
        return compare(label, _float32(wanted), _float32(found), budget_db, where)
    if wanted.shape != found.shape:
        detail = f"found {found.shape}, wanted {wanted.shape}"
        return GateResult(label, False, "shape", where=where, detail=detail)
    if not wanted.size:
        return GateResult(label, False, "nothing compared", where=where, detail="the tensors are empty")
    differing = np.argwhere(wanted != found)
    if not len(differing):
        return GateResult(label, True, "exact", 0.0, 0.0, where=where)
    at = tuple(map(int, differing[0]))
    apart = float(np.abs(wanted.astype(np.float64) - found.astype(np.float64)).max())
    first = f"the first at {list(at)}: found {int(found[at])}, wanted {int(wanted[at])}"
    detail = f"{len(differing)} of {wanted.size} values differ, {first}"
    return GateResult(label, False, "differs", apart, where=where, detail=detail)


def _float32(array: Array) -> Array:
    return array if array.dtype == np.float32 else array.astype(np.float32)
