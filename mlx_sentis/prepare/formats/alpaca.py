"""`{"instruction", "input", "output"}`: Alpaca rows.

The user's turn is the instruction and, below an empty line, the input where there is one; the model's own template
takes the place of Alpaca's prompt text. `history` (pairs of earlier question and answer) and `system` are read.
"""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.formats.turns import from_text, optional, said, system_turns
from mlx_sentis.prepare.rows import Message, Row, ToolSet


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with `instruction` and `output`.

    Raises:
        ValueError: a text is missing or empty, or the history is none.
    """
    asked = said("user", value["instruction"], "instruction")["content"]
    if more := optional(value, "input"):
        asked = f"{asked.rstrip()}\n\n{more}"
    turns = [said("user", asked, "instruction"), said("assistant", value["output"], "output")]
    return Row([*system_turns(optional(value, "system")), *_earlier(value.get("history")), *turns], [], source)


def _earlier(history: Any) -> list[Message]:
    pairs = from_text(history, "history") if history else []
    if not isinstance(pairs, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
        raise ValueError("history: wanted an array of [question, answer]")
    turns: list[Message] = []
    for index, (question, answer) in enumerate(pairs):
        where = f"history[{index}]"
        turns += [said("user", question, f"{where}[0]"), said("assistant", answer, f"{where}[1]")]
    return turns
