"""Rows over the window: left out, or cut on the left so that what is left is again a conversation.

Cutting keeps what the answer needs to make sense: the begin token, the system block with the tools, and the whole last
turn. First tokens of the oldest user text go, from its left; where that text alone is not enough, its whole exchange
goes and the next user text is cut. The shortened messages are rendered anew, so a cut row is one that inference could
build, and every count is that of its own tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlx_sentis.prepare.rows import Message, Row

if TYPE_CHECKING:
    from mlx_sentis.prepare.masks import Prepared


COMPOSED = 4  # characters that a normaliser may compose into one: a letter with three marks


@dataclass(frozen=True)
class Dropped:
    """A row that is left out because it is too long; the run goes on without it.

    Attributes:
        source: `file:line`.
        reason: how long it is, and why it could not be cut.
    """

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


def characters_per_token(tokenizer: Any) -> int | None:
    """Return how many visible characters a token stands for at the most, None where that has no bound.

    Byte-level and byte-fallback BPE write every character into some token; other models fuse what they do not know.

    Args:
        tokenizer: a fast tokenizer.
    """
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if model["type"] != "BPE" or not (model.get("unk_token") is None or model.get("byte_fallback")):
        return None
    return COMPOSED * max(map(len, tokenizer.get_vocab()))


def least_tokens(text: str, per_token: int | None, max_tokens: int) -> int:
    """Return how many tokens a text has at the least, 0 where it may well fit; it costs no tokenising.

    White space does not count: special tokens may swallow it.
    """
    if per_token is None or len(text) <= per_token * max_tokens:
        return 0
    least = sum(map(len, text.split())) // per_token
    return least if least > max_tokens else 0


def fitted(
    found: Prepared,
    max_tokens: int,
    prepare: Callable[[Row], Prepared | Dropped | str],
    tokenizer: Any,
    *,
    is_cut: bool,
) -> Prepared | Dropped:
    """Return a row that is too long with its prompt cut on the left, or dropped.

    Args:
        found: the row as it is.
        max_tokens: the most tokens of a row.
        prepare: prepares a row.
        tokenizer: counts the tokens of a user's text.
        is_cut: cut it; otherwise it is dropped.
    """
    what = f"{len(found.ids)} tokens, more than {max_tokens} (data.max_tokens)"
    if not is_cut:
        return Dropped(found.row.source, what)
    if found.row.is_plain_text:
        return Dropped(found.row.source, f"{what}; a plain text has no prompt that could be cut")
    head, exchanges = _exchanges(found.row.messages)
    for gone in range(len(exchanges)):
        messages = [*head, *(message for exchange in exchanges[gone:] for message in exchange)]
        kept = found if not gone else prepare(replace(found.row, messages=messages))
        if not isinstance(kept, str | Dropped) and len(kept.ids) > max_tokens:
            kept = _with_less_text(kept, len(head), max_tokens, prepare, tokenizer)
        if kept is not None and not isinstance(kept, str | Dropped):
            return replace(kept, cut_tokens=len(found.ids) - len(kept.ids))
    return Dropped(found.row.source, f"{what}; without what may be cut (user texts, older turns) it is still too long")


def _exchanges(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Return the system turn, and the conversation in pieces that each begin with the user's turn."""
    head = [message for message in messages[:1] if message["role"] == "system"]
    pieces: list[list[Message]] = []
    for before, message in zip([{"role": ""}, *messages[len(head) :]], messages[len(head) :], strict=False):
        if message["role"] == "user" and before["role"] != "user":
            pieces.append([])
        pieces[-1].append(message)
    return head, pieces


def _with_less_text(
    found: Prepared, place: int, max_tokens: int, prepare: Callable[[Row], Prepared | Dropped | str], tokenizer: Any
) -> Prepared | None:
    """Return the row with the user's text at `place` cut on its left as far as needed, None when that is not enough."""
    text = found.row.messages[place]["content"]
    starts = [
        start for start, _ in tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ]
    kept, gone, over = found, 0, len(found.ids) - max_tokens
    while over > 0:
        gone += over  # tokens may join anew at the cut, so the length is measured each time
        if gone >= len(starts) or not (rest := text[starts[gone] :].lstrip()):
            return None
        messages = list(found.row.messages)
        messages[place] = messages[place] | {"content": rest}
        again = prepare(replace(found.row, messages=messages))
        if isinstance(again, str | Dropped):
            return None
        kept, over = again, len(again.ids) - max_tokens
    return kept
