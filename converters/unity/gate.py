"""The out-of-scope gate in C#, written from `eval/gate.json`."""

from __future__ import annotations

import math
from pathlib import Path

from converters.unity import csharp
from weights_bridge.errors import StageError
from weights_bridge.files import read_json

NAME = "gate.json"
SCHEMA = "mlx-sentis/gate/1"
SCORE = "first_token_margin"
HINT = "`mlx-sentis eval RUN` writes it again"


def gate_sources(path: Path) -> dict[str, str]:
    """Return path to text of what is written of a gate, in the namespace `MlxSentis`.

    Args:
        path: `eval/gate.json`.

    Raises:
        StageError: not JSON, of another schema or score, or a field is missing or of another kind.
    """
    document = read_json(path)
    found = document.get("schema") if isinstance(document, dict) else None
    if found != SCHEMA:
        raise StageError(f"{path}: schema found {found!r}, wanted {SCHEMA!r}", hint=HINT)
    score, threshold, tools = document.get("score"), document.get("threshold"), document.get("tools")
    if not isinstance(score, dict) or score.get("name") != SCORE or not _is_id(score.get("refusal_id")):
        raise StageError(f"{path}: score: found {str(score)[:60]!r}, wanted {SCORE} with a refusal_id", hint=HINT)
    if not isinstance(threshold, int | float) or isinstance(threshold, bool) or not math.isfinite(threshold):
        raise StageError(f"{path}: threshold: found {threshold!r}, wanted a number", hint=HINT)
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise StageError(f"{path}: tools: found {str(tools)[:60]!r}, wanted an array of texts", hint=HINT)
    fields: list[csharp.Field] = [
        ("The least margin of a call that is carried out.", "float", "Threshold", csharp.number(threshold)),
        ("The first id of a refusal.", "int", "RefusalId", str(score["refusal_id"])),
        ("Tools that may be called.", csharp.TEXTS, "Tools", csharp.texts(tools, " " * 8)),
    ]
    what = "What calls the game carries out, chosen on the calibration rows of the run."
    return {"Runtime/GateRules.cs": csharp.constants(NAME, "GateRules", what, fields)}


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= csharp.MOST
