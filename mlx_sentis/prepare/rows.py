"""Rows in their three forms, brought to one: messages with content and calls, and the tools they may use.

| form | keys |
|---|---|
| command | `user` and `call` (`{"name", "arguments"}`, null: no tool fits); the tools are in `tools.json` beside it |
| messages | `messages`, and `tools` where there are any |
| completion | `prompt` and `completion` |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlx_sentis.prepare.jsonl import name_of
from mlx_sentis.prepare.tools import NONE, NONE_RULE, TEMPLATE, Call, normalised_tools, read_call

Message = dict[str, Any]
ROLES = ("system", "user", "assistant", "tool")
FORMS = '{"user", "call"}, {"messages"} or {"prompt", "completion"}'


@dataclass(frozen=True)
class ToolSet:
    """What `tools.json` says: the instruction and the tools that all command rows of a folder share."""

    instruction: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One row, read and checked.

    Attributes:
        messages: `{"role", "content"}`; content is a text, never null; assistant turns may have `tool_calls`, each
            `{"type": "function", "function": {"name", "arguments": object}}`. The last turn is the assistant's.
        tools: normalised tools, empty for none.
        source: `file:line`, as the user named the file.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    source: str

    @property
    def calls(self) -> list[Call]:
        """The calls of the last turn."""
        return calls_of(self.messages[-1])

    @property
    def kind(self) -> str:
        """The class that counts and strata go by: the tool's name, `none`, or `text`."""
        if self.calls:
            return "+".join(call.name for call in self.calls)
        return NONE if self.tools and self.messages[-1]["content"].strip() == NONE else "text"

    @property
    def user_text(self) -> str:
        """What the user says, all turns: rows that share it say the same thing."""
        return "\n".join(message["content"].strip() for message in self.messages if message["role"] == "user")

    def expect(self) -> dict[str, Any] | None:
        """Return the right answer as scoring takes it; None where there is no single one (text, several calls)."""
        if len(self.calls) == 1:
            return {"kind": "call", **self.calls[0].as_json()}
        return {"kind": "none"} if self.kind == NONE else None


def calls_of(message: Message) -> list[Call]:
    """Return the calls of one canonical message."""
    bodies = [item["function"] for item in message.get("tool_calls", [])]
    return [Call(body["name"], body["arguments"]) for body in bodies]


def read_row(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Bring one object of any form to a `Row`.

    Args:
        value: the line's object; keys that the form does not know are left aside.
        source: `file:line`.
        shared: instruction and tools for command rows.
        style: the recipe's `tools`; a template that lists the tools itself is not told that `none` is an answer.

    Raises:
        ValueError: the first thing that is wrong.
    """
    if "messages" in value:
        tools = normalised_tools(value.get("tools"))
        return Row(_read_messages(value["messages"], tools), tools, source)
    if "prompt" in value and "completion" in value:
        messages = [_said("user", value["prompt"], "prompt"), _said("assistant", value["completion"], "completion")]
        return Row(messages, [], source)
    if "user" in value and "call" in value:
        return _read_command(value, source, shared, style)
    keys = ", ".join(sorted(value)[:6]) or "no keys"
    raise ValueError(f"found {keys}, wanted {FORMS}")


def _read_command(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    if not shared.tools:
        raise ValueError("a row with a call needs tools.json beside its file")
    system = "\n".join(filter(None, [shared.instruction, NONE_RULE if style == TEMPLATE else ""]))
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages.append(_said("user", value["user"], "user"))
    if value["call"] is None:
        messages.append({"role": "assistant", "content": NONE})
    else:
        call = read_call(value["call"], shared.tools, "call")
        messages.append({"role": "assistant", "content": "", "tool_calls": [_tool_call(call)]})
    return Row(messages, shared.tools, source)


def _said(role: str, text: Any, where: str) -> Message:
    if not isinstance(text, str):
        raise ValueError(f"{where}: found {name_of(text)}, wanted a text")
    if not text.strip():
        raise ValueError(f"{where}: the text is empty")
    return {"role": role, "content": text}


def _tool_call(call: Call) -> dict[str, Any]:
    return {"type": "function", "function": call.as_json()}


def _read_messages(value: Any, tools: list[dict[str, Any]]) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"messages: found {'an empty array' if value == [] else name_of(value)}, wanted an array")
    messages = [_read_message(item, tools, f"messages[{index}]") for index, item in enumerate(value)]
    roles = [message["role"] for message in messages]
    if "assistant" not in roles:
        raise ValueError("messages: no assistant turn, so there is nothing to train")
    if roles[-1] != "assistant":
        raise ValueError(f"messages: the last turn is the {roles[-1]}'s, wanted the assistant's")
    if "system" in roles[1:]:
        raise ValueError(f"messages[{roles.index('system', 1)}]: a system turn can only come first")
    if roles[1 if roles[0] == "system" else 0] != "user":
        raise ValueError("messages: the first turn after system must be the user's")
    return messages


def _read_message(item: Any, tools: list[dict[str, Any]], where: str) -> Message:
    if not isinstance(item, dict):
        raise ValueError(f"{where}: found {name_of(item)}, wanted an object")
    role = item.get("role")
    if role not in ROLES:
        raise ValueError(f"{where}.role: found {role!r}, wanted one of {', '.join(ROLES)}")
    content, calls = _read_content(item.get("content"), where), item.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError(f"{where}.tool_calls: found {name_of(calls)}, wanted an array")
    if calls and role != "assistant":
        raise ValueError(f"{where}.tool_calls: only the assistant calls tools")
    read = [read_call(call, tools, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]
    if not content.strip() and not read and role in ("user", "assistant"):
        raise ValueError(f"{where}.content: the {role}'s text is empty")
    message = {"role": role, "content": content}
    return message | ({"tool_calls": [_tool_call(call) for call in read]} if read else {})


def _read_content(content: Any, where: str) -> str:
    """Return a message's text; null and absent are the empty text, a list of text parts is joined."""
    if content is None:
        return ""
    if isinstance(content, list):
        if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
            raise ValueError(f"{where}.content: found parts that are no text, only text is trained here")
        return "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise ValueError(f"{where}.content: found {name_of(content)}, wanted a text")
    return content
