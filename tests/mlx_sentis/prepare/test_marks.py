"""The template's own `{% generation %}` marks against the spans: the spans win, and each difference is named."""

from __future__ import annotations

from typing import Any

import pytest
from chat_templates import (
    MARKED_NOTHING,
    MARKED_RIGHT,
    MARKED_WITH_HEADER,
    MARKED_WITHOUT_END,
)

from mlx_sentis.demo.toy import CHATML
from mlx_sentis.prepare.marks import MarkTally
from mlx_sentis.prepare.masks import Prepared, TrainTurns, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.templates import marks_generation

MESSAGES = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "one"},
    {"role": "user", "content": "b"},
    {"role": "assistant", "content": "two"},
]


def prepared(llama: Any, template: str, train_turns: TrainTurns = "all") -> Prepared:
    model = llama.with_template(template)
    row = Row(MESSAGES, [], "rows.jsonl:1")
    found = next(prepared_rows([row], model.tokenizer, model.recipe, train_turns=train_turns))
    assert isinstance(found, Prepared), found
    return found


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (CHATML, []),
        (MARKED_RIGHT, []),
        (
            MARKED_WITHOUT_END,
            [
                "messages[1], token 15: the end of turn '<|im_end|>' is not marked by {% generation %}; "
                "it is trained all the same",
                "messages[3], token 32: the end of turn '<|im_end|>' is not marked by {% generation %}; "
                "it is trained all the same",
            ],
        ),
        (
            MARKED_WITH_HEADER,
            [
                r"messages[1], token 7: '<|im_start|>assistant\n' is marked by {% generation %}, "
                "but not trained (it is no part of an answer)",
                r"messages[1], token 16: '\n' is marked by {% generation %}, "
                "but not trained (it is no part of an answer)",
                r"messages[3], token 24: '<|im_start|>assistant\n' is marked by {% generation %}, "
                "but not trained (it is no part of an answer)",
                r"messages[3], token 33: '\n' is marked by {% generation %}, "
                "but not trained (it is no part of an answer)",
            ],
        ),
    ],
    ids=["no markers", "right", "without end", "with header"],
)
def test_a_difference_is_named_with_turn_and_token_and_changes_nothing(
    llama: Any, template: str, wanted: list[str]
) -> None:
    found = prepared(llama, template)
    assert [str(one) for one in found.disagreements] == wanted
    plain = prepared(llama, CHATML)
    assert (found.ids, found.trained, found.prompt_tokens) == (plain.ids, plain.trained, plain.prompt_tokens)


def test_markers_that_mark_nothing_do_not_empty_the_mask(llama: Any) -> None:
    found = prepared(llama, MARKED_NOTHING)
    assert found.trained == prepared(llama, CHATML).trained
    assert [(one.message, one.is_trained, one.is_end) for one in found.disagreements] == [
        (1, True, False),
        (1, True, True),
        (3, True, False),
        (3, True, True),
    ]


def test_earlier_turns_are_marked_rightly_when_only_the_last_is_trained(llama: Any) -> None:
    assert prepared(llama, MARKED_RIGHT, "last").disagreements == ()
    (end,) = prepared(llama, MARKED_WITHOUT_END, "last").disagreements
    assert (end.message, end.is_end) == (3, True)
    header, line_break = prepared(llama, MARKED_WITH_HEADER, "last").disagreements
    assert (header.text, line_break.text) == ("<|im_start|>assistant\n", "\n")


def test_a_tally_says_each_kind_once_with_its_first_place(llama: Any) -> None:
    tally = MarkTally()
    for _ in range(5):
        tally.see(prepared(llama, MARKED_WITHOUT_END))
    tally.see(prepared(llama, MARKED_RIGHT))
    (note,) = tally.notes()
    assert tally.rows == 5
    assert note.startswith("10 turns: rows.jsonl:1, messages[1], token 15: the end of turn '<|im_end|>' is not marked")


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{% generation %}x{% endgeneration %}", True),
        ("{%- generation -%}x{%- endgeneration %}", True),
        ("{# {% generation %} is for others #}{{ x }}", False),
        ("{{ generation }}", False),
    ],
)
def test_markers_are_recognised_as_jinja_reads_them(template: str, wanted: bool) -> None:
    assert marks_generation(template) is wanted
