"""Rows for tests of masks, and a prepared row as runs of text."""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from mlx_sentis.prepare.tools import normalised_tools


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*contents: str, tools: Any = None, **more: Any) -> Row:
    """Return a row of alternating user and assistant texts."""
    messages = [turn(("user", "assistant")[index % 2], text) for index, text in enumerate(contents)]
    return read_row({"messages": messages, "tools": tools, **more}, "rows.jsonl:7", ToolSet(), "system-block")


def command(call: Any, tools: Any, style: str) -> Row:
    shared = ToolSet("You are a guard.", normalised_tools(tools))
    return read_row({"user": "go", "call": call}, "rows.jsonl:7", shared, style)


def prepare(model: Any, row: Row) -> Prepared:
    found = next(prepared_rows([row], model.tokenizer, model.recipe))
    assert isinstance(found, Prepared), found
    return found


def refusal(model: Any, row: Row) -> str:
    found = next(prepared_rows([row], model.tokenizer, model.recipe))
    assert isinstance(found, str)
    return found


def pieces(model: Any, found: Prepared) -> list[tuple[str, bool]]:
    """Return the row as runs of (text, trained), decoded from its ids."""
    trained = {index for start, stop in found.trained for index in range(start, stop)}
    runs: list[tuple[list[int], bool]] = []
    for index, token in enumerate(found.ids):
        if not runs or runs[-1][1] != (index in trained):
            runs.append(([], index in trained))
        runs[-1][0].append(token)
    return [(model.tokenizer.decode(ids), flag) for ids, flag in runs]
