"""What a command says when it cannot go on.

A `StageError` is the user's to mend: one line, a hint, no traceback. Anything else is a bug and
keeps its traceback. Exit codes: 0 done, 1 could not do it, 2 used wrongly, 3 a budget was missed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LISTED_AT_MOST = 20


class StageError(Exception):
    """A failure that one line explains and a hint mends.

    Args:
        message: what, where, found and wanted.
        hint: how to mend it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class BudgetMissedError(StageError):
    """Something was measured and lies outside its budget, or a gate that must have passed has not."""

    exit_code = 3


def all_at_once(heading: str, faults: Iterable[str], *, hint: str = "") -> StageError:
    """Return one error that lists every fault, sorted, capped at twenty with a count."""
    lines = sorted(faults)
    listed = "".join(f"\n  {line}" for line in lines[:LISTED_AT_MOST])
    rest = len(lines) - LISTED_AT_MOST
    return StageError(heading + listed + (f"\n  … and {rest} more" if rest > 0 else ""), hint=hint)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> StageError:
    """Return the error for a name nobody knows: it lists the known ones and the nearest."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return StageError(f"unknown {kind} {name!r}", hint=f"{hint}known: {', '.join(names) or 'none'}")
