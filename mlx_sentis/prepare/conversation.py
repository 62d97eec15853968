"""What the template is given: the row's messages as they are, or shaped by the system-block convention.

Templates with a tools branch get `tools=` and `tool_calls`. The others get the tools in the system message, each call
as a line of the assistant's text, and a tool's result as a user turn (few templates know the role `tool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlx_sentis.prepare.rows import Message, calls_of
from mlx_sentis.prepare.tools import SYSTEM_BLOCK, serialised, system_block
from mlx_sentis.templates import Tools, adds_bos, render

RESULT = "Result: "


@dataclass(frozen=True)
class Conversation:
    """What the template is given: messages, and the tools where it has a branch for them."""

    messages: list[Message]
    tools: Tools = None

    def before(self, index: int) -> Conversation:
        """Return the conversation in front of a message."""
        return Conversation(self.messages[:index], self.tools)


def conversation_of(messages: list[Message], tools: list[dict[str, Any]], style: str) -> Conversation:
    """Return what the template is given for a row.

    Args:
        messages: canonical messages (see `Row`).
        tools: normalised tools.
        style: the recipe's `tools`, `system-block` or `template`.
    """
    return Conversation(for_template(messages, tools, style), (tools or None) if style != SYSTEM_BLOCK else None)


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


def rendered(tokenizer: Any, conversation: Conversation, *, prompt: bool = False) -> str:
    """Render a conversation.

    Args:
        tokenizer: from `load_tokenizer`.
        conversation: from `conversation_of`.
        prompt: end with the header of the assistant's turn.
    """
    return render(tokenizer, conversation.messages, conversation.tools, prompt)


def plain_frame(tokenizer: Any, stop_ids: Sequence[int]) -> tuple[str, str]:
    """Return what stands before and behind a plain text: a begin token where the tokenizer puts one, the first stop."""
    return tokenizer.bos_token if adds_bos(tokenizer) else "", tokenizer.decode([stop_ids[0]])
