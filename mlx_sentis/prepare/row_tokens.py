"""From a rendered row to its token ids, and to the spans of tokens that are trained.

Rendering says which characters are an assistant's turn (`mlx_sentis/prepare/spans.py`). Here they become tokens by the
tokenizer's character offsets, and what would make training and inference differ is a fault: a doubled begin token, a
token that lies on the edge of prompt and answer, a prompt that is no prefix of its row, a turn without its end.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.conversation import Conversation
from mlx_sentis.prepare.rows import Row, calls_of
from mlx_sentis.prepare.spans import Rendering, Turn, assistant_turns, same_calls
from mlx_sentis.templates import Tools, generation_masks, marks_generation, template_of

TAILS_KEPT = 256  # templates without a special token in their headers have as many tails as rows
Offsets = Sequence[tuple[int, int]]
START = itemgetter(0)


@dataclass(frozen=True)
class Encoded:
    """A row's tokens: ids, character offsets, and the template's own marks (1 marked, 0 not) where it has any."""

    ids: list[int]
    offsets: Offsets
    marks: Sequence[int] | None = None


class RowTokens:
    """Tokenises rendered rows for one model; the headers in front of answers are tokenised once and remembered.

    Args:
        tokenizer: a fast tokenizer, from `load_tokenizer`.
        recipe: the model's recipe (`tools`, `stop_ids`, `bos_id`).
    """

    def __init__(self, tokenizer: Any, recipe: dict[str, Any]) -> None:
        self.tokenizer, self.recipe = tokenizer, recipe
        self.specials = frozenset(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
        self.tails: dict[tuple[int, str], list[int]] = {}  # (a special token, what prompts have behind it): ids

    def tokenised(self, texts: list[str], *, offsets: bool = False) -> Any:
        """Tokenise rendered texts; the template has written what begins a row, so the tokenizer adds nothing."""
        return self.tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            return_offsets_mapping=offsets,
            verbose=False,
        )

    def encoded(self, whole: Sequence[tuple[Conversation | None, Rendering]]) -> Iterator[Encoded]:
        """Yield the tokens of each rendered row; rows that share their tools are one call."""
        for (has_template, tools), group in itertools.groupby(whole, key=lambda pair: (bool(pair[0]), _tools(pair[0]))):
            pairs = list(group)
            if has_template and marks_generation(template_of(self.tokenizer, tools)):
                messages = [one.messages for one, _ in pairs if one]
                found = generation_masks(self.tokenizer, messages, tools)
                yield from itertools.starmap(Encoded, zip(*found, strict=True))
            else:
                found = self.tokenised([rendering.text for _, rendering in pairs], offsets=True)
                yield from itertools.starmap(Encoded, zip(found["input_ids"], found["offset_mapping"], strict=True))

    def trained(self, row: Row, rendering: Rendering, encoded: Encoded, *, is_last_only: bool) -> list[tuple[int, int]]:
        """Return the half-open token spans of the turns that are trained, each checked.

        Raises:
            ValueError: a begin token that stands twice, a token on the edge of prompt and answer, a prompt that
                inference would tokenise otherwise, an answer without its end of turn, or a call that does not read
                back.
        """
        ids, text = encoded.ids, rendering.text
        if (bos := self.recipe.get("bos_id")) is not None and ids[:2] == [bos, bos]:
            raise ValueError(f"the row begins with the beginning-of-sequence token ({bos}) twice, wanted once")
        trained = [self._token_span(turn, text, encoded) for turn in rendering.turns]
        if not row.is_plain_text:
            for (first, _), prompt in zip(trained, rendering.prompts, strict=True):
                self._check_prompt(prompt, first, encoded, text)
        places = turns_trained(row, is_last_only=is_last_only)
        for place, turn, (_, stop) in zip(places, rendering.turns, trained, strict=True):
            self._check_round_trip(row, place, text[turn.start : encoded.offsets[stop - 1][0]])
        return trained

    def _check_prompt(self, prompt: str, first: int, encoded: Encoded, text: str) -> None:
        """Require that the row's first tokens are those of the prompt by itself.

        Tokenizers cut a text at its special tokens and take each piece by itself, so row and prompt agree up to the
        last special token of the prompt. What stands behind that one is mostly the same header in every row: it is
        tokenised once, with a whole prompt, and looked up for the others.
        """
        ids, offsets = encoded.ids, encoded.offsets
        behind = next((index + 1 for index in range(first - 1, -1, -1) if ids[index] in self.specials), 0)
        tail = prompt[offsets[behind - 1][1] if behind else 0 :]
        known = self.tails.get((ids[behind - 1], tail)) if behind else None
        if known is None:
            known = self.tokenised([prompt])["input_ids"][0]
            if behind and known[:behind] == ids[:behind]:
                known = known[behind:]
                if len(self.tails) < TAILS_KEPT:
                    self.tails[ids[behind - 1], tail] = known
            else:
                behind = 0
        if ids[behind:first] != known:
            raise ValueError(_boundary(text, offsets, max(0, first - 1)))

    def _check_round_trip(self, row: Row, place: int, answer: str) -> None:
        """Require that a rendered turn reads back as its calls."""
        calls = calls_of(row.messages[place])
        if calls and not same_calls(parse_answer(answer, self.recipe["tools"]).calls, calls):
            raise ValueError(f"the rendered call does not read back: {answer.strip()[:120]!r}")

    def _token_span(self, turn: Turn, text: str, encoded: Encoded) -> tuple[int, int]:
        """Return the half-open token span of one turn, its end-of-turn token included."""
        ids, offsets = encoded.ids, encoded.offsets
        first = bisect_left(offsets, turn.start, key=START)
        if first and offsets[first - 1][1] > turn.start:
            raise ValueError(_boundary(text, offsets, first - 1))
        stops, first = self.recipe["stop_ids"], max(first, 1)  # nothing comes before the first token to predict it
        for index in range(bisect_left(offsets, turn.stop, key=START), len(ids)):
            if offsets[index][0] >= turn.limit:
                break
            if ids[index] in stops:
                if index <= first:
                    raise ValueError(f"messages[{turn.message}]: nothing but the end of turn would be trained")
                return first, index + 1
        behind = text[turn.stop : turn.stop + 24]
        wanted = ", ".join(self.recipe.get("stop_tokens") or map(str, stops))
        raise ValueError(f"no end-of-turn token behind the answer: found {behind!r}, wanted {wanted}")


def turns_trained(row: Row, *, is_last_only: bool) -> list[int]:
    """Return the places of a row's assistant turns that are trained."""
    return assistant_turns(row.messages)[-1 if is_last_only else 0 :]


def _tools(one: Conversation | None) -> Tools:
    return one.tools if one else None


def _boundary(text: str, offsets: Offsets, index: int) -> str:
    piece = text[offsets[index][0] : offsets[index][1]]
    return f"token {index} ({piece!r}) straddles the edge of prompt and answer: inference would never see it"
