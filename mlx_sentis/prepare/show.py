"""Showing one prepared row token by token: trained or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mlx_sentis.prepare.stage import data_folder, tokenizer_of
from weights_bridge.errors import StageError, unknown_name
from weights_bridge.files import read_json, read_jsonl

RECIPE_HINT = "prepare the data again: show-mask reads the tokenizer that recipe.json names"


@dataclass(frozen=True)
class Token:
    """One token of a row: its place, id, text, and whether it is trained."""

    index: int
    id: int
    text: str
    trained: bool

    def as_json(self) -> dict[str, Any]:
        return {"index": self.index, "id": self.id, "text": self.text, "trained": self.trained}


def read_mask(folder: Path, split: str, number: int) -> tuple[dict[str, Any], list[Token]]:
    """Return one prepared row and its tokens.

    Args:
        folder: a run folder, or its `data/`.
        split: train, valid, calibration or holdout.
        number: the row, from 1.

    Raises:
        StageError: no such data, split or row, or the tokens are no longer those of the text.
    """
    data = data_folder(folder)
    if not (data / f"{split}.jsonl").is_file():
        raise unknown_name("split", split, (file.stem for file in data.glob("*.jsonl")))
    rows = read_jsonl(data / f"{split}.jsonl")
    if not 1 <= number <= len(rows):
        raise StageError(f"{data}/{split}.jsonl: no row {number}", hint=f"--row takes 1 to {len(rows)}")
    row = rows[number - 1]
    return row, tokens_of(row, _tokenizer_beside(data))


def tokens_of(row: dict[str, Any], tokenizer: Any) -> list[Token]:
    """Return a prepared row's tokens with their texts.

    Raises:
        StageError: the tokenizer makes other ids of the row's text.
    """
    encoded = tokenizer(row["text"], add_special_tokens=False, return_offsets_mapping=True)
    if encoded["input_ids"] != row["ids"]:
        raise StageError(f"row {row['id']}: its ids are not those of its text", hint="prepare the data again")
    trained = {index for start, stop in row["trained"] for index in range(start, stop)}
    return [
        Token(index, token, row["text"][start:stop], index in trained)
        for index, (token, (start, stop)) in enumerate(zip(row["ids"], encoded["offset_mapping"], strict=True))
    ]


def _tokenizer_beside(data: Path) -> Any:
    for folder in (data.parent, data):
        if (folder / "recipe.json").is_file():
            recipe = read_json(folder / "recipe.json")
            return tokenizer_of(Path(recipe["model"]["path"]), recipe)
    raise StageError(f"{data.parent}/recipe.json: no such file", hint=RECIPE_HINT)


def mask_text(row: dict[str, Any], tokens: list[Token]) -> str:
    """Return the tokens as lines for a terminal: trained ones green and marked with a full dot."""
    trained = sum(token.trained for token in tokens)
    lines = [f"{row['id']} ({row['source']}): {len(tokens)} tokens, {trained} trained (●)"]
    for token in tokens:
        mark, colour = ("●", "green") if token.trained else ("·", "bright_black")
        lines.append(click.style(f"{token.index:5} {mark} {token.id:7} {token.text!r}", fg=colour))
    return "\n".join(lines)
