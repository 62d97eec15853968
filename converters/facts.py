"""Sentis facts: one data file per package version, later ones as deltas on an earlier one."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from weights_bridge.errors import unknown_name


def versions() -> list[str]:
    """Return the versions with a facts file, oldest first."""
    files = resources.files("converters").joinpath("sentis").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


@functools.cache
def facts(version: str) -> dict[str, Any]:
    """Return what is known about one version of Sentis, deltas applied.

    Raises:
        StageError: a version without facts: nothing is predicted about it.
    """
    if version not in versions():
        raise unknown_name("Sentis version (not predicted)", version, versions())
    text = resources.files("converters").joinpath("sentis", f"{version}.json").read_text(encoding="utf-8")
    known = json.loads(text)
    if "base" not in known:
        return known
    base = facts(known["base"])
    merged = base | {key: value for key, value in known.items() if key != "base"}
    merged["handled"] = sorted({*base["handled"], *known.get("handled_added", ())})
    gone = set(known.get("rules_removed", ()))
    for rules in ("attribute_rules", "input_rules"):
        merged[rules] = [rule for rule in base[rules] if rule["id"] not in gone]
    return merged
