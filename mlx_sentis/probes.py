"""Prompts for measuring base weights before there is any data: rendered with the model's own template, if any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_sentis.templates import adds_bos, load_tokenizer, render

PLACES = "the old mill, the north gate, the market square, the harbour, the chapel, the smithy and the watchtower"
PROMPTS = (
    "What is the capital of France?",
    "Open the north gate, then wait for ten seconds: ñandú, 東京, 42 × 3.5 = ?",
    f"You stand at a crossroads. From here a path leads to {PLACES}. It is late, the lamps are lit, and a traveller "
    f"asks the way. Name each place once, in the order given, and say in one sentence what a traveller would find "
    f"there; then tell which of {PLACES} you would choose for the night, and why.",
)


def probe_rows(model: Path) -> list[dict[str, Any]]:
    """Return rows of rendered prompt ids, one of them longer than 100 tokens.

    Args:
        model: the model directory.
    """
    tokenizer = load_tokenizer(model)
    rows = []
    for number, prompt in enumerate(PROMPTS):
        if tokenizer.chat_template:
            text = render(tokenizer, [{"role": "user", "content": prompt}], add_generation_prompt=True)
        else:
            text = (tokenizer.bos_token if adds_bos(tokenizer) else "") + prompt
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        rows.append({"id": f"probe-{number}", "ids": ids, "prompt_tokens": len(ids)})
    return rows
