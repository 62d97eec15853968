"""Which characters of a rendered row are trained, found from the rendering itself and never by searching for a text.

Each assistant field is wrapped in unique sentinels and the row rendered again. Without the sentinels it must equal the
plain render to the byte; the places where they stood are the span. A template that trims or that strips thoughts from
earlier turns changes the wrapped text only; then what survives is wrapped instead, and the same equality decides.

A turn's span begins where the prompt of the same conversation ends (what stands there the model must write itself),
and reaches to the end of its content or last call; the end-of-turn token behind it is found among the tokens.

What the template writes before and behind an answer is a constant of the template. It is read once, from a
conversation of our own, with sentinels. Where a row is to the byte prompt + constant + answer + constant, that equality
proves the span and the row is not rendered again; every other row is. Calls prove theirs by reading back as themselves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.conversation import Conversation, rendered
from mlx_sentis.prepare.rows import Message, calls_of
from mlx_sentis.prepare.tools import Call
from mlx_sentis.templates import render_each
from weights_bridge.errors import StageError

# Private-use characters: no tokenizer pre-processing and no template filter touches them, and no text needs them.
OPEN, CLOSE = "\uf5a0", "\uf5a1"
MARKS = re.compile(f"([{OPEN}{CLOSE}])")
CHANGED = "sentinels change the render: the template edits the assistant's text, so no span is certain"
HEADER_HINT = (
    "end prompts with it in the template, {% if add_generation_prompt %}HEADER{% endif %}, and give that with "
    "--template FILE"
)
THOUGHT = "<think>"
# A conversation with an answer in the middle and one at the end; nothing in it can be trimmed or taken for a thought.
OWN = (
    {"role": "user", "content": "Where is the mill?"},
    {"role": "assistant", "content": "By the river."},
    {"role": "user", "content": "And the forge?"},
    {"role": "assistant", "content": "Behind the gate."},
)


@dataclass(frozen=True)
class Turn:
    """One assistant turn in the rendered text, in characters.

    Attributes:
        message: its place among the messages.
        start: where the prompt before it ends.
        stop: behind its content or its last call.
        limit: the end-of-turn token begins before this place.
        is_edited: text was lost in rendering (trimmed, thoughts stripped).
    """

    message: int
    start: int
    stop: int
    limit: int
    is_edited: bool = False


@dataclass(frozen=True)
class Rendering:
    """A row, rendered.

    Attributes:
        text: the whole row.
        prompts: for each turn what the model is given before it; `text` starts with every one.
        turns: the assistant turns that were asked for, in order.
    """

    text: str
    prompts: list[str]
    turns: list[Turn]

    @property
    def edited_turns(self) -> int:
        return sum(turn.is_edited for turn in self.turns)


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


class SpanFinder:
    """Finds the assistant turns of rendered rows.

    Args:
        tokenizer: from `load_tokenizer`.
        style: the recipe's `tools`.
        stops: the texts of the stop tokens.

    Raises:
        StageError: the model has no template, or one that opens answers with a header that no prompt ends in.
    """

    def __init__(self, tokenizer: Any, style: str, stops: Sequence[str]) -> None:
        self.tokenizer, self.style = tokenizer, style
        self.stop = re.compile("|".join(map(re.escape, stops)) or "(?!)")
        self.asks_nothing = False
        self.frames = [self._own_frame(Conversation(list(OWN)), index) for index in (1, 3)]  # middle, last
        self.asks_nothing = self._asks_nothing()
        for frame in filter(None, self.frames):
            if self.asks_nothing and frame[0].strip():
                raise StageError(_header_fault(frame[0]), hint=HEADER_HINT)

    def _asks_nothing(self) -> bool:
        """Tell whether the template ends a prompt as it ends any user turn, whatever `add_generation_prompt` says."""
        question = Conversation(list(OWN[:1]))
        try:
            return self._render(question, prompt=True) == self._render(question)
        except ValueError:  # it refuses a bare question: the rows will tell
            return False

    def find(
        self, conversations: Sequence[Conversation], *, last_only: bool = False
    ) -> Iterator[Rendering | ValueError]:
        """Yield each conversation's rendering, or why it has none.

        Args:
            conversations: messages as the template gets them, the last one the assistant's.
            last_only: only the last turn is asked for.
        """
        texts = self._rendered(conversations, prompts=False)
        indices = [assistant_turns(one.messages)[-1 if last_only else 0 :] for one in conversations]
        wanted = [
            one.before(index)
            for one, text, places in zip(conversations, texts, indices, strict=True)
            for index in places
            if isinstance(text, str)
        ]
        prompts = iter(self._rendered(wanted, prompts=True))
        for one, text, places in zip(conversations, texts, indices, strict=True):
            if isinstance(text, StageError):
                yield ValueError(text.message)
                continue
            before = [next(prompts) for _ in places]
            try:
                yield self._rendering(one, text, places, before)
            except ValueError as error:
                yield error

    def _rendered(self, wanted: Sequence[Conversation], *, prompts: bool) -> list[str | StageError]:
        found: list[str | StageError] = []
        for tools, group in itertools.groupby(wanted, key=lambda one: one.tools):  # rows of one file share their tools
            found += render_each(self.tokenizer, [one.messages for one in group], tools, prompts)
        return found

    def _rendering(
        self, one: Conversation, text: str, places: Sequence[int], prompts: Sequence[str | StageError]
    ) -> Rendering:
        if OPEN in text or CLOSE in text:
            what = f"a text has the private-use character U+{ord(OPEN):04X} or U+{ord(CLOSE):04X}; take it out"
            raise ValueError(what)
        turns, before = [], []
        for index, prompt in zip(places, prompts, strict=True):
            if isinstance(prompt, StageError):
                raise ValueError(prompt.message)
            if not text.startswith(prompt):
                raise ValueError(_prompt_fault(text, prompt, index))
            turn = self._by_equality(one, text, len(prompt), index)
            turns.append(turn or self._by_sentinels(one, text, prompt, index))
            _check_thoughts(one.messages[index], text, prompt, turns[-1])
            before.append(prompt)
        return Rendering(text, before, turns)

    def _by_equality(self, one: Conversation, text: str, start: int, index: int) -> Turn | None:
        """Return the turn that the text at `start` proves by itself, None where it does not."""
        message, is_last = one.messages[index], index == len(one.messages) - 1
        if message.get("tool_calls"):
            return self._by_reading_back(message, text, start, index)
        frame = self.frames[is_last]
        if frame is None:
            return None
        opening, ending = frame
        for survivor in SURVIVORS:
            inside = survivor(message["content"])[1]
            for before in dict.fromkeys((opening, "")):
                stop = start + len(before) + len(inside)
                if not inside or not text.startswith(before + inside + ending, start):
                    continue
                if not is_last or len(text) == stop + len(ending):
                    return Turn(index, start, stop, stop + len(ending), inside != message["content"])
        return None

    def _by_reading_back(self, message: Message, text: str, start: int, index: int) -> Turn | None:
        """Return a turn of calls alone: what stands before the first stop token reads back as these calls."""
        end = self.stop.search(text, start)
        if end is None or message["content"]:
            return None
        calls = parse_answer(text[start : end.start()], self.style).calls
        return Turn(index, start, end.start(), end.start() + 1) if same_calls(calls, calls_of(message)) else None

    def _by_sentinels(self, one: Conversation, text: str, prompt: str, index: int) -> Turn:
        """Return the turn that sentinels show.

        Raises:
            ValueError: no way of wrapping leaves the render as it was.
        """
        message = one.messages[index]
        for survivor in SURVIVORS:
            wrapped = list(one.messages)
            wrapped[index] = _wrapped(message, *survivor(message["content"]))
            bare, spans = _unwrap(self._render(Conversation(wrapped, one.tools)))
            if bare != text or len(spans) != 1:
                continue
            opened, closed = spans[0]
            if self.asks_nothing and (header := text[len(prompt) : opened]).strip() and not message.get("tool_calls"):
                raise ValueError(_header_fault(header))
            if text[opened : len(prompt)].strip() not in ("", THOUGHT):  # a prompt may open the thoughts
                raise ValueError(_prompt_fault(text, prompt, index))
            is_edited = not message.get("tool_calls") and not text[:closed].endswith(message["content"])
            return Turn(index, len(prompt), closed, self._limit(one, text, closed, index), is_edited)
        raise ValueError(f"{CHANGED} (messages[{index}])")

    def _limit(self, one: Conversation, text: str, closed: int, index: int) -> int:
        """Return how far the turn reaches: as far as the conversation up to it renders the same."""
        if index == len(one.messages) - 1:
            return len(text)
        alone = self._render(one.before(index + 1))
        same = common_length(text, alone)
        if same > closed:
            return same
        gap = len(text[closed:]) - len(
            text[closed:].lstrip()
        )  # rendered otherwise when last: only space may be between
        return closed + gap + 1

    def _render(self, one: Conversation, *, prompt: bool = False) -> str:
        try:
            return rendered(self.tokenizer, one, prompt=prompt)
        except StageError as error:
            raise ValueError(error.message) from None

    def _own_frame(self, one: Conversation, index: int) -> tuple[str, str] | None:
        """Return what the template writes between a prompt and its answer, and behind the answer up to the limit."""
        try:
            text, prompt = self._render(one), self._render(one.before(index), prompt=True)
            if not text.startswith(prompt):
                return None
            turn = self._by_sentinels(one, text, prompt, index)
        except ValueError:  # no constant is known then, so every row is wrapped
            return None
        answer, content = text[turn.start : turn.stop], one.messages[index]["content"]
        return (answer.removesuffix(content), text[turn.stop : turn.limit]) if answer.endswith(content) else None


def plain_rendering(text: str, before: str, behind: str) -> Rendering:
    """Return the rendering of a plain text, which no template frames."""
    stop = len(before) + len(text)
    return Rendering(before + text + behind, [before], [Turn(0, len(before), stop, stop + len(behind))])


def assistant_turns(messages: Sequence[Message]) -> list[int]:
    """Return the places of the assistant's messages."""
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


def same_calls(found: Sequence[Call], wanted: Sequence[Call]) -> bool:
    """Tell whether two turns make the same calls in the same order."""
    return len(found) == len(wanted) and all(a.same_as(b) for a, b in zip(found, wanted, strict=True))


def _check_thoughts(message: Message, text: str, prompt: str, turn: Turn) -> None:
    """Refuse a template that opens a thought of its own before the row's: inference would show one."""
    own = message["content"].count(THOUGHT)
    opened = text[turn.start : turn.stop].count(THOUGHT) + prompt.rstrip().endswith(THOUGHT)
    if own and opened > own:
        raise ValueError(f"messages[{turn.message}]: the template wraps the turn's thoughts in {THOUGHT} a second time")


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


def common_length(first: str, second: str) -> int:
    """Return how many characters two texts begin with alike."""
    shorter = min(len(first), len(second))
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), shorter)


def _header_fault(header: str) -> str:
    what = "which no prompt ends in (the template leaves add_generation_prompt aside): it would be trained"
    return f"the chat template opens every answer with {header!r}, {what}"


def _prompt_fault(text: str, prompt: str, index: int) -> str:
    place = common_length(text, prompt)
    if place == len(prompt):
        what = "the prompt that inference would build already holds a part of the answer"
        return f"messages[{index}]: {what}: {prompt[-24:]!r}"
    found, wanted = text[place : place + 24], prompt[place : place + 24]
    return (
        f"messages[{index}]: the row does not begin with the prompt that inference would build; they part at character "
        f"{place}: row {found!r}, prompt {wanted!r}"
    )
