"""Rows, brought to one form: messages with content and calls, and the tools they may use.

`mlx_sentis/prepare/formats/` reads the forms that users have, one file per form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlx_sentis.prepare.tools import NONE, Call

Message = dict[str, Any]


@dataclass(frozen=True)
class ToolSet:
    """What `tools.json` says: instruction and tools, which all command rows of a folder share; and the file's name."""

    instruction: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    file: str = ""


@dataclass(frozen=True)
class Row:
    """One row, read and checked.

    Attributes:
        messages: `{"role", "content"}`; content is a text, never null; assistant turns may have `tool_calls`, each
            `{"type": "function", "function": {"name", "arguments": object}}`; tool turns have the `name` of their tool
            where it is known. The last turn is the assistant's.
        tools: normalised tools, empty for none.
        source: `file:line`, as the user named the file.
        remark: what is odd about the row and yet no fault, mostly empty.
    """

    messages: list[Message]
    tools: list[dict[str, Any]]
    source: str
    remark: str = ""

    @property
    def calls(self) -> list[Call]:
        """The calls of the last turn."""
        return calls_of(self.messages[-1])

    @property
    def is_plain_text(self) -> bool:
        """Whether the row is a text without a question, which no chat template should frame."""
        return len(self.messages) == 1

    @property
    def kind(self) -> str:
        """The class that counts and strata go by: the tool's name, `none`, or `text`."""
        if self.calls:
            return "+".join(call.name for call in self.calls)
        return NONE if self.tools and self.messages[-1]["content"].strip() == NONE else "text"

    @property
    def user_text(self) -> str:
        """What the user says, all turns (of a plain text, the text): rows that share it say the same thing."""
        said = [message["content"].strip() for message in self.messages if message["role"] == "user"]
        return "\n".join(said or [self.messages[-1]["content"].strip()])

    def expect(self) -> dict[str, Any] | None:
        """Return the right answer as scoring takes it; None where there is no single one (text, several calls)."""
        if len(self.calls) == 1:
            return {"kind": "call", **self.calls[0].as_json()}
        return {"kind": "none"} if self.kind == NONE else None


def calls_of(message: Message) -> list[Call]:
    """Return the calls of one canonical message."""
    bodies = [item["function"] for item in message.get("tool_calls", [])]
    return [Call(body["name"], body["arguments"]) for body in bodies]


def read_row(value: dict[str, Any], source: str, shared: ToolSet, style: str, form: str | None = None) -> Row:
    """Bring one object of any form to a `Row`.

    Args:
        value: the line's object; keys that the form does not know are left aside.
        source: `file:line`.
        shared: instruction and tools for command rows.
        style: the recipe's `tools`; a template that lists the tools itself is not told that `none` is an answer.
        form: what the row is to be taken for; None recognises it by its keys.

    Raises:
        ValueError: the first thing that is wrong.
    """
    from mlx_sentis.prepare.formats import form_of  # the forms build rows, so they import this module
    from mlx_sentis.prepare.formats.columns import unrecognised

    found = form_of(value, form)
    if found is None:
        raise ValueError(unrecognised(value, form))
    return found.read(value, source, shared, style)
