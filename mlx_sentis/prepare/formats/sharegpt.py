"""`{"conversations": [{"from", "value"}, …]}`: ShareGPT conversations, with `tools` and `system` where there are any.

| `from` | turn |
|---|---|
| `human`, `user` | user |
| `gpt`, `assistant`, `chatgpt`, `model` | assistant |
| `function_call`, `tool_call` | assistant; the value is a call, or an array of calls, mostly as JSON text |
| `observation`, `tool`, `tool_response`, `function_response`, `function` | tool |
| `system`, `developer` | system |

Items with `role` and `content` under the same key are read as messages.
"""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.formats.messages import read_messages
from mlx_sentis.prepare.formats.turns import from_text, optional, tools_of
from mlx_sentis.prepare.jsonl import name_of
from mlx_sentis.prepare.rows import Row, ToolSet

CALLS = ("function_call", "tool_call")
SPEAKERS = {
    "user": ("human", "user"),
    "assistant": ("gpt", "assistant", "chatgpt", "model", *CALLS),
    "tool": ("observation", "tool", "tool_response", "function_response", "function"),
    "system": ("system", "developer"),
}
ROLE_OF = {speaker: role for role, speakers in SPEAKERS.items() for speaker in speakers}


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with `conversations`.

    Raises:
        ValueError: the first thing that is wrong.
    """
    tools, turns = tools_of(value), from_text(value["conversations"], "conversations")
    if isinstance(turns, list):
        turns = [_as_message(turn, f"conversations[{index}]") for index, turn in enumerate(turns)]
    return Row(read_messages(turns, tools, optional(value, "system"), "conversations"), tools, source)


def _as_message(turn: Any, where: str) -> Any:
    if not isinstance(turn, dict) or "role" in turn:
        return turn
    speaker, text = turn.get("from"), turn.get("value")
    if not isinstance(speaker, str) or speaker not in ROLE_OF:
        known = ", ".join(ROLE_OF)
        raise ValueError(f"{where}.from: found {speaker!r}, wanted one of {known}")
    if speaker in CALLS:
        calls = from_text(text, f"{where}.value")
        if not calls or not isinstance(calls, dict | list):
            raise ValueError(f"{where}.value: found {name_of(calls)}, wanted a call or an array of calls")
        return {"role": "assistant", "tool_calls": calls if isinstance(calls, list) else [calls]}
    return {"role": ROLE_OF[speaker], "content": text} | {key: turn[key] for key in ("weight", "train") if key in turn}
