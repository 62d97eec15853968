"""Which characters of a rendered row are trained, found from the rendering itself and never by searching for a text.

Each assistant field is wrapped in unique sentinels and the row rendered again. Without the sentinels it must equal the
plain render to the byte; the places where they stood are the span. A template that trims or that strips thoughts from
earlier turns changes the wrapped text only; then what survives is wrapped instead, and the same equality decides.

A turn's span begins where the prompt of the same conversation ends (what stands there the model must write itself),
and reaches to the end of its content or last call; the end-of-turn token behind it is found among the tokens.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.conversation import rendered
from mlx_sentis.prepare.rows import Message

# Private-use characters: no tokenizer pre-processing and no template filter touches them, and no text needs them.
OPEN, CLOSE = "\uf5a0", "\uf5a1"
MARKS = re.compile(f"([{OPEN}{CLOSE}])")
CHANGED = "sentinels change the render: the template edits the assistant's text, so no span is certain"


@dataclass(frozen=True)
class Turn:
    """One assistant turn in the rendered text, in characters.

    Attributes:
        start: where the prompt before it ends.
        stop: behind its content or its last call.
        limit: the end-of-turn token begins before this place.
    """

    start: int
    stop: int
    limit: int


@dataclass(frozen=True)
class Rendering:
    """A row, rendered.

    Attributes:
        text: the whole row.
        prompts: for each assistant turn what the model is given before it; `text` starts with every one.
        turns: every assistant turn, in order.
        edited_turns: how many turns lost text in rendering (trimmed, thoughts stripped).
    """

    text: str
    prompts: list[str]
    turns: list[Turn]
    edited_turns: int


def _behind_thoughts(text: str) -> tuple[str, str]:
    answer = text.rpartition("</think>")[2].lstrip("\n")
    return text[: len(text) - len(answer)], answer


# What may survive of a content, as (text left outside the sentinels, text inside); the first that renders equal counts.
SURVIVORS: tuple[Callable[[str], tuple[str, str]], ...] = (
    lambda text: ("", text),
    lambda text: ("", text.strip()),
    lambda text: ("", text.rstrip()),
    lambda text: ("", text.lstrip()),
    _behind_thoughts,
)


def render_spans(tokenizer: Any, shaped: list[Message], tools: list[dict[str, Any]], style: str) -> Rendering:
    """Render a row and find its assistant turns.

    Args:
        tokenizer: from `load_tokenizer`.
        shaped: messages as the template gets them (`for_template`), the last one the assistant's.
        tools: normalised tools.
        style: the recipe's `tools`.

    Raises:
        ValueError: the template hides the span (by name), or its prompt is not how the row begins.
        StageError: the template refuses the messages.
    """
    text = rendered(tokenizer, shaped, tools, style)
    if any(mark in text for mark in (OPEN, CLOSE)):
        raise ValueError(f"a text has the private-use character U+{ord(OPEN):04X} or U+{ord(CLOSE):04X}; take it out")
    indices = [index for index, message in enumerate(shaped) if message["role"] == "assistant"]
    turns, prompts, edited = [], [], 0
    for index, (opened, closed) in zip(
        indices, _survivors(tokenizer, shaped, tools, style, text, indices), strict=True
    ):
        prompt = rendered(tokenizer, shaped[:index], tools, style, prompt=True)
        if not text.startswith(prompt) or len(prompt) > opened:
            raise ValueError(_prompt_fault(text, prompt, index))
        is_last = index == len(shaped) - 1
        limit = len(text) if is_last else _limit(tokenizer, shaped[: index + 1], tools, style, text, closed)
        turns.append(Turn(len(prompt), closed, limit))
        prompts.append(prompt)
        edited += not shaped[index].get("tool_calls") and not text[:closed].endswith(shaped[index]["content"])
    return Rendering(text, prompts, turns, edited)


def _survivors(
    tokenizer: Any, shaped: list[Message], tools: list[dict[str, Any]], style: str, text: str, indices: list[int]
) -> list[tuple[int, int]]:
    """Return the (start, stop) of each assistant field.

    Raises:
        ValueError: no way of wrapping leaves the render as it was.
    """
    for survivor in SURVIVORS:
        wrapped = list(shaped)
        for index in indices:
            wrapped[index] = _wrapped(shaped[index], *survivor(shaped[index]["content"]))
        bare, spans = _unwrap(rendered(tokenizer, wrapped, tools, style))
        if bare == text and len(spans) == len(indices):
            return spans
    raise ValueError(CHANGED)


def _wrapped(message: Message, outside: str, inside: str) -> Message:
    """Return a copy with sentinels: around the content, or from before the first tool's name to behind the last's."""
    calls = message.get("tool_calls")
    if not calls:
        return message | {"content": outside + OPEN + inside + CLOSE}
    names = [call["function"]["name"] for call in calls]
    content = outside + OPEN + inside if inside else outside
    if not inside:
        names[0] = OPEN + names[0]
    names[-1] += CLOSE
    marked = [call | {"function": call["function"] | {"name": name}} for call, name in zip(calls, names, strict=True)]
    return message | {"content": content, "tool_calls": marked}


def _unwrap(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without sentinels and where each pair stood; no spans when they do not come in pairs."""
    pieces = MARKS.split(text)  # text, mark, text, mark, …, text
    if pieces[1::2] != [OPEN, CLOSE] * (len(pieces) // 4):
        return "", []
    ends = list(itertools.accumulate(map(len, pieces[::2])))
    return "".join(pieces[::2]), list(zip(ends[:-1:2], ends[1:-1:2], strict=True))


def _limit(tokenizer: Any, upto: list[Message], tools: list[dict[str, Any]], style: str, text: str, closed: int) -> int:
    """Return how far the turn reaches: as far as the conversation up to it renders the same."""
    alone = rendered(tokenizer, upto, tools, style)
    if text.startswith(alone):
        return len(alone)
    same = next((i for i, (a, b) in enumerate(zip(alone, text, strict=False)) if a != b), min(len(alone), len(text)))
    if same > closed:
        return same
    gap = len(text[closed:]) - len(text[closed:].lstrip())  # rendered otherwise when last: only space may come between
    return closed + gap + 1


def _prompt_fault(text: str, prompt: str, index: int) -> str:
    place = next((i for i, (a, b) in enumerate(zip(text, prompt, strict=False)) if a != b), min(len(text), len(prompt)))
    found, wanted = text[place : place + 24], prompt[place : place + 24]
    return (
        f"messages[{index}]: the row does not begin with the prompt that inference would build; they part at character "
        f"{place}: row {found!r}, prompt {wanted!r}"
    )
