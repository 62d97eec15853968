"""Prepared rows: token ids and which of them are trained.

`trained` holds half-open spans of *target tokens*: the token at position t is trained, predicted from the hidden state
at t − 1. Trained are the assistant's turns (all, or the last) and the end-of-turn token behind each; headers, user
turns, tool results and the newline behind the end of turn never are. Padding is no part of a row, so
`pad == end of turn` hides no end.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mlx_sentis.prepare.conversation import Conversation, conversation_of, plain_frame, rendered
from mlx_sentis.prepare.marks import Disagreement, disagreements
from mlx_sentis.prepare.row_tokens import Encoded, RowTokens, turns_trained
from mlx_sentis.prepare.rows import Row, calls_of
from mlx_sentis.prepare.spans import Rendering, SpanFinder, plain_rendering
from mlx_sentis.prepare.too_long import (
    NO_PROMPT,
    NOT_CUT,
    Dropped,
    characters_per_token,
    fitted,
    least_tokens,
    shortened,
    visible,
    with_last,
)
from mlx_sentis.prepare.tools import serialised
from mlx_sentis.templates import require_template
from weights_bridge.errors import StageError

ROWS_PER_CALL = 512  # the fast tokenizers work on a batch with all cores
TrainTurns = Literal["all", "last"]
TooLong = Literal["refuse", "drop", "left"]


@dataclass(frozen=True)
class Prepared:
    """One row, ready to train.

    Attributes:
        row: what was read; with `too_long = "left"` its shortened messages.
        text: the rendered row.
        ids: its token ids.
        prompt_tokens: `ids[:prompt_tokens]` is the prompt of the last turn.
        trained: half-open spans of trained tokens.
        edited_turns: how many assistant turns lost text in rendering.
        cut_tokens: how many tokens of the prompt were cut away to fit; of a row of megabytes, at the least.
        disagreements: where the template's own `{% generation %}` marks differ from the spans.
    """

    row: Row
    text: str
    ids: list[int]
    prompt_tokens: int
    trained: list[tuple[int, int]]
    edited_turns: int
    cut_tokens: int = 0
    disagreements: tuple[Disagreement, ...] = ()

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
        } | ({"cut_tokens": self.cut_tokens} if self.cut_tokens else {})


def prepared_rows(
    rows: Iterable[Row],
    tokenizer: Any,
    recipe: dict[str, Any],
    *,
    train_turns: TrainTurns = "all",
    max_tokens: int | None = None,
    too_long: TooLong = "refuse",
) -> Iterator[Prepared | Dropped | str]:
    """Yield, for each row in order, the prepared row, or why it is left out or cannot be trained.

    Args:
        rows: rows as read, a stream or a list.
        tokenizer: a fast tokenizer, from `load_tokenizer`.
        recipe: the model's recipe (`tools`, `stop_ids`, `bos_id`).
        train_turns: all assistant turns, or only the last.
        max_tokens: the longest row in tokens; None is no limit.
        too_long: what becomes of a longer row: a fault, left out, or its prompt cut on the left.

    Yields:
        `Prepared`; `Dropped` for a row that `too_long` leaves out; `file:line: reason` for one that is at fault.

    Raises:
        StageError: the tokenizer has no offsets, or a row is a conversation and the model has no chat template.
    """
    maker = RowMaker(tokenizer, recipe, train_turns=train_turns, max_tokens=max_tokens, too_long=too_long)
    return maker.prepared(rows)


class RowMaker:
    """Prepares rows for one model; what it learns of template and tokenizer serves every later row.

    Args:
        tokenizer: a fast tokenizer, from `load_tokenizer`.
        recipe: the model's recipe (`tools`, `stop_ids`, `bos_id`).
        train_turns: all assistant turns, or only the last.
        max_tokens: the longest row in tokens; None is no limit.
        too_long: what becomes of a longer row.

    Raises:
        StageError: the tokenizer has no offsets.
    """

    def __init__(
        self,
        tokenizer: Any,
        recipe: dict[str, Any],
        *,
        train_turns: TrainTurns = "all",
        max_tokens: int | None = None,
        too_long: TooLong = "refuse",
    ) -> None:
        if not tokenizer.is_fast:
            raise StageError(
                f"{tokenizer.name_or_path}: a slow tokenizer gives no character offsets, so no mask is certain",
                hint="add the model's tokenizer.json",
            )
        self.tokenizer, self.recipe, self.last_only = tokenizer, recipe, train_turns == "last"
        self.tokens = RowTokens(tokenizer, recipe)
        self.max_tokens, self.too_long = max_tokens, too_long
        self.per_token = characters_per_token(tokenizer) if max_tokens is not None else None
        self.special = re.compile("|".join(map(re.escape, special_texts(tokenizer))) or "(?!)")
        stops = [tokenizer.decode([stop]) for stop in recipe["stop_ids"]]
        self.spans = SpanFinder(tokenizer, recipe["tools"], stops) if tokenizer.chat_template else None
        self.plain = plain_frame(tokenizer, recipe["stop_ids"])
        self.known_tools: list[dict[str, Any]] = []  # the last ones that were looked through

    def prepared(self, rows: Iterable[Row]) -> Iterator[Prepared | Dropped | str]:
        """Yield, for each row in order, what `prepared_rows` does."""
        source = iter(rows)
        while batch := list(itertools.islice(source, ROWS_PER_CALL)):
            for found in self._batch(batch):
                yield self._fitted(found) if isinstance(found, Prepared) else found

    def _fitted(self, found: Prepared) -> Prepared | Dropped | str:
        if self.max_tokens is None or len(found.ids) <= self.max_tokens:
            return found
        if self.too_long == "refuse":
            return f"{found.row.source}: {len(found.ids)} tokens, wanted at most {self.max_tokens} (data.max_tokens)"
        is_cut = self.too_long == "left"

        def prepare(row: Row) -> Prepared | Dropped | str:
            return next(self._batch([row], is_bounded=True))

        return fitted(found, self.max_tokens, prepare, self.tokenizer, is_cut=is_cut)

    def _hopeless(self, row: Row, text: str) -> Prepared | Dropped | str | None:
        """Return what becomes of a row that is too long by its characters alone: a minute of tokenising is spared."""
        least = least_tokens(text, self.per_token, self.max_tokens or 0)
        if not least:
            return None
        if self.too_long == "left":
            return self._shortened(row, visible(text), least)
        if self.too_long == "drop":
            return Dropped(row.source, f"at least {least} tokens, more than {self.max_tokens} (data.max_tokens)")
        return f"{row.source}: at least {least} tokens, wanted at most {self.max_tokens} (data.max_tokens)"

    def _shortened(self, row: Row, characters: int, least: int) -> Prepared | Dropped | str:
        """Return a row of megabytes without what cutting takes away in any case; what is left is cut as any other."""
        assert self.per_token is not None and self.max_tokens is not None
        characters_kept = self.per_token * self.max_tokens
        shorter = shortened(row, characters_kept, visible)
        if shorter is not None:  # few enough characters to count tokens; twice the window leaves room for their joining
            shorter = shortened(with_last(shorter, characters_kept), 2 * self.max_tokens, self._count)
        if shorter is None:
            what = f"at least {least} tokens, more than {self.max_tokens} (data.max_tokens)"
            return Dropped(row.source, f"{what}; {NO_PROMPT if row.is_plain_text else NOT_CUT}")
        found = next(self._batch([shorter], is_bounded=True))
        if not isinstance(found, Prepared):
            return found
        return replace(found, cut_tokens=(characters - visible(found.text)) // self.per_token)

    def _count(self, text: str) -> int:
        return len(self.tokens.tokenised([text])["input_ids"][0])

    def _gone(self, row: Row, one: Conversation | Rendering | ValueError) -> Prepared | Dropped | str | None:
        """Return what becomes of a row whose texts alone are too long, before each of its prompts is rendered."""
        most = (self.per_token or 0) * (self.max_tokens or 0)
        if not most or isinstance(one, ValueError):
            return None
        said = one.messages if isinstance(one, Conversation) else row.messages
        if sum(len(message["content"]) for message in said) <= most:
            return None
        try:
            text = one.text if isinstance(one, Rendering) else rendered(self.tokenizer, one)
        except StageError:  # the template refuses it, which is told with the other rows' faults
            return None
        return self._hopeless(row, text)

    def _batch(self, rows: Sequence[Row], *, is_bounded: bool = False) -> Iterator[Prepared | Dropped | str]:
        shaped = [self._shaped(row) for row in rows]
        if any(isinstance(one, Conversation) for one in shaped):
            require_template(self.tokenizer)  # not a row's fault: every row would say the same
        hopeless: dict[int, Prepared | Dropped | str] = {}
        for at, (row, one) in enumerate(zip(rows, shaped, strict=True)):
            if not is_bounded and (gone := self._gone(row, one)):
                hopeless[at] = gone
        wanted = [one for at, one in enumerate(shaped) if isinstance(one, Conversation) and at not in hopeless]
        found = self.spans.find(wanted, last_only=self.last_only) if self.spans else iter(())
        renderings = [
            next(found) if isinstance(one, Conversation) and at not in hopeless else one
            for at, one in enumerate(shaped)
        ]
        whole = [
            (one if isinstance(one, Conversation) else None, rendering)
            for at, (one, rendering) in enumerate(zip(shaped, renderings, strict=True))
            if isinstance(rendering, Rendering) and at not in hopeless
        ]
        encoded = self.tokens.encoded(whole)
        for at, (row, rendering) in enumerate(zip(rows, renderings, strict=True)):
            if at in hopeless:
                yield hopeless[at]
                continue
            if not isinstance(rendering, Rendering):
                yield f"{row.source}: {rendering}"
                continue
            try:
                yield self._prepared(row, rendering, next(encoded))
            except ValueError as error:
                yield f"{row.source}: {error}"

    def _shaped(self, row: Row) -> Conversation | Rendering | ValueError:
        """Return what is to be rendered; a plain text is its own rendering."""
        texts = [
            (f"messages[{index}]", text)
            for index, message in enumerate(row.messages)
            for text in (message["content"], *map(serialised, calls_of(message)))
        ]
        if row.tools != self.known_tools:
            texts.append(("tools", json.dumps(row.tools, ensure_ascii=False)))
        for where, text in texts:
            if special := self.special.search(text):
                what = f"the text has the special token {special.group()!r}, which would end a turn"
                return ValueError(f"{where}: {what}")
        self.known_tools = row.tools
        if row.is_plain_text:
            return plain_rendering(row.messages[0]["content"], *self.plain)
        return conversation_of(row.messages, row.tools, self.recipe["tools"])

    def _prepared(self, row: Row, rendering: Rendering, encoded: Encoded) -> Prepared:
        trained = self.tokens.trained(row, rendering, encoded, is_last_only=self.last_only)
        marks = ()
        if encoded.marks is not None:
            places = turns_trained(row, is_last_only=self.last_only)
            offsets, is_last_only = encoded.offsets, self.last_only
            marks = disagreements(encoded.marks, trained, rendering.text, offsets, places, is_last_only=is_last_only)
        edited = rendering.edited_turns
        return Prepared(row, rendering.text, encoded.ids, trained[-1][0], trained, edited, disagreements=marks)


def special_texts(tokenizer: Any) -> list[str]:
    """Return the texts that become special tokens wherever they stand, longer ones first."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens}, key=lambda text: (-len(text), text))
