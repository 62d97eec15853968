"""What can be said of every prepared row without rendering it: ids, text, spans, and how many turns are trained.

`checks.check_rows` derives rows again and takes about a second for a thousand; this takes one call of the tokenizer for
512 rows, so that no row of a large data set is trained unseen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

from mlx_sentis.prepare.checks import NEEDED
from mlx_sentis.prepare.masks import ROWS_PER_CALL, TrainTurns
from mlx_sentis.prepare.spans import assistant_turns
from weights_bridge.compare import GateResult
from weights_bridge.errors import counted

FIRST, SAMPLED = 8, 32  # rows that are rendered again: of the beginning, of the whole split
Row = Mapping[str, Any]


def row_faults(rows: Sequence[Row], tokenizer: Any, stop_ids: Sequence[int], train_turns: str) -> list[str]:
    """Return a line for every row that `prepare` cannot have written, with the first thing that is wrong with it.

    Args:
        rows: rows of `data/*.jsonl`.
        tokenizer: of the model that is trained.
        stop_ids: what ends a turn.
        train_turns: `all` or `last`, as the prompt contract says.
    """
    faults: list[str] = []
    for start in range(0, len(rows), ROWS_PER_CALL):
        part = rows[start : start + ROWS_PER_CALL]
        whole = [row for row in part if all(key in row for key in NEEDED)]
        texts = [row["text"] for row in whole]
        found = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
        again = iter(found)
        for number, row in enumerate(part, start):
            if missing := [key for key in NEEDED if key not in row]:
                why = f"has no {', '.join(missing)}"
            else:
                why = ids_fault(row["ids"], next(again)) or spans_fault(row, stop_ids) or turns_fault(row, train_turns)
            faults += [f"row {row.get('id', f'number {number}')}: {why}"] if why else []
    return faults


def ids_fault(ids: Sequence[int], wanted: Sequence[int]) -> str:
    """Return where ids differ from those of the row's text, the empty text where they do not."""
    if list(ids) == list(wanted):
        return ""
    place = next((at for at, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b), None)
    if place is None:
        return f"{len(ids)} ids, its text has {len(wanted)} tokens"
    return f"ids and text part at token {place}: found {ids[place]}, the text has {wanted[place]}"


def spans_fault(row: Row, stop_ids: Sequence[int]) -> str:
    """Return what is wrong with a row's trained spans by themselves, the empty text where nothing is."""
    ids, spans = row["ids"], row["trained"]
    if not spans:
        return "no token is trained"
    for start, stop in spans:
        if not 0 < start < stop <= len(ids):
            return f"trained span {start}–{stop} is empty or outside of {counted(len(ids), 'token')}"
        if ids[stop - 1] not in stop_ids:
            return f"trained span {start}–{stop} ends in token id {ids[stop - 1]}, wanted the end of a turn"
    if any(later[0] < earlier[1] for earlier, later in pairwise(spans)):
        return f"trained spans {spans} overlap or are out of order"
    if row["prompt_tokens"] != spans[-1][0]:
        return f"the last trained span begins at {spans[-1][0]}, its prompt has {row['prompt_tokens']} tokens"
    return ""


def turns_fault(row: Row, train_turns: str) -> str:
    """Return how the number of trained turns differs from what the setting says, the empty text where it does not."""
    turns = len(assistant_turns(row["messages"]))
    wanted = 1 if train_turns == "last" else turns
    found = len(row["trained"])
    if found == wanted:
        return ""
    return f"trains {found} of {counted(turns, 'turn')}, train_turns = {train_turns} wants {wanted}"


def turns_result(rows: Sequence[Row], train_turns: str) -> GateResult:
    """Compare the contract's `train_turns` with what rows show; rows with one turn fit both.

    Args:
        rows: rows of `data/train.jsonl`; those without messages or spans show nothing.
        train_turns: what the contract says.
    """
    name, known = "contract train_turns", get_args(TrainTurns)
    if train_turns not in known:
        detail = f"found {train_turns!r}, wanted one of {', '.join(known)}"
        return GateResult(name, False, "altered", where="train_turns", detail=detail)
    first = next(_other_turns(rows, train_turns), "")
    reason, where = ("altered", "train_turns") if first else ("exact", "")
    return GateResult(name, not first, reason, where=where, detail=first)


def rows_to_render(rows: Sequence[Any], stop_ids: Sequence[int], seed: int) -> list[Any]:
    """Return the rows to render again: the first, some over the whole split, and those whose spans look odd.

    A span may only begin where the assistant does, which takes a rendering to tell: conversations of several turns and
    spans that go over the end of a turn come first.

    Args:
        rows: rows of one split.
        stop_ids: what ends a turn.
        seed: of the sample.
    """
    several = [at for at, row in enumerate(rows) if len(row["trained"]) > 1]
    odd = [at for at, row in enumerate(rows) if _goes_over_an_end(row, stop_ids)]
    sample = random.Random(seed).sample(range(len(rows)), min(SAMPLED, len(rows)))
    chosen = {*range(min(FIRST, len(rows))), *several[:FIRST], *odd[:SAMPLED], *sample}
    return [rows[at] for at in sorted(chosen)]


def _goes_over_an_end(row: Row, stop_ids: Sequence[int]) -> bool:
    return any(token in stop_ids for start, stop in row["trained"] for token in row["ids"][start : stop - 1])


def _other_turns(rows: Sequence[Row], train_turns: str) -> Iterator[str]:
    for row in rows:
        if "messages" in row and "trained" in row and (why := turns_fault(row, train_turns)):
            yield f"row {row['id']} {why}"
