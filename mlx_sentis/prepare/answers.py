"""Reading an answer's text back into calls: the inverse of what the prompt contract writes.

Understood are the system-block convention and, for templates with a tools branch, the three syntaxes in use:
`<tool_call>{JSON}</tool_call>` (Qwen, Hermes), `{"name", "parameters"}` (Llama 3.x) and
`<start_function_call>call:name{key:<escape>text<escape>}<end_function_call>` (FunctionGemma).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from mlx_sentis.prepare.jsonl import loads
from mlx_sentis.prepare.tools import NONE, SYSTEM_BLOCK, Call

QWEN = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
GEMMA = re.compile(r"<start_function_call>call:(.*?)<end_function_call>", re.DOTALL)
GEMMA_TOKEN = re.compile(r"<escape>(.*?)<escape>|([{}\[\],:])|([^{}\[\],:<]+)", re.DOTALL)
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
    if blocks := QWEN.findall(text):
        return [_call_of(loads(block), "arguments") for block in blocks]
    if blocks := GEMMA.findall(text):
        return [_gemma_call(block) for block in blocks]
    text = text.removeprefix("<|python_tag|>").strip()
    if not text.startswith("{"):
        return []
    value = loads(text)
    return [_call_of(value, "parameters" if isinstance(value, dict) and "parameters" in value else "arguments")]


def _gemma_call(block: str) -> Call:
    name, brace, rest = block.partition("{")
    tokens: list[tuple[str, str]] = []
    position, source = 0, brace + rest
    while position < len(source):
        match = GEMMA_TOKEN.match(source, position)
        if not match:
            raise ValueError("not a call")
        position = match.end()
        kind = "text" if match.group(1) is not None else "mark" if match.group(2) else "bare"
        tokens.append((kind, match.group(match.lastindex or 0)))
    tokens.reverse()  # popped from the end
    value = _gemma_value(tokens)
    if tokens or not name or not isinstance(value, dict):
        raise ValueError("not a call")
    return Call(name, value)


def _gemma_value(tokens: list[tuple[str, str]]) -> Any:
    if not tokens:
        raise ValueError("a value is missing")
    kind, text = tokens.pop()
    if kind == "text":
        return text
    if kind == "bare":
        return loads(text.strip())
    if text == "[":
        return _gemma_items(tokens, "]", _gemma_value)
    if text == "{":
        return dict(_gemma_items(tokens, "}", _gemma_pair))
    raise ValueError(f"a value cannot begin with {text!r}")


def _gemma_pair(tokens: list[tuple[str, str]]) -> tuple[str, Any]:
    if len(tokens) < 2 or tokens[-1][0] == "mark" or tokens[-2] != ("mark", ":"):
        raise ValueError("wanted key:value")
    key = tokens.pop()[1]
    tokens.pop()
    return key, _gemma_value(tokens)


def _gemma_items(tokens: list[tuple[str, str]], closing: str, item: Any) -> list[Any]:
    if tokens and tokens[-1] == ("mark", closing):
        tokens.pop()
        return []
    items = []
    while True:
        items.append(item(tokens))
        if not tokens:
            raise ValueError(f"{closing!r} is missing")
        mark = tokens.pop()
        if mark == ("mark", closing):
            return items
        if mark != ("mark", ","):
            raise ValueError("wanted a comma")
