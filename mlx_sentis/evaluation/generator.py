"""What scoring asks of a model: token ids in, token ids out. Runners live elsewhere and are handed in.

Legend: `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlx_sentis.evaluation.gate import first_token_margin
from weights_bridge.compare import Array


@dataclass(frozen=True)
class Greedy:
    """A greedy continuation.

    Attributes:
        ids: the chosen ids, the stop id not among them.
        logits: per chosen id, the row [V] it was chosen from (when asked for).
    """

    ids: list[int]
    logits: list[Array]


class Generator(Protocol):
    """A causal language model that answers greedily."""

    def set_prefix(self, ids: Sequence[int]) -> None:
        """Compute the keys and values of tokens that every later prompt starts with; none forgets them."""
        ...

    def greedy(
        self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int] = (), *, keep_logits: bool = False
    ) -> Greedy:
        """Continue a prompt with at most `max_new_tokens` greedy ids, ending before the first stop id.

        Args:
            prompt_ids: the whole prompt; it starts with the prefix and is longer.
            max_new_tokens: the most tokens to add, ≥ 1.
            stop_ids: ids that end an answer; they are not returned.
            keep_logits: keep the row each id was chosen from.
        """
        ...


def choose_greedily(
    next_row: Callable[[Sequence[int]], Array],
    ids: Sequence[int],
    max_new_tokens: int,
    stop_ids: Sequence[int],
    *,
    keep_logits: bool,
) -> Greedy:
    """Return the greedy continuation of what a model's cache holds and `ids` behind it: one pass, then a token a step.

    Args:
        next_row: run the model over ids that lie behind its cache, keep them in it, and return the last one's row [V].
        ids: what the cache lacks of the prompt, at least one.
        max_new_tokens: the most tokens to add, ≥ 1.
        stop_ids: ids that end an answer; they are not returned.
        keep_logits: keep the row each id was chosen from.
    """
    found = Greedy([], [])
    while len(found.ids) < max_new_tokens:
        row = next_row(ids)
        token = int(row.argmax())
        if token in stop_ids:
            break
        found.ids.append(token)
        if keep_logits:
            found.logits.append(row.copy())  # a row may be a view of a whole prompt's logits
        ids = [token]
    return found


@dataclass(frozen=True)
class Answered:
    """What a model answers to one row.

    Attributes:
        row: the prepared row.
        text: the answer, special tokens kept, the stop id not among them.
        new_tokens: how many tokens it has.
        margin: the gate's score (see `gate.first_token_margin`); None when not asked for, or nothing was generated.
    """

    row: dict[str, Any]
    text: str
    new_tokens: int
    margin: float | None = None


def prompt_of(row: dict[str, Any]) -> list[int]:
    """Return the prompt's token ids of a prepared row: everything before the answer."""
    return row["ids"][: row["prompt_tokens"]]


def usable_prefix(rows: Sequence[dict[str, Any]], shared_tokens: int) -> list[int]:
    """Return the prefix to run once for a set of rows: shared by all, and shorter than each prompt.

    Args:
        rows: prepared rows.
        shared_tokens: the length that `dataset.json` records.
    """
    if not rows:
        return []
    prompts = [prompt_of(row) for row in rows]
    length = max(0, min(shared_tokens, *(len(prompt) - 1 for prompt in prompts)))
    while length and any(prompt[:length] != prompts[0][:length] for prompt in prompts):
        length -= 1
    return prompts[0][:length]


def answers(
    generator: Generator,
    rows: Sequence[dict[str, Any]],
    decode: Callable[[list[int]], str],
    *,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    shared_tokens: int = 0,
    refusal_id: int | None = None,
) -> Iterator[Answered]:
    """Yield, row by row, what the model answers to the prompt.

    Args:
        generator: the model.
        rows: prepared rows (`ids`, `prompt_tokens`).
        decode: token ids to text.
        max_new_tokens: the most tokens per answer.
        stop_ids: ids that end an answer.
        shared_tokens: length of the prefix that all rows share; it is computed once.
        refusal_id: the first token of a refusal; with it each answer gets its margin.
    """
    generator.set_prefix(usable_prefix(rows, shared_tokens))
    for row in rows:
        found = generator.greedy(prompt_of(row), max_new_tokens, stop_ids, keep_logits=refusal_id is not None)
        scored = refusal_id is not None and found.logits
        margin = first_token_margin(found.logits[0], refusal_id) if scored and refusal_id is not None else None
        yield Answered(row, decode(found.ids), len(found.ids), margin)
