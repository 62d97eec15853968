"""`{"prompt", "completion"}`, or `{"user", "assistant"}`: one question and its answer; `system` where there is one."""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.formats.turns import optional, said, system_turns
from mlx_sentis.prepare.rows import Row, ToolSet


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with a question and an answer.

    Raises:
        ValueError: one of them is no text, or empty.
    """
    ask, answer = ("prompt", "completion") if "completion" in value and "prompt" in value else ("user", "assistant")
    turns = [said("user", value[ask], ask), said("assistant", value[answer], answer)]
    return Row([*system_turns(optional(value, "system")), *turns], [], source)
