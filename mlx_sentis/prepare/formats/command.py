"""`{"user", "call"}`: one request and the call that answers it, null where no tool fits.

The tools are in `tools.json` beside the file, or under `tools` in the row; several calls are an array. `system` in the
row takes the place of the instruction in `tools.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_sentis.prepare.formats.turns import called, none_rule, optional, read_calls, said, system_turns, tools_of
from mlx_sentis.prepare.jsonl import BOM, loads, name_of
from mlx_sentis.prepare.rows import Row, ToolSet
from mlx_sentis.prepare.tools import normalised_tools
from weights_bridge.errors import StageError


def read(value: dict[str, Any], source: str, shared: ToolSet, style: str) -> Row:
    """Read one object with `user` and `call`.

    Raises:
        ValueError: the first thing that is wrong.
    """
    tools = tools_of(value) or shared.tools
    if not tools:
        lacks = f"tools: {shared.file} lists none" if shared.file else "tools.json beside its file"
        raise ValueError(f"a row with a call needs {lacks}")
    opening = system_turns(optional(value, "system") or shared.instruction, none_rule(style))
    calls = read_calls(value["call"], tools, "call")
    return Row([*opening, said("user", value["user"], "user"), called(calls)], tools, source)


def read_tool_set(path: Path) -> ToolSet:
    """Return what a `tools.json` says; an empty set when there is none.

    Raises:
        StageError: it is there and not `{"instruction", "tools"}` (or a bare array of tools).
    """
    if not path.is_file():
        return ToolSet()
    hint = 'wanted {"instruction": text, "tools": [{"name", "description", "parameters"}]}'
    try:
        value = loads(path.read_bytes().removeprefix(BOM).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise StageError(f"{path}: {error}", hint=hint) from None
    value = {"tools": value} if isinstance(value, list) else value
    if not isinstance(value, dict):
        raise StageError(f"{path}: found {name_of(value)}", hint=hint)
    instruction = value.get("instruction", "")
    if not isinstance(instruction, str):
        raise StageError(f"{path}: instruction: found {name_of(instruction)}", hint=hint)
    try:
        return ToolSet(instruction.strip(), normalised_tools(value.get("tools")), path.name)
    except ValueError as error:
        raise StageError(f"{path}: {error}", hint=hint) from None
