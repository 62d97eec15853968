"""Scoring tool calls on separated axes: never one number.

A fine-tune may choose the right tool every time and have forgotten how to decline; an average would hide it.
So each axis has its own units, counts, interval and before/after verdict:

| axis | units | right when |
|---|---|---|
| function_selection | rows that want a call | a well-formed call names the wanted tool |
| arguments_exact, arguments_normalised | wanted arguments of rows with the right tool | the value is equal |
| arguments_exact_all, arguments_normalised_all | wanted arguments of rows that want a call | tool and value are right |
| whole_call | rows that want a call | tool and all arguments are right (normalised), none is added |
| out_of_scope_rejection | rows that want no call | no call is made or begun |
| format_validity | all rows | the text is `none` or a well-formed call of a known tool |

"Normalised" compares texts without regard to case, a leading article, and spacing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlx_sentis.evaluation.intervals import wilson_interval
from mlx_sentis.prepare.answers import parse_answer

AXES = (
    "function_selection",
    "arguments_exact",
    "arguments_normalised",
    "arguments_exact_all",
    "arguments_normalised_all",
    "whole_call",
    "out_of_scope_rejection",
    "format_validity",
)
Unit = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a model's text says.

    Attributes:
        kind: `call` (well-formed, known tool), `none` (declined in the agreed words), `broken` (a call begun, but not
            well-formed or of an unknown tool), `prose` (any other text: nothing would be called).
        name: the tool, for `call`.
        arguments: its arguments, for `call`.
    """

    kind: Literal["call", "none", "broken", "prose"]
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Axis:
    """One axis: the verdict on each of its units.

    Attributes:
        units: unit (row id, or row id and argument) to whether it is right.
    """

    units: dict[Unit, bool] = field(default_factory=dict)

    @property
    def right(self) -> int:
        return sum(self.units.values())

    @property
    def of(self) -> int:
        return len(self.units)

    def as_json(self) -> dict[str, Any]:
        """Return counts, share and 95 % Wilson interval; share and ends are None when nothing was counted."""
        interval = wilson_interval(self.right, self.of)
        low, high = interval or (None, None)
        share = self.right / self.of if self.of else None
        return {"right": self.right, "of": self.of, "share": share, "low": low, "high": high}


def read_answer(text: str, tools: Collection[str], style: str) -> Answer:
    """Read a generated text.

    Args:
        text: without its end-of-turn token.
        tools: the names that may be called; a call of any other, or of two at once, is `broken`.
        style: the recipe's tool convention, `system-block` or `template`.
    """
    parsed = parse_answer(text, style)
    if parsed.kind != "call":
        return Answer(parsed.kind)
    if len(parsed.calls) != 1 or parsed.calls[0].name not in tools:
        return Answer("broken")
    return Answer("call", parsed.calls[0].name, parsed.calls[0].arguments)


def normalised(value: Any) -> Any:
    """Return a value without case, leading article and surplus spacing; what is no text is returned as it is."""
    if not isinstance(value, str):
        return value
    words = " ".join(value.split()).casefold()
    return re.sub(r"^(?:the|an|a) (?=.)", "", words)


def same_value(found: Any, wanted: Any) -> bool:
    """Tell whether two argument values are the same JSON value (`1`, `1.0`, `"1"` and `true` all differ)."""
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def score(outcomes: Iterable[tuple[Mapping[str, Any], Answer]]) -> dict[str, Axis]:
    """Score answers on every axis.

    Args:
        outcomes: prepared row (`id`, `expect`) and answer. Rows with `expect` None have no right answer and are
            not counted.

    Raises:
        ValueError: two rows have the same id.
    """
    axes = {name: Axis() for name in AXES}
    seen: set[str] = set()
    for row, answer in outcomes:
        if row["id"] in seen:
            raise ValueError(f"row id {row['id']!r} appears twice")
        seen.add(row["id"])
        expect = row["expect"]
        if expect is None:
            continue
        axes["format_validity"].units[row["id"],] = answer.kind in ("call", "none")
        if expect["kind"] == "call":
            _score_call(axes, row["id"], expect, answer)
        else:
            axes["out_of_scope_rejection"].units[row["id"],] = answer.kind in ("none", "prose")
    return axes


def arguments_by_name(outcomes: Iterable[tuple[Mapping[str, Any], Answer]]) -> dict[str, dict[str, Axis]]:
    """Return `tool.argument` to its exact and normalised scores, over all rows that want that argument, by name.

    An argument counts as wrong where the tool is: what the game would not get is not extracted.
    """
    found: dict[str, dict[str, Axis]] = {}
    for row, answer in outcomes:
        expect = row["expect"]
        if expect is None or expect["kind"] != "call":
            continue
        axes = {name: Axis() for name in AXES}
        _score_call(axes, row["id"], expect, answer)
        for argument in expect["arguments"]:
            entry = found.setdefault(f"{expect['name']}.{argument}", {"exact": Axis(), "normalised": Axis()})
            for kind, axis in entry.items():
                axis.units[row["id"],] = axes[f"arguments_{kind}_all"].units[row["id"], argument]
    return dict(sorted(found.items()))


def _score_call(axes: dict[str, Axis], row: str, expect: Mapping[str, Any], answer: Answer) -> None:
    right_tool = answer.kind == "call" and answer.name == expect["name"]
    axes["function_selection"].units[row,] = right_tool
    whole = right_tool and answer.arguments.keys() <= expect["arguments"].keys()
    for argument, wanted in expect["arguments"].items():
        given = right_tool and argument in answer.arguments
        found = answer.arguments.get(argument)
        exact = given and same_value(found, wanted)
        near = given and same_value(normalised(found), normalised(wanted))
        whole = whole and near
        for axis, right in (("arguments_exact", exact), ("arguments_normalised", near)):
            axes[f"{axis}_all"].units[row, argument] = right
            if right_tool:
                axes[axis].units[row, argument] = right
    axes["whole_call"].units[row,] = whole
