"""Reading an answer's text back into calls: the inverse of what the prompt contract writes.

Understood are the system-block convention and, for templates with a tools branch, the three syntaxes in use:
`<tool_call>{JSON}</tool_call>` (Qwen, Hermes), `{"name", "parameters"}` (Llama 3.x; several are separated by `;`) and
`<start_function_call>call:name{key:<escape>text<escape>}<end_function_call>` (FunctionGemma).

No syntax is searched for its closing mark: a value may contain it. Each value is read from its beginning to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mlx_sentis.prepare.jsonl import DEEPEST, TOO_DEEP, decode, loads
from mlx_sentis.prepare.tools import NONE, SYSTEM_BLOCK, Call

QWEN, QWEN_END = re.compile(r"<tool_call>\s*"), re.compile(r"\s*</tool_call>")
BLOCK = re.compile(r"<tool_call>|<start_function_call>")
GEMMA, GEMMA_END = re.compile(r"<start_function_call>\s*call:([^{<]+?)\s*(?={)"), "<end_function_call>"
ESCAPE = "<escape>"  # stands before and behind every text of FunctionGemma's syntax
BARE = re.compile(r"[^{}\[\],:<]+")
PYTHON_WORDS = {"None": None, "True": True, "False": False}  # what Jinja prints of values it has no rule for
BETWEEN = re.compile(r"[\s;]*")
BEGUN = re.compile(r"[{]|<tool_call>|<start_function_call>|<\|python_tag\|>")


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer says.

    Attributes:
        kind: `call` (one or more, well-formed), `none` (declined in the agreed word), `broken` (a call begun, but not
            well-formed), `prose` (any other text).
        calls: the calls, in order.
    """

    kind: Literal["call", "none", "broken", "prose"]
    calls: tuple[Call, ...] = ()


def parse_answer(text: str, style: str = SYSTEM_BLOCK) -> ParsedAnswer:
    """Read an answer's text without its end-of-turn token.

    Args:
        text: what the model wrote.
        style: `system-block` or `template`, as in the recipe's `tools`.
    """
    text = text.strip()
    if text == NONE:
        return ParsedAnswer("none")
    try:
        calls = _json_line_calls(text) if style == SYSTEM_BLOCK else _template_calls(text)
    except ValueError:
        return ParsedAnswer("broken")
    if calls:
        return ParsedAnswer("call", tuple(calls))
    return ParsedAnswer("broken" if BEGUN.search(text) else "prose")


def parse_call(text: str, style: str = SYSTEM_BLOCK) -> dict[str, Any]:
    """Read an answer that makes at most one call, in the form of a prepared row's `expect`.

    Returns:
        `{"kind": "call", "name", "arguments"}`, `{"kind": "none"}`, or `{"kind": "invalid"}` for anything else.
    """
    answer = parse_answer(text, style)
    if answer.kind == "call" and len(answer.calls) == 1:
        return {"kind": "call", **answer.calls[0].as_json()}
    return {"kind": "none" if answer.kind == "none" else "invalid"}


def _json_line_calls(text: str) -> list[Call]:
    """Return the calls of lines that begin with a brace; other text may come before them, not after."""
    lines = [line for line in text.split("\n") if line.strip()]
    first = next((index for index, line in enumerate(lines) if line.startswith("{")), len(lines))
    return [_call_of(loads(line), "arguments") for line in lines[first:]]


def _call_of(value: Any, arguments_key: str) -> Call:
    if not isinstance(value, dict) or value.keys() != {"name", arguments_key}:
        raise ValueError("not a call")
    if not isinstance(value["name"], str) or not isinstance(value[arguments_key], dict):
        raise ValueError("not a call")
    return Call(value["name"], value[arguments_key])


def _template_calls(text: str) -> list[Call]:
    if text.startswith(("{", "<|python_tag|>")):
        return _parameters_calls(text.removeprefix("<|python_tag|>").strip())
    first = BLOCK.search(text)
    if first and first[0] == "<tool_call>":
        return [call for _, _, call in _blocks(text)]
    return _escaped_calls(text)


def _parameters_calls(text: str) -> list[Call]:
    calls: list[Call] = []
    place = 0
    while place < len(text):
        value, place = decode(text, place)
        calls.append(
            _call_of(value, "parameters" if isinstance(value, dict) and "parameters" in value else "arguments")
        )
        place = _behind(BETWEEN, text, place)
    return calls


def split_calls(text: str) -> tuple[str, list[Call]]:
    """Return what an answer says before its `<tool_call>` blocks, and their calls.

    Raises:
        ValueError: a block that is no call, or text behind one.
    """
    blocks = _blocks(text)
    if not blocks:
        return text, []
    ends = [*(begin for begin, _, _ in blocks), len(text)]
    if any(text[end:begin].strip() for (_, end, _), begin in zip(blocks, ends[1:], strict=True)):
        raise ValueError("text stands behind the call")
    return text[: ends[0]].rstrip(), [call for _, _, call in blocks]


def _blocks(text: str) -> list[tuple[int, int, Call]]:
    """Return the begin, the end and the call of every `<tool_call>` block."""
    blocks: list[tuple[int, int, Call]] = []
    begin = QWEN.search(text)
    while begin:
        value, place = decode(text, begin.end())
        place = _behind(QWEN_END, text, place)
        blocks.append((begin.start(), place, _call_of(value, "arguments")))
        begin = QWEN.search(text, place)
    return blocks


def _behind(pattern: re.Pattern[str], text: str, place: int) -> int:
    if not (match := pattern.match(text, place)):
        raise ValueError("not a call")
    return match.end()


def _escaped_calls(text: str) -> list[Call]:
    calls: list[Call] = []
    place = 0
    while (begin := text.find("<start_function_call>", place)) >= 0:
        if not (match := GEMMA.match(text, begin)):
            raise ValueError("not a call")
        reader = _Escaped(text, match.end())
        calls.append(Call(match[1], reader.value()))
        reader.skip_space()
        reader.require(GEMMA_END)
        place = reader.place
    return calls


class _Escaped:
    """Reads one value of FunctionGemma's syntax; keys may be bare or escaped, texts are always escaped."""

    def __init__(self, text: str, place: int) -> None:
        self.text, self.place, self.depth = text, place, 0

    def value(self) -> Any:
        self.skip_space()
        if self.took(ESCAPE):
            return self.up_to(ESCAPE)
        if self.took("{"):
            return dict(self.items("}", self.pair))
        if self.took("["):
            return self.items("]", self.value)
        match = BARE.match(self.text, self.place)
        if not match:
            raise ValueError("a value is missing")
        self.place = match.end()
        word = match[0].strip()
        return PYTHON_WORDS[word] if word in PYTHON_WORDS else loads(word)

    def pair(self) -> tuple[str, Any]:
        self.skip_space()
        if not self.took(ESCAPE):
            return self.up_to(":").rstrip(), self.value()
        key = self.up_to(ESCAPE)
        self.skip_space()
        self.require(":")
        return key, self.value()

    def items(self, closing: str, item: Callable[[], Any]) -> list[Any]:
        if self.took(closing):
            return []
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(TOO_DEEP)
        found = [item()]
        self.skip_space()
        while self.took(","):
            found.append(item())
            self.skip_space()
        self.require(closing)
        self.depth -= 1
        return found

    def skip_space(self) -> None:
        while self.text[self.place : self.place + 1].isspace():
            self.place += 1

    def took(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.place):
            return False
        self.place += len(mark)
        return True

    def require(self, mark: str) -> None:
        if not self.took(mark):
            raise ValueError(f"{mark!r} is missing")

    def up_to(self, mark: str) -> str:
        end = self.text.find(mark, self.place)
        if end < 0:
            raise ValueError(f"{mark!r} is missing")
        text, self.place = self.text[self.place : end], end + len(mark)
        return text
