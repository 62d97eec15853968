"""A prompt in pieces: what the template writes before and behind a user's text, for those who cannot render Jinja.

Found by rendering, never by searching for a text: a conversation whose user text is unique is cut at it, and then the
pieces must rebuild, to the byte, what the template makes of texts that templates are known to edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlx_sentis.prepare.conversation import conversation_of, plain_frame, rendered
from mlx_sentis.prepare.rows import Message, Row
from mlx_sentis.prepare.spans import CLOSE, OPEN, common_length
from mlx_sentis.recipe import CLOCK_NOTE
from weights_bridge.errors import StageError

MARK = OPEN + CLOSE  # no letters: a template that edits them keeps its place, and the probes tell of the edit
PROBES = {
    "words": "Open the north gate, please.",
    "space around": " \n\topen it \n ",
    "rare space around": "\u3000\x1cit's\x1f\u00a0",
    "lines": "one\n\n  two\r\nthree",
    "marks of other languages": '<b>{{ x }}</b> {"name": "a\\n", \'b\': 5 % 3} /no_think',
    "non-ascii": "ñandú, 東京, 42 × 3.5 👋🏽",
}
# How a template treats white space around a user's text; the first that explains every probe counts.
USER_TEXT: Mapping[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "stripped": str.strip,
    "stripped on the right": str.rstrip,
    "stripped on the left": str.lstrip,
}


def opening_of(row: Row) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the system turn (none or one) and the tools that a row's conversation begins with."""
    return [message for message in row.messages[:1] if message["role"] == "system"], row.tools


def prompt_pieces(row: Row, tokenizer: Any, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pieces of a prompt with one user turn, behind the system turn and the tools of a row.

    Args:
        row: whose system turn and tools open the prompt; of a plain text nothing but the begin token does.
        tokenizer: from `load_tokenizer`.
        recipe: the model's recipe (`tools`, `stop_ids`, `notes`).

    Returns:
        `before` and `after` the user's text; `user_text`, a key of `USER_TEXT`; `refused`, why the pieces do not exist
        (then all others are empty); `probes`, name to the user's text with its rendered prompt and ids.
    """
    if row.is_plain_text:
        before = plain_frame(tokenizer, recipe["stop_ids"])[0]
        return _pieces(before, "", "as it is", {name: before + text for name, text in PROBES.items()}, tokenizer)
    if CLOCK_NOTE in recipe.get("notes", ()):
        return _refused("the template writes today's date")
    system, tools = opening_of(row)

    def prompt_for(text: str) -> str:
        messages = [*system, {"role": "user", "content": text}]
        return rendered(tokenizer, conversation_of(messages, tools, recipe["tools"]), prompt=True)

    try:
        before, *after = prompt_for(MARK).split(MARK)
        found = {name: prompt_for(text) for name, text in PROBES.items()}
    except StageError as error:
        return _refused(error.message)
    if len(after) != 1:
        return _refused(f"the template writes a user's text {len(after)} times, wanted once")
    for how, treated in USER_TEXT.items():
        if all(before + treated(PROBES[name]) + after[0] == text for name, text in found.items()):
            return _pieces(before, after[0], how, found, tokenizer)
    return _refused(_edited(before, after[0], found))


def _edited(before: str, after: str, found: Mapping[str, str]) -> str:
    """Name the first probe that the template edits in a way of its own."""
    for name, text in found.items():
        wanted = before + PROBES[name] + after
        if text != wanted and all(before + treated(PROBES[name]) + after != text for treated in USER_TEXT.values()):
            place = common_length(text, wanted)
            what = f"{text[place : place + 24]!r} for {wanted[place : place + 24]!r} at character {place}"
            return f"the template edits the user's text {PROBES[name]!r} ({name}): {what}"
    return "the template strips some texts and leaves others as they are"


def _pieces(before: str, after: str, how: str, found: Mapping[str, str], tokenizer: Any) -> dict[str, Any]:
    probes = {
        name: {"user": PROBES[name], "rendered": text, "ids": _ids(tokenizer, text)} for name, text in found.items()
    }
    return {"before": before, "after": after, "user_text": how, "refused": "", "probes": probes}


def _ids(tokenizer: Any, text: str) -> Sequence[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _refused(why: str) -> dict[str, Any]:
    return {"before": "", "after": "", "user_text": "", "refused": why, "probes": {}}
