"""New texts as token ids, in a process of their own: transformers' tokenizers bring torch along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weights_bridge.files import read_json, write_json


def answer(request: dict[str, Any]) -> None:
    """Write the prompts' token ids as JSON, `{"ids": [[…], …]}`.

    Args:
        request: `texts`, `recipe`, `contract` (paths), `out`.
    """
    from mlx_sentis.validation.text import ids_of_texts

    recipe = read_json(Path(request["recipe"]))
    model, contract = Path(recipe["model"]["path"]), read_json(Path(request["contract"]))
    write_json(Path(request["out"]), {"ids": ids_of_texts(request["texts"], model, recipe, contract)})
