"""Rows over the window: left out, or cut on the left so that what is left is again a conversation.

Cutting keeps what the answer needs to make sense: the begin token, the system block with the tools, and the whole last
turn. First tokens of the oldest user text go, from its left; where that text alone is not enough, its whole exchange
goes and the next user text is cut. The shortened messages are rendered anew, so a cut row is one that inference could
build, and every count is that of its own tokens.

A row of megabytes is first shortened by its characters to what cutting may leave at the most (`shortened`), so that no
text is tokenised of which a window's worth is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlx_sentis.prepare.rows import Message, Row

if TYPE_CHECKING:
    from mlx_sentis.prepare.masks import Prepared


SPACE = re.compile(r"(\s+)")
NO_PROMPT = "a plain text has no prompt that could be cut"
NOT_CUT = "without what may be cut (user texts, older turns) it is still too long"
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
    least = visible(text) // per_token
    return least if least > max_tokens else 0


def visible(text: str) -> int:
    """Return how many characters of a text are no white space."""
    return sum(map(len, text.split()))


def shortened(row: Row, most: int, length: Callable[[str], int]) -> Row | None:
    """Return a row without exchanges that cutting would take away in any case; None where cutting cannot help.

    These are the ones with more than `most` behind their user's text: a row that fits its window has no more.

    Args:
        row: a conversation, or a plain text.
        most: the greatest length of what can be kept.
        length: of a text, for example `visible`.
    """
    if row.is_plain_text:
        return None
    head, exchanges = _exchanges(row.messages)
    behind = sum(length(message["content"]) for message in head)
    first = len(exchanges)
    for exchange in reversed(exchanges):
        texts = [length(message["content"]) for message in exchange]
        if behind + sum(texts[1:]) > most:
            break
        behind, first = behind + sum(texts), first - 1
    if first == len(exchanges):
        return None
    return replace(row, messages=[*head, *(message for exchange in exchanges[first:] for message in exchange)])


def with_last(row: Row, most: int) -> Row:
    """Return a conversation with no more than the last `most` visible characters of its first user's text."""
    messages = list(row.messages)
    place = next(at for at, message in enumerate(messages) if message["role"] == "user")
    messages[place] = messages[place] | {"content": _last(messages[place]["content"], most)}
    return replace(row, messages=messages)


def _last(text: str, most: int) -> str:
    """Return the end of a text that has `most` visible characters, the whole text where it has fewer."""
    pieces: list[str] = []
    for piece in reversed(SPACE.split(text)):
        if not piece.isspace():
            piece = piece[max(0, len(piece) - most) :]
            most -= len(piece)
        pieces.append(piece)
        if not most:
            break
    return "".join(reversed(pieces))


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
        return Dropped(found.row.source, f"{what}; {NO_PROMPT}")
    head, exchanges = _exchanges(found.row.messages)
    best, least, most = None, 0, len(exchanges) - 1  # the fewest exchanges that have to go, by bisection
    while least <= most:
        gone = (least + most) // 2
        messages = [*head, *(message for exchange in exchanges[gone:] for message in exchange)]
        kept = found if not gone else prepare(replace(found.row, messages=messages))
        if not isinstance(kept, str | Dropped) and len(kept.ids) > max_tokens:
            kept = _with_less_text(kept, len(head), max_tokens, prepare, tokenizer)
        if kept is None or isinstance(kept, str | Dropped):
            least = gone + 1
        else:
            best, most = kept, gone - 1
    if best is not None:
        return replace(best, cut_tokens=found.cut_tokens + len(found.ids) - len(best.ids))
    return Dropped(found.row.source, f"{what}; {NOT_CUT}")


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
