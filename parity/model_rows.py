"""Rows for measuring gate A0 of a model that has no run yet: texts of ours in its own template and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_sentis.probes import PROMPTS
from parity.gate_rows import choose_rows

SYSTEM = (
    "You keep the gate of a small town. Answer in one sentence, name the place first, and say nothing about the hour, "
    "the weather or the price of bread unless the traveller asks for it."
)
ANSWERS = (
    "The old mill: follow the river upstream, and you stand before its wheel in a quarter of an hour.",
    "None of them; the north gate stays shut until the bell has rung ten times.",
    "The watchtower, because its stair is lit, its door is narrow, and from there you see the harbour and the chapel.",
)


def model_rows(folder: Path, window: int | None) -> list[dict[str, Any]]:
    """Return three rows that share their beginning, and a longer one where none exceeds 100 tokens and the window.

    Args:
        folder: the model directory; without a chat template the texts stand under each other.
        window: the sliding window in tokens, None without one.
    """
    from mlx_sentis.templates import load_tokenizer, render

    tokenizer = load_tokenizer(folder)
    rows = []
    for number, (asked, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        said = [{"role": "user", "content": f"{SYSTEM}\n\n{asked}"}]
        has_template = getattr(tokenizer, "chat_template", None) is not None
        text = render(tokenizer, said, add_generation_prompt=True) if has_template else f"{said[0]['content']}\n\n"
        prompt, whole = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (text, text + answer))
        start = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
        rows.append({"id": f"model-{number}", "ids": whole, "trained": [[start, len(whole)]]})
    return choose_rows(rows, len(rows), window)
