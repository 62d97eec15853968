"""What the template is given: the row's messages as they are, or shaped by the system-block convention.

Templates with a tools branch get `tools=` and `tool_calls`. The others get the tools in the system message, each call
as a line of the assistant's text, and a tool's result as a user turn (few templates know the role `tool`).
"""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.rows import Message, calls_of
from mlx_sentis.prepare.tools import SYSTEM_BLOCK, serialised, system_block
from mlx_sentis.templates import render

RESULT = "Result: "


def for_template(messages: list[Message], tools: list[dict[str, Any]], style: str) -> list[Message]:
    """Return the messages to render.

    Args:
        messages: canonical messages (see `Row`).
        tools: normalised tools.
        style: the recipe's `tools`, `system-block` or `template`.
    """
    if style != SYSTEM_BLOCK:
        return messages
    shaped = [_as_text(message) for message in messages]
    if not tools:
        return shaped
    has_system = bool(shaped) and shaped[0]["role"] == "system"
    block = system_block(shaped[0]["content"].strip() if has_system else "", tools)
    return [{"role": "system", "content": block}, *shaped[1 if has_system else 0 :]]


def _as_text(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": RESULT + message["content"]}
    if not message.get("tool_calls"):
        return message
    lines = [message["content"].strip(), *map(serialised, calls_of(message))]
    return {"role": message["role"], "content": "\n".join(filter(None, lines))}


def rendered(
    tokenizer: Any, shaped: list[Message], tools: list[dict[str, Any]], style: str, *, prompt: bool = False
) -> str:
    """Render shaped messages.

    Args:
        tokenizer: from `load_tokenizer`.
        shaped: from `for_template`.
        tools: normalised tools; handed to the template only where it has a branch for them.
        style: the recipe's `tools`.
        prompt: end with the header of the assistant's turn.
    """
    return render(tokenizer, shaped, (tools or None) if style != SYSTEM_BLOCK else None, prompt)
