"""Signs of a wrong mapping or a damaged text: each is seen, and ordinary data shows none."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sanity import MEANINGS, Sanity
from mlx_sentis.prepare.sources import open_source


def row(prompt: str, answer: str, line: int = 1, system: str = "", **more: Any) -> Row:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer} | more]
    return Row(messages, [], f"somewhere/rows.jsonl:{line}")


def found(rows: list[Row]) -> dict[str, tuple[int, list[str]]]:
    sanity = Sanity()
    for one in rows:
        sanity.add(one)
    return {finding.name: (finding.rows, finding.examples) for finding in sanity.findings()}


def ordinary(count: int = 20) -> list[Row]:
    return [row(f"What is the way to house {line}?", f"Past mill {line}, then left.", line) for line in range(count)]


def test_ordinary_rows_show_nothing() -> None:
    assert found(ordinary()) == {}


def test_the_shipped_commands_show_nothing() -> None:
    source = open_source("npc-commands", "system-block")
    assert found([one for split in source.files for one in source.rows(split) if isinstance(one, Row)]) == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unfilled placeholder", "Summarise this: {input}"),
        ("unfilled placeholder", "Summarise this: {{ Context }}"),
        ("unfilled placeholder", "Q: %(question)s"),
        ("missing value as text", "nan"),
        ("missing value as text", "Translate.\nInput: None\nThanks"),
        ("missing value as text", "Note: #N/A"),
        ("markup", "First line<br/>second"),
        ("markup", '<a href="x">here</a>'),
        ("markup", "Salt &amp; pepper"),
        ("chat markers in a text", "<|im_start|>user\nhello"),
        ("chat markers in a text", "[INST] hello [/INST]"),
        ("chat markers in a text", "Below is a task.\n### Response:\nDone"),
        ("chat markers in a text", "Human: hello\nAssistant: hi"),
        ("misread characters", "un cafÃ© noir"),
        ("misread characters", "donâ€™t"),
        ("misread characters", "a \ufffd b"),
        ("control characters", "a\x00b"),
        ("control characters", "\ufeffabc"),
    ],
)
def test_a_sign_in_prompt_or_answer_is_named_with_its_place(name: str, text: str) -> None:
    for one in (row(text, "Fine.", 7), row("Fine?", text, 7)):
        assert set(found([*ordinary(), one])) == {name}
        count, examples = found([*ordinary(), one])[name]
        assert count == 1
        assert examples[0].startswith("rows.jsonl:7: ")


@pytest.mark.parametrize(
    "text",
    [
        "Use {name} in an f-string",
        "if (a < b && b > c) { return a }",
        "The value is None of your business: nothing else",
        "SÃO PAULO, Ã ao lado",
        "x <y> z",
        "AT&T; R&D",
        "Ask: who is there?",
        "line one\nline two\tand a tab\r\n",
        "none",
    ],
)
def test_what_only_looks_alike_is_no_sign(text: str) -> None:
    assert found([*ordinary(), row("Fine?", text)]) == {}


def test_none_as_an_answer_declines_and_none_as_a_cell_does_not() -> None:
    assert found([row("Sing", "none")]) == {}
    assert set(found([row("Sing", "None")])) == {"missing value as text"}


def test_a_row_counts_once_for_a_sign_however_often_it_shows_it() -> None:
    assert found([row("{input} {input}", "{output}")])["unfilled placeholder"][0] == 1


def test_two_fields_of_one_column_are_seen() -> None:
    assert set(found([row("The same text", "The same text")])) == {"prompt and answer equal"}
    conversation = "A question that is long enough to be told"
    assert set(found([row(conversation, conversation + " and its answer")])) == {"answer begins with the prompt"}


def test_a_plain_text_is_not_its_own_answer() -> None:
    assert found([Row([{"role": "assistant", "content": "Once there was a mill."}], [], "a.txt:1")]) == {}


def test_a_constant_column_is_seen_from_ten_rows_on() -> None:
    constant = [row("Say something.", f"Thing {line}") for line in range(12)]
    assert found(constant)["constant prompt"] == (12, ["every row: 'Say something.'"])
    assert found(constant[:9]) == {}
    assert set(found([row(f"Thing {line}", "Yes.") for line in range(12)])) == {"constant answer"}


def test_one_tool_for_every_row_is_no_constant_answer() -> None:
    call = {"type": "function", "function": {"name": "open", "arguments": {}}}
    assert found([row(f"Open door {line}", "", tool_calls=[call]) for line in range(12)]) == {}


def test_swapped_columns_are_seen() -> None:
    swapped = [row(f"Past mill {line}, then left.", f"What is the way to house {line}?") for line in range(20)]
    assert set(found(swapped)) == {"prompt and answer look swapped"}


def test_a_text_that_swallowed_others_is_seen_and_where() -> None:
    count, examples = found([*ordinary(), row("Why?", "so\nand " * 500, 99)])["one text swallows others"]
    assert count == 1
    assert examples == ["rows.jsonl:99: its answer has 3499 characters, the median is 24"]


def test_texts_that_all_end_at_a_columns_width_are_seen() -> None:
    cut = [row(f"Tell me story {line}", (f"Story {line} " * 60)[:255]) for line in range(5)]
    assert found([*ordinary(), *cut])["texts cut at one length"][0] == 5


def test_every_finding_says_what_to_do() -> None:
    assert all(len(means) > 20 for means in MEANINGS.values())


UUID = "0b5f1c3a-9d2e-4f6a-8b7c-{:012x}"


@pytest.mark.parametrize("answer", ["{}", UUID, "9f86d081884c7d65{:04x}"])
def test_a_column_of_row_names_is_taken_for_no_answer(answer: str) -> None:
    rows = [row(f"What is at house {line}?", answer.format(line), line) for line in range(15)]
    assert found(rows) == {"answers are row names": (15, [f"every row: {answer.format(0)!r}"])}


def test_prompts_that_count_up_are_row_names() -> None:
    rows = [row(str(line + 7), f"Past mill {line}.", line) for line in range(15)]
    assert list(found(rows)) == ["prompts are row names"]


def test_answers_in_numbers_are_answers() -> None:
    rows = [row(f"How many mills has village {line}?", str(line * 7 % 5), line) for line in range(15)]
    assert found(rows) == {}
