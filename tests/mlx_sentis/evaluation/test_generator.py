"""What runners are asked: the prefix once, each prompt whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlx_sentis.evaluation.generator import Greedy, answers, choose_greedily, usable_prefix

ROWS = [
    {"id": "a", "ids": [1, 2, 3, 4, 9], "prompt_tokens": 4},
    {"id": "b", "ids": [1, 2, 3, 9, 9], "prompt_tokens": 3},
    {"id": "c", "ids": [1, 2, 5, 6, 9], "prompt_tokens": 4},
]


class Recorder:
    """Answers a prompt with its length; its first logits lie 0.5 apart."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def set_prefix(self, ids: Sequence[int]) -> None:
        self.calls.append(("prefix", list(ids)))

    def greedy(
        self, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int] = (), *, keep_logits: bool = False
    ) -> Greedy:
        self.calls.append((list(prompt_ids), max_new_tokens, list(stop_ids)))
        ids = [len(prompt_ids)] if len(prompt_ids) > 3 else []
        return Greedy(ids, [np.arange(8, dtype=np.float32) / 2] * len(ids) if keep_logits else [])


def test_the_prefix_is_set_once_and_prompts_come_without_answers() -> None:
    recorder = Recorder()
    found = list(answers(recorder, ROWS, str, max_new_tokens=7, stop_ids=[0], shared_tokens=2))
    assert [(one.row["id"], one.text, one.new_tokens) for one in found] == [
        ("a", "[4]", 1),
        ("b", "[]", 0),
        ("c", "[4]", 1),
    ]
    assert [one.margin for one in found] == [None] * 3
    assert recorder.calls[0] == ("prefix", [1, 2])
    assert recorder.calls[1] == ([1, 2, 3, 4], 7, [0])
    assert len(recorder.calls) == 4


def test_with_a_refusal_each_answer_has_its_margin_and_an_empty_one_has_none() -> None:
    found = list(answers(Recorder(), ROWS, str, max_new_tokens=7, stop_ids=[0], refusal_id=3))
    assert [one.margin for one in found] == [2.0, None, 2.0]  # 7/2 − 3/2


def test_a_recorded_prefix_that_is_too_long_is_cut_to_what_the_prompts_share() -> None:
    assert usable_prefix(ROWS, 50) == [1, 2]
    assert usable_prefix(ROWS[1:2], 50) == [1, 2]  # shorter than the prompt: one token must remain to run
    assert usable_prefix([], 3) == []


def rows_of_a_model(asked: list[list[int]]) -> Any:
    """Return a model over six ids that answers i with i + 1; its rows are views of one buffer, as runtimes' may be."""
    buffer = np.zeros(6, np.float32)

    def next_row(ids: Sequence[int]) -> np.ndarray:
        asked.append(list(ids))
        buffer[:] = 0
        buffer[ids[-1] + 1] = len(asked)
        return buffer[:]

    return next_row


def test_a_greedy_loop_runs_the_prompt_once_then_each_token_and_ends_before_a_stop_id_or_at_its_limit() -> None:
    asked: list[list[int]] = []
    found = choose_greedily(rows_of_a_model(asked), [5, 0], 9, [4], keep_logits=False)
    assert (found.ids, found.logits, asked) == ([1, 2, 3], [], [[5, 0], [1], [2], [3]])
    assert choose_greedily(rows_of_a_model([]), [0], 2, [4], keep_logits=False).ids == [1, 2]


def test_kept_rows_are_those_the_ids_were_chosen_from() -> None:
    found = choose_greedily(rows_of_a_model([]), [0], 3, [], keep_logits=True)
    assert [(int(row.argmax()), row.max()) for row in found.logits] == [(1, 1.0), (2, 2.0), (3, 3.0)]
