"""What all forms of rows are made from: turns of a conversation, and values that may be given as their JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlx_sentis.prepare.jsonl import loads, name_of
from mlx_sentis.prepare.rows import Message
from mlx_sentis.prepare.tools import NONE, NONE_RULE, TEMPLATE, Call, normalised_tools, read_call

NO_CALL = (NONE, "null")  # how a table's cell says that no tool fits


def said(role: str, text: Any, where: str) -> Message:
    """Return one turn.

    Raises:
        ValueError: no text, or an empty one.
    """
    if not isinstance(text, str):
        raise ValueError(f"{where}: found {name_of(text)}, wanted a text")
    if not text.strip():
        raise ValueError(f"{where}: the text is empty")
    return {"role": role, "content": text}


def optional(value: dict[str, Any], key: str) -> str:
    """Return a text that may be null, empty or absent, then the empty text.

    Raises:
        ValueError: it is there and no text.
    """
    text = value.get(key)
    if text is None or isinstance(text, str):
        return text if text and text.strip() else ""
    raise ValueError(f"{key}: found {name_of(text)}, wanted a text")


def system_turns(*texts: str) -> list[Message]:
    """Return the system turn of the given texts, no turn when all are empty."""
    text = "\n".join(filter(None, texts))
    return [{"role": "system", "content": text}] if text else []


def none_rule(style: str) -> str:
    """Return what tells a model that `none` is an answer, where the system block does not."""
    return NONE_RULE if style == TEMPLATE else ""


def called(calls: Sequence[Call], content: str = "") -> Message:
    """Return the assistant's turn that makes these calls; none at all is the agreed word."""
    if not calls:
        return {"role": "assistant", "content": NONE}
    items = [{"type": "function", "function": call.as_json()} for call in calls]
    return {"role": "assistant", "content": content, "tool_calls": items}


def from_text(value: Any, where: str) -> Any:
    """Return a value that may be given as its JSON text, as tables and some data sets do.

    Raises:
        ValueError: a text that begins like an array or an object and is none.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return loads(value)
    except ValueError as error:
        raise ValueError(f"{where}: the text is {error}") from None


def tools_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row's own tools (`tools`, or `functions` as they were once called), none when it has no such key.

    Raises:
        ValueError: they are no tools.
    """
    key = "tools" if "tools" in value else "functions"
    given = value.get(key)
    return normalised_tools(from_text(given, key)) if given not in (None, "") else []


def read_calls(value: Any, tools: list[dict[str, Any]], where: str) -> list[Call]:
    """Return the calls of one answer: an object, an array of them, their JSON text; null or `none` is no call.

    Raises:
        ValueError: anything else, or a call that its schema excludes.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in NO_CALL):
        return []
    if isinstance(value, str) and not value.strip():
        raise ValueError(f"{where}: the text is empty; write {NONE} where no tool fits")
    value = from_text(value, where)
    if isinstance(value, list):
        return [read_call(item, tools, f"{where}[{index}]") for index, item in enumerate(value)]
    return [read_call(value, tools, where)]
