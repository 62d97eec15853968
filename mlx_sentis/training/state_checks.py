"""What a state on disk must be before anything is taken from it: whole, of the right kinds, and as it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from weights_bridge.files import sha256_of

DIGEST = "arrays_sha256"  # of the arrays' file; states of older versions have none
WORD = 2**32
MOST_STREAMS = 64  # more than any version takes


def document_faults(document: Mapping[str, Any], figures: Mapping[str, Any], cursor: Sequence[str]) -> list[str]:
    """Return what the JSON part of a state lacks or has of the wrong kind, one line each.

    Args:
        document: of `state.json`.
        figures: name to type of the figures at its top.
        cursor: names of the place in the data.
    """
    wanted = dict(figures) | {"rng": list[int], "optimizer": dict[str, int], "made_from": dict}
    faults = _faults(document, wanted, "")
    found = document.get("cursor", {})
    faults += _faults(found if isinstance(found, dict) else {}, dict.fromkeys(cursor, int), "cursor.")
    key: Any = document.get("rng")
    if is_of(key, list[int]) and not (len(key) == 2 and all(0 <= word < WORD for word in key)):
        faults.append("rng: wanted two words of 32 bits")
    if "sharing" in document:  # states of older versions have none
        faults += _rule_faults(document["sharing"])
    made_from = document.get("made_from")
    if isinstance(made_from, dict):
        faults += _faults(
            made_from, {"settings": dict[str, dict], "files": dict[str, str], "trained": dict}, "made_from."
        )
    return faults


def _rule_faults(rule: Any) -> list[str]:
    faults = _faults(rule if isinstance(rule, dict) else {}, {"least_ratio": float, "streams": int}, "sharing.")
    if not faults and not (rule["least_ratio"] >= 1 and 1 <= rule["streams"] <= MOST_STREAMS):
        faults = [f"sharing: wanted a ratio of at least 1 and 1 to {MOST_STREAMS} streams, found {rule}"]
    return faults


def _faults(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> list[str]:
    lacking = [f"{where}{name}" for name in wanted if name not in found]
    kinds = {name: kind for name, kind in wanted.items() if name in found and not is_of(found[name], kind)}
    return lacking + [f"{where}{name}: found {str(found[name])[:40]!r}, which it cannot be" for name in kinds]


def is_of(value: Any, kind: Any) -> bool:
    """Tell whether a JSON value is of a type such as `int`, `float | None`, `list[float]` or `dict[str, int]`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list:
        return isinstance(value, list) and all(is_of(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_of(one, inner[1]) for one in value.values())
    if inner:  # a union
        return any(is_of(value, one) for one in inner)
    if kind is NoneType or kind is None:
        return value is None
    if kind in (int, float):  # in JSON, 2.0 may come back as 2; true is no number
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


def array_faults(document: Mapping[str, Any], arrays: Path) -> list[str]:
    """Return why the arrays' file is not the one that was written with the document.

    Args:
        document: of `state.json`.
        arrays: `state.safetensors`.
    """
    if not arrays.is_file():
        return [arrays.name]
    wanted = document.get(DIGEST)
    if wanted is not None and (found := sha256_of(arrays)) != wanted:
        return [f"{arrays.name} as it was written: sha256 found {found[:12]}…, recorded {str(wanted)[:12]}…"]
    return []
