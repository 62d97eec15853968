"""Prepared rows: token ids and which of them are trained.

`trained` holds half-open spans of *target tokens*: the token at position t is trained, predicted from the hidden state
at t − 1. Trained are all assistant turns and the end-of-turn token behind each; headers, user turns, tool results and
the newline behind the end of turn never are. Padding is no part of a row, so `pad == end of turn` hides no end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.conversation import for_template
from mlx_sentis.prepare.rows import Row, calls_of
from mlx_sentis.prepare.spans import Rendering, Turn, render_spans
from mlx_sentis.prepare.tools import serialised
from mlx_sentis.templates import TEMPLATE_HINT
from weights_bridge.errors import StageError

ROWS_PER_CALL = 512  # the fast tokenizers work on a batch with all cores
Offsets = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Prepared:
    """One row, ready to train.

    Attributes:
        row: what was read.
        text: the rendered row.
        ids: its token ids.
        prompt_tokens: `ids[:prompt_tokens]` is the prompt of the last turn.
        trained: half-open spans of trained tokens.
        edited_turns: how many assistant turns lost text in rendering.
    """

    row: Row
    text: str
    ids: list[int]
    prompt_tokens: int
    trained: list[tuple[int, int]]
    edited_turns: int

    @property
    def trained_tokens(self) -> int:
        return sum(stop - start for start, stop in self.trained)

    def as_json(self, name: str) -> dict[str, Any]:
        """Return the row as `data/*.jsonl` holds it."""
        return {
            "id": name,
            "messages": self.row.messages,
            "tools": self.row.tools,
            "text": self.text,
            "ids": self.ids,
            "prompt_tokens": self.prompt_tokens,
            "trained": [list(span) for span in self.trained],
            "expect": self.row.expect(),
            "source": self.row.source.replace("\\", "/").rpartition("/")[2],
        }


def prepared_rows(rows: Sequence[Row], tokenizer: Any, recipe: dict[str, Any]) -> Iterator[Prepared | str]:
    """Yield, for each row in order, the prepared row or `file:line: reason` why it cannot be trained.

    Args:
        rows: rows as read.
        tokenizer: a fast tokenizer, from `load_tokenizer`.
        recipe: the model's recipe (`tools`, `stop_ids`, `bos_id`).

    Raises:
        StageError: the tokenizer has no offsets, or the model has no chat template.
    """
    if not tokenizer.chat_template:  # not a row's fault: every row would say the same
        raise StageError(f"{tokenizer.name_or_path}: no chat template in its files", hint=TEMPLATE_HINT)
    if not tokenizer.is_fast:
        raise StageError(
            f"{tokenizer.name_or_path}: a slow tokenizer gives no character offsets, so no mask is certain",
            hint="add the model's tokenizer.json",
        )
    specials = special_texts(tokenizer)
    for first in range(0, len(rows), ROWS_PER_CALL):
        yield from _prepared_batch(rows[first : first + ROWS_PER_CALL], tokenizer, recipe, specials)


def special_texts(tokenizer: Any) -> list[str]:
    """Return the texts that become special tokens wherever they stand."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens})


def _prepared_batch(
    rows: Sequence[Row], tokenizer: Any, recipe: dict[str, Any], specials: list[str]
) -> Iterator[Prepared | str]:
    renderings: list[Rendering | str] = []
    for row in rows:
        try:
            renderings.append(_rendering(row, tokenizer, recipe["tools"], specials))
        except ValueError as error:
            renderings.append(f"{row.source}: {error}")
    good = [rendering for rendering in renderings if not isinstance(rendering, str)]
    if not good:
        yield from (rendering for rendering in renderings if isinstance(rendering, str))
        return
    texts = [rendering.text for rendering in good]
    whole = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    encoded = zip(whole["input_ids"], whole["offset_mapping"], strict=True)
    flat = [prompt for rendering in good for prompt in rendering.prompts]
    prompts = iter(tokenizer(flat, add_special_tokens=False)["input_ids"])
    for row, rendering in zip(rows, renderings, strict=True):
        if isinstance(rendering, str):
            yield rendering
            continue
        ids, offsets = next(encoded)
        try:
            yield _prepared(row, rendering, ids, offsets, [next(prompts) for _ in rendering.prompts], recipe)
        except ValueError as error:
            yield f"{row.source}: {error}"


def _rendering(row: Row, tokenizer: Any, style: str, specials: list[str]) -> Rendering:
    for index, message in enumerate(row.messages):
        texts = [message["content"], *map(serialised, calls_of(message))]
        if special := next((special for special in specials for text in texts if special in text), None):
            raise ValueError(f"messages[{index}]: the text has the special token {special!r}, which would end a turn")
    shaped = for_template(row.messages, row.tools, style)
    try:
        return render_spans(tokenizer, shaped, row.tools, style)
    except StageError as error:
        raise ValueError(error.message) from None


def _prepared(
    row: Row, rendering: Rendering, ids: list[int], offsets: Offsets, prompts: list[list[int]], recipe: dict[str, Any]
) -> Prepared:
    if (bos := recipe.get("bos_id")) is not None and ids[:2] == [bos, bos]:
        raise ValueError(f"the row begins with the beginning-of-sequence token ({bos}) twice, wanted once")
    starts = [start for start, _ in offsets]
    trained = [_token_span(turn, rendering.text, ids, offsets, starts, recipe) for turn in rendering.turns]
    for (first, _), prompt in zip(trained, prompts, strict=True):
        if ids[:first] != prompt:
            raise ValueError(_boundary(rendering.text, offsets, max(0, first - 1)))
    last_first, last_stop = trained[-1]
    _check_round_trip(row, rendering.text[rendering.turns[-1].start : offsets[last_stop - 1][0]], recipe["tools"])
    return Prepared(row, rendering.text, ids, last_first, trained, rendering.edited_turns)


def _check_round_trip(row: Row, answer: str, style: str) -> None:
    """Require that the rendered answer reads back as the row's calls."""
    if not row.calls:
        return
    calls = parse_answer(answer, style).calls
    if len(calls) != len(row.calls) or not all(a.same_as(b) for a, b in zip(calls, row.calls, strict=True)):
        raise ValueError(f"the rendered call does not read back: {answer.strip()[:120]!r}")


def _token_span(
    turn: Turn, text: str, ids: list[int], offsets: Offsets, starts: list[int], recipe: dict[str, Any]
) -> tuple[int, int]:
    """Return the half-open token span of one turn, its end-of-turn token included."""
    first = bisect_left(starts, turn.start)
    if first and offsets[first - 1][1] > turn.start:
        raise ValueError(_boundary(text, offsets, first - 1))
    stops = recipe["stop_ids"]
    for index in range(bisect_left(starts, turn.stop), len(ids)):
        if starts[index] >= turn.limit:
            break
        if ids[index] in stops:
            if index == first:
                raise ValueError("nothing but the end of turn would be trained")
            return first, index + 1
    behind = text[turn.stop : turn.stop + 24]
    wanted = ", ".join(recipe.get("stop_tokens") or map(str, stops))
    raise ValueError(f"no end-of-turn token behind the answer: found {behind!r}, wanted {wanted}")


def _boundary(text: str, offsets: Offsets, index: int) -> str:
    piece = text[offsets[index][0] : offsets[index][1]]
    return f"token {index} ({piece!r}) straddles the edge of prompt and answer: inference would never see it"
