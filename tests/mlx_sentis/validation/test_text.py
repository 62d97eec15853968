"""Prompts of a text run: drawn from its splits as prepared, worded for people, generic where nobody gave any."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.validation.prompts import HELD_OUT, IN_DISTRIBUTION
from mlx_sentis.validation.text import generic_texts, own_prompts, sampled_rows, text_of
from weights_bridge.errors import StageError


def row(user: str, ids: list[int]) -> dict[str, Any]:
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": "none"}]
    return {"id": user, "messages": messages, "ids": ids, "prompt_tokens": len(ids) - 2}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("count", [1, 3, 4, 50])
def test_rows_are_drawn_as_pythons_own_sample_with_seed_42_draws_them(tmp_path: Path, count: int) -> None:
    rows = [row(f"text {number}\u2028", [1, 2, number]) for number in range(count)]
    wanted = rows if count <= 3 else random.Random(42).sample(rows, 3)
    assert sampled_rows(write(tmp_path / "train.jsonl", rows), 3) == wanted


def test_a_prompt_has_exactly_the_ids_in_front_of_the_rows_answer(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [row("Go.", [5, 6, 7, 8, 9])])
    write(tmp_path / "holdout.jsonl", [row("Wait.", [1, 2, 3]), row("Stop.", [1, 4, 3, 3])])
    found = [(one.text, one.category, one.conditions) for one in own_prompts(tmp_path, str)]
    assert found == [
        ("Go.", IN_DISTRIBUTION, [5, 6, 7]),
        ("Wait.", HELD_OUT, [1]),
        ("Stop.", HELD_OUT, [1, 4]),
    ]


def test_without_held_out_rows_there_are_no_such_prompts(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [row("Go.", [5, 6, 7])])
    assert [one.category for one in own_prompts(tmp_path, str)] == [IN_DISTRIBUTION]
    write(tmp_path / "holdout.jsonl", [])
    assert len(own_prompts(tmp_path, str)) == 1


def test_plain_text_is_continued_from_its_beginning(tmp_path: Path) -> None:
    plain = {"messages": [{"role": "assistant", "content": "a tale"}], "prompt_tokens": 1}
    rows = [plain | {"ids": list(range(100))}, plain | {"ids": [7, 8, 9]}, plain | {"ids": [4]}]
    write(tmp_path / "train.jsonl", rows)
    found = own_prompts(tmp_path, lambda ids: f"text of {len(ids)}")
    assert [one.conditions for one in found] == [list(range(16)), [7], [4]]
    assert found[0].text == "text of 16"


def test_several_turns_are_shown_with_their_roles_and_calls() -> None:
    call = {"type": "function", "function": {"name": "open", "arguments": {"thing": "gate"}}}
    turns = [
        {"role": "system", "content": "You are a guard."},
        {"role": "user", "content": "Open the gate."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "opened"},
        {"role": "user", "content": "Thanks."},
    ]
    assert text_of(turns[:2]) == "Open the gate."
    assert text_of(turns).splitlines() == [
        "user: Open the gate.",
        'assistant: {"name": "open", "arguments": {"thing": "gate"}}',
        "tool: opened",
        "user: Thanks.",
    ]


def test_generic_prompts_ask_for_what_the_tools_do() -> None:
    tools = [
        {"type": "function", "function": {"name": "move_to", "description": "Walk to a place. Slowly."}},
        {"name": "set_light", "description": ""},
    ]
    assert generic_texts(tools, plain=False)[:2] == ["Please walk to a place.", "Please set light."]
    for some in ([], tools, tools * 4):
        assert len(generic_texts(some, plain=False)) == 3 == len(set(generic_texts(some, plain=True)))


def test_a_broken_line_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{broken\n")
    with pytest.raises(StageError, match="a line is not JSON"):
        sampled_rows(tmp_path / "train.jsonl", 3)
