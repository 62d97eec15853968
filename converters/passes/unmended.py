"""Why `fix` has no pass for a finding: `unmended.json`, ids and operators (patterns) with their reason."""

from __future__ import annotations

import functools
import json
from fnmatch import fnmatchcase
from importlib import resources

from converters.passes.base import OPERATOR_FINDINGS

BY_OPERATOR = (*OPERATOR_FINDINGS, "CONTROL_FLOW")


@functools.cache
def rows() -> list[dict[str, list[str] | str]]:
    """Return the reasons: `why`, `findings`, `operators`; the first that fits counts."""
    return json.loads(resources.files("converters.passes").joinpath("unmended.json").read_text(encoding="utf-8"))


def why_not(finding_id: str, operator: str = "") -> str:
    """Return why nothing mends a finding; empty where no reason is given.

    Args:
        finding_id: id of a rule.
        operator: `Name` or `domain::Name`, which decides where the finding is about an operator as such.
    """
    key, name = ("operators", operator) if finding_id in BY_OPERATOR else ("findings", finding_id)
    return next((str(row["why"]) for row in rows() if any(fnmatchcase(name, one) for one in row.get(key, ()))), "")
