"""What scoring asks of a model: token ids in, token ids out. Runners live elsewhere and are handed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol


class Generator(Protocol):
    """A causal language model that answers greedily."""

    def set_prefix(self, ids: Sequence[int]) -> None:
        """Compute the keys and values of tokens that every later prompt starts with; none forgets them."""
        ...

    def generate(self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int]) -> list[int]:
        """Return at most `max_new_tokens` new ids, ending before the first stop id.

        Args:
            prompt_ids: the whole prompt; it starts with the prefix and is longer.
            max_new_tokens: the most tokens to add, ≥ 1.
            stop_ids: ids that end an answer; they are not returned.
        """
        ...


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
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each row with the text the model answers to its prompt.

    Args:
        generator: the model.
        rows: prepared rows (`ids`, `prompt_tokens`).
        decode: token ids to text.
        max_new_tokens: the most tokens per answer.
        stop_ids: ids that end an answer.
        shared_tokens: length of the prefix that all rows share; it is computed once.
    """
    generator.set_prefix(usable_prefix(rows, shared_tokens))
    for row in rows:
        yield row, decode(generator.generate(prompt_of(row), max_new_tokens, stop_ids))
