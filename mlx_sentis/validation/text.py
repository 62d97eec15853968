"""Prompts of a text run: rows of its own splits as they were prepared, and new texts through the same rendering.

A prompt's condition is its token ids. Rows of plain text have no question, so their first tokens are the prompt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.validation.prompts import (
    HELD_OUT,
    HELD_OUT_PROMPTS,
    IN_DISTRIBUTION,
    OUT_OF_DISTRIBUTION,
    SEED,
    TRAINED_PROMPTS,
    Prompt,
    sampled,
)
from weights_bridge.errors import StageError, all_at_once

PLAIN_TOKENS = 16  # of a plain text that are its prompt, at most half of it
GENERIC_CHAT = ("Hello, who are you?", "What can you help me with?", "Tell me something in one sentence.")
GENERIC_TEXT = ("Once, early in the morning,", "There was a knock at the door.", "The first thing to know is")
Row = dict[str, Any]


def sampled_rows(path: Path, most: int) -> list[Row]:
    """Return rows of a prepared split as `sampled` draws them, without holding the file in memory.

    Raises:
        StageError: a drawn line is not JSON.
    """
    with path.open("rb") as file:
        count = sum(1 for _ in file)
    order = list(range(count)) if count <= most else random.Random(SEED).sample(range(count), most)
    wanted = set(order)
    with path.open("rb") as file:
        lines = {number: line for number, line in enumerate(file) if number in wanted}
    try:
        return [json.loads(lines[number]) for number in order]
    except ValueError:
        raise StageError(f"{path}: a line is not JSON", hint="prepare the data again") from None


def own_prompts(data: Path, decode: Any) -> list[Prompt]:
    """Return the prompts that come from the run's own splits: trained ones, then held-out ones where there are any.

    Args:
        data: the run's `data/`.
        decode: token ids to text, for rows of plain text.
    """
    trained = sampled_rows(data / "train.jsonl", TRAINED_PROMPTS)
    kept = data / "holdout.jsonl"
    held_out = sampled_rows(kept, HELD_OUT_PROMPTS) if kept.is_file() else []
    categories = ((IN_DISTRIBUTION, trained), (HELD_OUT, held_out))
    return [_prompt(row, category, decode) for category, rows in categories for row in rows]


def _prompt(row: Row, category: Any, decode: Any) -> Prompt:
    if is_plain(row["messages"]):
        ids = row["ids"][: max(1, min(PLAIN_TOKENS, len(row["ids"]) // 2))]
        return Prompt(decode(ids), category, ids)
    return Prompt(text_of(row["messages"][:-1]), category, row["ids"][: row["prompt_tokens"]])


def is_plain(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a row is plain text: nobody asks, so there is nothing to answer."""
    return all(message["role"] != "user" for message in messages)


def text_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what a prompt asks: the user's text, or the turns with their roles where there are several."""
    turns = [message for message in messages if message["role"] != "system"]
    if len(turns) == 1:
        return turns[0]["content"]
    return "\n".join(f"{turn['role']}: {turn['content'] or _calls(turn)}" for turn in turns)


def _calls(turn: Mapping[str, Any]) -> str:
    return ", ".join(json.dumps(item["function"], ensure_ascii=False) for item in turn.get("tool_calls", []))


def generic_texts(tools: Sequence[Mapping[str, Any]], *, plain: bool) -> list[str]:
    """Return three short prompts of the run's own domain: what its tools do, or everyday questions.

    Args:
        tools: of `dataset.json`; up to three are drawn with seed 42.
        plain: the run was trained on plain text.
    """
    if plain:
        return list(GENERIC_TEXT)
    functions = [tool.get("function", tool) for tool in sampled(tools, 3)]
    asked = [f"Please {_deed(function)}." for function in functions]
    return [*asked, *GENERIC_CHAT][:3]


def _deed(function: Mapping[str, Any]) -> str:
    """Return what a tool does, from its description's first sentence or its name."""
    described = " ".join((function.get("description") or "").split()).partition(". ")[0].rstrip(".")
    deed = described or function["name"].replace("_", " ")
    return deed[:1].lower() + deed[1:]


def new_prompts(texts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[Prompt]:
    """Return out-of-distribution prompts with their token ids."""
    return [Prompt(text, OUT_OF_DISTRIBUTION, list(one)) for text, one in zip(texts, ids, strict=True)]


def ids_of_texts(
    texts: Sequence[str], model: Path, recipe: dict[str, Any], contract: dict[str, Any]
) -> list[list[int]]:
    """Return the prompt of each new text, made as the rows were: same system turn, tools, template and tokenizer.

    Args:
        texts: what a user says.
        model: the directory whose tokenizer prepared the rows.
        recipe: the run's recipe.
        contract: the run's prompt contract; it must still hold.

    Raises:
        StageError: the contract is broken, or a text cannot be rendered (a special token in it, for example).
    """
    from mlx_sentis.prepare.checks import broken_hint, check_contract
    from mlx_sentis.prepare.masks import Prepared, prepared_rows
    from mlx_sentis.prepare.rows import Row as Read
    from mlx_sentis.prepare.stage import tokenizer_of

    tokenizer = tokenizer_of(model, recipe)
    if failed := [str(result) for result in check_contract(tokenizer, contract, recipe) if not result.passed]:
        raise all_at_once("the prompt contract does not hold:", failed, hint=broken_hint(recipe))
    plain = is_plain(contract["messages"])
    system = [message for message in contract["messages"][:1] if message["role"] == "system"]
    rows = [Read(_turns(text, system, plain), contract["tools"], f"prompt {n}") for n, text in enumerate(texts, 1)]
    found = list(prepared_rows(rows, tokenizer, recipe))
    if faults := [str(one) for one in found if not isinstance(one, Prepared)]:
        raise all_at_once("prompts that cannot be rendered:", faults, hint="word them differently")
    prepared = [one for one in found if isinstance(one, Prepared)]
    if plain:
        return [[token for token in one.ids if token not in recipe["stop_ids"]] for one in prepared]
    return [one.ids[: one.prompt_tokens] for one in prepared]


def _turns(text: str, system: list[dict[str, Any]], plain: bool) -> list[dict[str, Any]]:
    if plain:
        return [{"role": "assistant", "content": text}]
    answer = {"role": "assistant", "content": "none"}  # rows end in an answer; only what stands before it is used
    return [*system, {"role": "user", "content": text}, answer]
