"""Rows made up for measuring: chats of one and two turns and tool calls, all different, a few of them almost alike."""

from __future__ import annotations

import importlib.resources
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.shingles import words

WORDS_IN_ANSWER, WORDS_IN_QUESTION = (80, 160), (50, 120)  # about 300 tokens with the system text
NEAR_SHARE = 0.05  # of the rows say what an earlier one said, with one word changed
TOOLS = [
    {
        "name": f"{verb}_{thing}",
        "description": f"{verb} the {thing}",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}},
    }
    for verb, thing in (("open", "door"), ("give", "item"), ("light", "lamp"), ("call", "guard"))
]


def write_rows(path: Path, rows: int, seed: int = 7) -> None:
    """Write rows as JSON lines in the form `messages`."""
    with path.open("w", encoding="utf-8") as file:
        for row in made_rows(rows, seed):
            file.write(json.dumps(row) + "\n")


def made_rows(rows: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    """Yield rows: of ten, six answer in text, two have a second turn, two call a tool.

    Args:
        rows: how many.
        seed: of the random choice.
    """
    rng = random.Random(seed)
    vocabulary = sorted({word for text in _shipped_texts() for word in words(text)})
    earlier = ""
    for number in range(rows):
        question = _changed(rng, earlier, vocabulary) if rng.random() < NEAR_SHARE and earlier else ""
        question = question or _said(rng, vocabulary, WORDS_IN_QUESTION)
        earlier = question
        answer = {"role": "assistant", "content": _said(rng, vocabulary, WORDS_IN_ANSWER)}
        messages = [{"role": "system", "content": "You live in a village by the river and help whoever asks you."}]
        messages += [{"role": "user", "content": question}]
        if number % 10 in (8, 9):
            tool = rng.choice(TOOLS)
            arguments = {"name": rng.choice(vocabulary), "count": rng.randrange(9)}
            call = {"type": "function", "function": {"name": tool["name"], "arguments": arguments}}
            yield {"messages": [*messages, {"role": "assistant", "tool_calls": [call]}], "tools": TOOLS}
        elif number % 10 in (6, 7):
            again = {"role": "user", "content": _said(rng, vocabulary, (8, 20))}
            short = {"role": "assistant", "content": _said(rng, vocabulary, (20, 50))}
            yield {"messages": [*messages, short, again, answer]}
        else:
            yield {"messages": [*messages, answer]}


def _shipped_texts() -> Iterator[str]:
    folder = Path(str(importlib.resources.files("mlx_sentis"))) / "data" / "npc-commands"
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["user"]


def _said(rng: random.Random, vocabulary: list[str], length: tuple[int, int]) -> str:
    chosen = rng.choices(vocabulary, k=rng.randint(*length))
    sentences = [" ".join(chosen[at : at + 12]).capitalize() for at in range(0, len(chosen), 12)]
    return ". ".join(sentences) + "."


def _changed(rng: random.Random, text: str, vocabulary: list[str]) -> str:
    pieces = text.split(" ")
    pieces[rng.randrange(len(pieces))] = rng.choice(vocabulary)
    return " ".join(pieces)
