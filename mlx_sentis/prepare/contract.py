"""The prompt contract: what the model sees, to the byte, for everyone who builds a prompt later.

It is written with the data and checked before the first update, on the trained checkpoint, at export, and in the game.
"""

from __future__ import annotations

from typing import Any

from mlx_sentis.prepare.conversation import for_template, rendered
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.tools import NONE, SEPARATORS, SYSTEM_BLOCK
from weights_bridge.files import sha256_of_text

SCHEMA = "mlx-sentis/prompt_contract/1"


def make_contract(row: Row, tokenizer: Any, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt contract, with one row's prompt as its sample.

    Args:
        row: the sample; one with a call shows how a call is written.
        tokenizer: from `load_tokenizer`.
        recipe: the model's recipe.
    """
    style, shaped = recipe["tools"], for_template(row.messages, row.tools, recipe["tools"])
    prompt = rendered(tokenizer, shaped[:-1], row.tools, style, prompt=True)
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    bos = recipe.get("bos_id")
    return {
        "schema": SCHEMA,
        "template_sha256": sha256_of_text(template_text(tokenizer)),
        "messages": row.messages,
        "tools": row.tools,
        "rendered": prompt,
        "rendered_sha256": sha256_of_text(prompt),
        "ids": ids,
        "stop_ids": list(recipe["stop_ids"]),
        "padding": {"value": recipe["padding"]["value"], "side": recipe["padding"]["side"]},
        "bos": {"id": bos, "count_in_prompt": ids.count(bos)},
        "tool_serialisation": {
            "style": style,
            "call_template": '{"name": NAME, "arguments": {KEY: VALUE, ...}}' if style == SYSTEM_BLOCK else "template",
            "key_order": "schema",
            "separators": list(SEPARATORS),
            "none": NONE,
            "sample_answer": rendered(tokenizer, shaped, row.tools, style)[len(prompt) :],
        },
    }


def template_text(tokenizer: Any) -> str:
    """Return the chat template that plain conversations use (some models bring several by name)."""
    forms = tokenizer.chat_template
    return forms["default"] if isinstance(forms, dict) else forms


def sample_row(rows: list[Row]) -> Row:
    """Return the row that the contract shows: the first with a call, else the first."""
    return next((row for row in rows if row.calls), rows[0])
