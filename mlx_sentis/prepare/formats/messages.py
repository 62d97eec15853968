"""`{"messages": [{"role", "content"}, …], "tools": […]}`: conversations as chat APIs have them.

| accepted | becomes |
|---|---|
| role `system` or `developer`, first; several in a row; a `system` text beside `messages` | one system turn |
| role `tool` or `function`; its result as a text or an object | a tool turn, with the tool's `name` where it is known |
| `content` null, absent, or a list of text parts | a text |
| `tool_calls`, or the older `function_call`; arguments as an object or as its JSON text | `tool_calls` with objects |
| `<tool_call>{JSON}</tool_call>` inside the assistant's text, in a row with tools | `tool_calls` |

A system turn further down is refused (few templates take one), and so is what would be trained otherwise than the
row says: `weight` 0, thoughts in a field of their own.
"""

from __future__ import annotations

import json
from typing import Any

from mlx_sentis.prepare.answers import split_calls
from mlx_sentis.prepare.formats.turns import called, from_text, optional, system_turns, tools_of
from mlx_sentis.prepare.jsonl import name_of
from mlx_sentis.prepare.rows import Message, Row, ToolSet, calls_of
from mlx_sentis.prepare.tools import Call, read_call

ROLES = ("system", "user", "assistant", "tool")
ALIASES = {"developer": "system", "function": "tool"}
THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with `messages`.

    Raises:
        ValueError: the first thing that is wrong.
    """
    tools = tools_of(value)
    return Row(read_messages(from_text(value["messages"], "messages"), tools, optional(value, "system")), tools, source)


def read_messages(value: Any, tools: list[dict[str, Any]], system: str = "", name: str = "messages") -> list[Message]:
    """Return canonical messages.

    Args:
        value: the array, as the row has it.
        tools: normalised tools; calls are checked against them.
        system: a system text that stands beside the array.
        name: the array's key, for errors.

    Raises:
        ValueError: the first thing that is wrong.
    """
    if not isinstance(value, list):
        raise ValueError(f"{name}: found {name_of(value)}, wanted an array")
    if not value:
        raise ValueError(f"{name}: found an empty array, wanted at least one message")
    messages = [_read_message(item, tools, f"{name}[{index}]") for index, item in enumerate(value)]
    roles = [message["role"] for message in messages]
    if "assistant" not in roles:
        raise ValueError(f"{name}: no assistant turn, so there is nothing to train")
    if roles[-1] != "assistant":
        raise ValueError(f"{name}: the last turn is the {roles[-1]}'s, wanted the assistant's")
    opening = next(index for index, role in enumerate(roles) if role != "system")
    if "system" in roles[opening:]:
        raise ValueError(f"{name}[{roles.index('system', opening)}]: a system turn can only come first")
    if roles[opening] != "user":
        raise ValueError(f"{name}: the first turn after system must be the user's")
    first = [message["content"].strip() for message in messages[:opening]]
    if system and any(first):
        raise ValueError(f"system: the row has a system text here and in {name}[0], wanted one")
    _name_results(messages, value)
    joined = "\n\n".join(filter(None, [system, *first]))
    return [*(messages[:opening] if len(first) == 1 and not system else system_turns(joined)), *messages[opening:]]


def _read_message(item: Any, tools: list[dict[str, Any]], where: str) -> Message:
    if not isinstance(item, dict):
        raise ValueError(f"{where}: found {name_of(item)}, wanted an object")
    given = item.get("role")
    role = ALIASES.get(given, given) if isinstance(given, str) else given
    if role not in ROLES:
        found = repr(given) if isinstance(given, str) else name_of(given)
        raise ValueError(f"{where}.role: found {found}, wanted one of {', '.join([*ROLES, *ALIASES])}")
    content, calls = _content(item.get("content"), role, where), _calls(item, tools, where)
    if role != "assistant" and calls:
        raise ValueError(f"{where}.tool_calls: only the assistant calls tools")
    if role == "assistant":
        _refuse_other_training(item, where)
        if tools and not calls:
            content, calls = _written_calls(content, tools, where)
    if not content.strip() and not calls and role in ("user", "assistant"):
        raise ValueError(f"{where}.content: the {role}'s text is empty")
    return called(calls, content) if calls else {"role": role, "content": content}


def _content(content: Any, role: str, where: str) -> str:
    """Return a message's text; null and absent are the empty text, a list of text parts is joined."""
    if content is None:
        return ""
    if isinstance(content, dict) and role == "tool":
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
            raise ValueError(f"{where}.content: found parts that are no text, only text is trained here")
        return "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise ValueError(f"{where}.content: found {name_of(content)}, wanted a text")
    return content


def _calls(item: dict[str, Any], tools: list[dict[str, Any]], where: str) -> list[Call]:
    calls = from_text(item.get("tool_calls") or [], f"{where}.tool_calls")
    if not isinstance(calls, list):
        raise ValueError(f"{where}.tool_calls: found {name_of(calls)}, wanted an array")
    read = [read_call(call, tools, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]
    if not read and item.get("function_call"):
        read = [read_call(item["function_call"], tools, f"{where}.function_call")]
    return read


def _written_calls(content: str, tools: list[dict[str, Any]], where: str) -> tuple[str, list[Call]]:
    try:
        text, written = split_calls(content)
    except ValueError as error:
        raise ValueError(f"{where}.content: a <tool_call> that is no call: {error}") from None
    return text, [read_call(call.as_json(), tools, where) for call in written]


def _refuse_other_training(item: dict[str, Any], where: str) -> None:
    """Refuse what asks for other training than every assistant turn gets, instead of leaving it aside.

    Raises:
        ValueError: a turn that is not to be trained, or thoughts beside its content.
    """
    if item.get("weight") == 0 or item.get("train") is False:
        key = "weight" if "weight" in item else "train"
        raise ValueError(f"{where}.{key}: single turns cannot be left untrained; cut the row, or train only last turns")
    if thoughts := next((key for key in THOUGHTS if item.get(key)), None):
        raise ValueError(f"{where}.{thoughts}: thoughts stand inside content, as <think>…</think>, or nowhere")


def _name_results(messages: list[Message], value: list[dict[str, Any]]) -> None:
    """Give every tool turn its tool's name: its own, that of the call with its id, or of the next call unanswered."""
    names: dict[str, str] = {}
    waiting: list[str] = []
    for message, item in zip(messages, value, strict=True):
        if calls := calls_of(message):
            waiting = [call.name for call in calls]
            ids = [call.get("id") if isinstance(call, dict) else None for call in _as_list(item.get("tool_calls"))]
            names |= {one: name for one, name in zip(ids, waiting, strict=False) if isinstance(one, str)}
        elif message["role"] == "tool":
            by_id = item.get("tool_call_id")
            following = waiting.pop(0) if waiting else None
            own = item.get("name") or (names.get(by_id) if isinstance(by_id, str) else None) or following
            message |= {"name": own} if isinstance(own, str) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
