"""Showing one prepared row token by token: trained or not, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from mlx_sentis.prepare.conversation import conversation_of, rendered
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.spans import common_length
from mlx_sentis.prepare.stage import data_folder, tokenizer_of
from weights_bridge.errors import StageError, counted, unknown_name
from weights_bridge.files import read_json, read_jsonl

RECIPE_HINT = "prepare the data again: show-mask reads the tokenizer that recipe.json names"
TRAINED, READ, LEFT_OUT = "●", "·", "○"
STYLES: dict[str, dict[str, Any]] = {TRAINED: {"fg": "green"}, READ: {"dim": True}, LEFT_OUT: {"fg": "yellow"}}
SPECIAL: dict[str, Any] = {"fg": "magenta", "bold": True}


@dataclass(frozen=True)
class Token:
    """One token of a row.

    Attributes:
        index: its place.
        id: in the vocabulary.
        text: its characters; empty for the second and later pieces of one character.
        trained: whether the loss counts it.
        special: a token that no text can be split into.
        piece: as the vocabulary spells it.
    """

    index: int
    id: int
    text: str
    trained: bool
    special: bool
    piece: str


@dataclass(frozen=True)
class Part:
    """One turn of the row: its role (two where the template writes them as one), and its tokens [start, stop)."""

    role: str
    start: int
    stop: int


@dataclass(frozen=True)
class Mask:
    """A prepared row as it is shown.

    Attributes:
        row: as the file holds it.
        split: of the file.
        tokens: all of them.
        parts: the turns, in order.
        assistant: half-open spans of every assistant turn, trained or not.
        notes: what is worth knowing about this row.
    """

    row: dict[str, Any]
    split: str
    tokens: list[Token]
    parts: list[Part]
    assistant: list[tuple[int, int]]
    notes: list[str] = field(default_factory=list)

    @property
    def trained_tokens(self) -> int:
        return sum(token.trained for token in self.tokens)

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "id": self.row["id"],
            "split": self.split,
            "source": self.row["source"],
            "trained_tokens": self.trained_tokens,
            "turns": [asdict(part) for part in self.parts],
            "assistant_spans": [list(span) for span in self.assistant],
            "notes": self.notes,
            "tokens": [asdict(token) for token in self.tokens],
        }


def read_mask(folder: Path, split: str, number: int) -> Mask:
    """Return one prepared row with its tokens.

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
    recipe = _recipe_beside(data)
    tokenizer = tokenizer_of(Path(recipe["model"]["path"]), recipe)
    return mask_of(rows[number - 1], split, tokenizer, recipe)


def _recipe_beside(data: Path) -> dict[str, Any]:
    for folder in (data.parent, data):
        if (folder / "recipe.json").is_file():
            return read_json(folder / "recipe.json")
    raise StageError(f"{data.parent}/recipe.json: no such file", hint=RECIPE_HINT)


def mask_of(row: dict[str, Any], split: str, tokenizer: Any, recipe: dict[str, Any]) -> Mask:
    """Return a prepared row with its tokens, turns and notes.

    Raises:
        StageError: the tokenizer makes other ids of the row's text.
    """
    encoded = tokenizer(row["text"], add_special_tokens=False, return_offsets_mapping=True)
    if encoded["input_ids"] != row["ids"]:
        raise StageError(f"row {row['id']}: its ids are not those of its text", hint="prepare the data again")
    offsets = encoded["offset_mapping"]
    read = Row(row["messages"], row["tools"], row["source"])
    again = next(prepared_rows([read], tokenizer, recipe))
    assistant = again.trained if isinstance(again, Prepared) else [tuple(span) for span in row["trained"]]
    tokens = _tokens(row, offsets, tokenizer)
    parts = _parts(read, row["text"], [start for start, _ in offsets], tokenizer, recipe["tools"])
    return Mask(row, split, tokens, parts, assistant, _notes(row, again, assistant))


def _tokens(row: dict[str, Any], offsets: Sequence[tuple[int, int]], tokenizer: Any) -> list[Token]:
    trained = {index for start, stop in row["trained"] for index in range(start, stop)}
    added = tokenizer.added_tokens_decoder
    pieces = tokenizer.convert_ids_to_tokens(row["ids"])
    found, shown = [], 0
    for index, (token, (start, stop)) in enumerate(zip(row["ids"], offsets, strict=True)):
        special = token in added and added[token].special
        text, shown = row["text"][max(start, shown) : stop], max(stop, shown)
        found.append(Token(index, token, text, index in trained, special, pieces[index]))
    return found


def _parts(row: Row, text: str, starts: Sequence[int], tokenizer: Any, style: str) -> list[Part]:
    """Return the turns by rendering the conversation message by message; what cannot be told apart stays together."""
    if row.is_plain_text:
        return [Part("text", 0, len(starts))]
    whole, parts, roles, begin, here = conversation_of(row.messages, row.tools, style), [], [], 0, 0
    for index, message in enumerate(whole.messages):
        roles.append(message["role"])
        end = _rendered_length(text, whole.before(index + 1), tokenizer)
        if index == len(whole.messages) - 1:
            end = len(text)
        elif end <= here or message["content"].strip() not in text[here:end]:
            continue
        stop = next((at for at, start in enumerate(starts) if start >= end), len(starts))
        parts.append(Part(" + ".join(roles), begin, stop))
        roles, begin, here = [], stop, end
    return parts


def _rendered_length(text: str, some: Any, tokenizer: Any) -> int:
    try:
        return common_length(text, rendered(tokenizer, some))
    except StageError:  # a template may want a user turn first, or an answer last
        return 0


def _notes(row: dict[str, Any], again: Any, assistant: Sequence[tuple[int, int]]) -> list[str]:
    if not isinstance(again, Prepared):
        return [f"prepared again the row is refused: {str(again).partition(': ')[2]}"]
    notes = []
    if cut := row.get("cut_tokens"):
        notes.append(f"cut from the prompt's left: {counted(cut, 'token')} (data.too_long = left)")
    if left := len(assistant) - len(row["trained"]):
        notes.append(f"not trained: {counted(left, 'turn')} of the assistant (data.train_turns = last)")
    if again.edited_turns:
        notes.append(f"lost text in rendering: {counted(again.edited_turns, 'turn')} of the assistant")
    return notes + [str(one) for one in again.disagreements]


def mask_text(mask: Mask) -> str:
    """Return the tokens as lines for a terminal, under a line per turn."""
    row, trained = mask.row, mask.trained_tokens
    lines = [f"{row['id']} ({row['source']}): {len(mask.tokens)} tokens, {trained} trained ({TRAINED})"]
    marks = _marks(mask)
    lines.append(_legend(marks))
    lines += [f"note: {note}" for note in mask.notes]
    for part in mask.parts:
        here = sum(token.trained for token in mask.tokens[part.start : part.stop])
        count = counted(part.stop - part.start, "token") + (f", {here} trained" if here else "")
        lines.append(click.style(f"── {part.role} · {count} ──", bold=True))
        lines += [_line(token, marks[token.index]) for token in mask.tokens[part.start : part.stop]]
    return "\n".join(lines)


def _marks(mask: Mask) -> list[str]:
    answers = {index for start, stop in mask.assistant for index in range(start, stop)}
    return [TRAINED if t.trained else LEFT_OUT if t.index in answers else READ for t in mask.tokens]


def _legend(marks: Sequence[str]) -> str:
    words = {TRAINED: "trained", READ: "read only", LEFT_OUT: "the assistant's, not trained"}
    shown = [click.style(f"{mark} {word}", **STYLES[mark]) for mark, word in words.items() if mark in marks]
    return "   ".join([*shown, click.style("special token", **SPECIAL), "place  mark  id  text"])


def _line(token: Token, mark: str) -> str:
    place = click.style(f"{token.index:5} {mark} {token.id:7} ", **STYLES[mark])
    text = repr(token.text) if token.text else f"(goes on: {token.piece})"
    if not token.special:
        return place + click.style(text, **STYLES[mark])
    return place + click.style(text, **(STYLES[mark] | {"bold": True} if token.trained else SPECIAL))
