"""The template's own opinion: what its `{% generation %}` blocks mark, held against the trained spans.

The spans win. They are proven to the byte, begin where inference's prompt ends and hold the end of turn, which many
templates leave outside of their blocks; marks are written by hand and tested by nobody. But a template that marks
something else says that its author thought of the turn otherwise, so each difference is told with turn and token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weights_bridge.errors import counted

if TYPE_CHECKING:
    from mlx_sentis.prepare.masks import Prepared

SHOWN = 24  # characters of a differing text


@dataclass(frozen=True)
class Disagreement:
    """A run of tokens on which the template's marks and the trained spans differ.

    Attributes:
        message: the place of the turn among the row's messages; None where no trained turn is near.
        token: the first token of the run.
        tokens: how many.
        text: what they say.
        is_trained: trained and not marked; otherwise marked and not trained.
        is_end: it is the end-of-turn token alone.
    """

    message: int | None
    token: int
    tokens: int
    text: str
    is_trained: bool
    is_end: bool = False

    @property
    def what(self) -> str:
        """What differs, without its place: rows of one template say the same."""
        if self.is_end:
            return f"the end of turn {self.text!r} is not marked by {{% generation %}}; it is trained all the same"
        if self.is_trained:
            return f"{self.text!r} is trained (it stands behind the prompt), but not marked by {{% generation %}}"
        return f"{self.text!r} is marked by {{% generation %}}, but not trained (it is no part of an answer)"

    def __str__(self) -> str:
        place = "outside of every trained turn" if self.message is None else f"messages[{self.message}]"
        return f"{place}, token {self.token}: {self.what}"


def disagreements(
    marks: Sequence[int],
    trained: Sequence[tuple[int, int]],
    text: str,
    offsets: Sequence[tuple[int, int]],
    places: Sequence[int],
    *,
    is_last_only: bool = False,
) -> tuple[Disagreement, ...]:
    """Return where the template's marks and the trained spans differ.

    Args:
        marks: per token 1 where a marked stretch touches it.
        trained: half-open token spans, one per trained turn.
        text: the rendered row.
        offsets: per token its characters.
        places: the messages of the trained turns.
        is_last_only: earlier turns of the assistant are marked, and rightly not trained.
    """
    begin = trained[0][0] if is_last_only else 0
    while is_last_only and begin and marks[begin - 1]:  # a header that is marked belongs to the turn
        begin -= 1
    ours = bytearray(len(marks))
    for start, stop in trained:
        ours[start:stop] = b"\x01" * (stop - start)
    if ours[begin:] == bytes(marks[begin:]):
        return ()
    ends = {stop - 1 for _, stop in trained}
    runs: list[list[int]] = []
    for token, (mark, our) in enumerate(zip(marks, ours, strict=True)):
        if mark == our or token < begin:
            continue
        if runs and runs[-1][-1] == token - 1 and ours[token - 1] == our and not {token, token - 1} & ends:
            runs[-1].append(token)
        else:
            runs.append([token])
    return tuple(_disagreement(run, ours, ends, trained, text, offsets, places) for run in runs)


def _disagreement(
    run: Sequence[int],
    ours: Sequence[int],
    ends: set[int],
    trained: Sequence[tuple[int, int]],
    text: str,
    offsets: Sequence[tuple[int, int]],
    places: Sequence[int],
) -> Disagreement:
    first, last = run[0], run[-1]
    spans = zip(places, trained, strict=True)
    turn = next((place for place, (start, stop) in spans if first <= stop and last >= start - 1), None)
    words = text[offsets[first][0] : offsets[last][1]]
    shown = words if len(words) <= SHOWN else words[:SHOWN] + "…"
    return Disagreement(turn, first, len(run), shown, bool(ours[first]), first in ends)


@dataclass
class MarkTally:
    """Counts disagreements over all rows, so that a report says each kind once."""

    rows: int = 0
    kinds: Counter[tuple[str, bool]] = field(default_factory=Counter)
    first: dict[tuple[str, bool], str] = field(default_factory=dict)

    def see(self, prepared: Prepared) -> None:
        """Count one row."""
        self.rows += bool(prepared.disagreements)
        for one in prepared.disagreements:
            key = (one.what if one.is_end or not one.is_trained else "", one.is_trained)
            self.kinds[key] += 1
            self.first.setdefault(key, f"{prepared.row.source}, {one}")

    def notes(self) -> list[str]:
        """Return a line per kind of disagreement: how often, and where first."""
        return [f"{counted(self.kinds[key], 'turn')}: {where}" for key, where in self.first.items()]
