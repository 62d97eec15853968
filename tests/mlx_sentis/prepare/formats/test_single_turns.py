"""Rows of one question and one answer: commands, completions, Alpaca, ShareGPT, plain text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from mlx_sentis.prepare.tools import normalised_tools

TOOLS = [{"name": "open", "parameters": {"properties": {"thing": {"type": "string"}}}}]
SHARED = ToolSet("You are a guard.", normalised_tools(TOOLS))
CALL = {"name": "open", "arguments": {"thing": "gate"}}


def read(value: dict[str, Any], shared: ToolSet | None = None, style: str = "system-block") -> Row:
    return read_row(value, "rows.jsonl:1", shared or ToolSet(), style)


def said(row: Row) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in row.messages]


def reason(value: dict[str, Any], shared: ToolSet | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        read(value, shared)
    return str(caught.value)


@pytest.mark.parametrize("call", [CALL, [CALL], json.dumps(CALL), json.dumps([CALL]), {"function": CALL}])
def test_a_commands_call_is_an_object_an_array_or_its_text(call: Any) -> None:
    row = read({"user": "open up", "call": call}, SHARED)
    assert [one.as_json() for one in row.calls] == [CALL]
    assert row.messages[0]["content"] == "You are a guard."


@pytest.mark.parametrize("call", [None, "none", "null", "None", []])
def test_a_command_that_no_tool_fits_is_answered_none(call: Any) -> None:
    assert read({"user": "sing", "call": call}, SHARED).kind == "none"


def test_an_empty_cell_is_no_answer_and_never_taken_for_none() -> None:
    assert reason({"user": "sing", "call": " "}, SHARED) == "call: the text is empty; write none where no tool fits"


def test_a_command_may_bring_its_own_tools_and_system_text() -> None:
    other = [{"name": "sing", "parameters": {}}]
    row = read({"user": "sing", "call": '{"name": "sing"}', "tools": json.dumps(other), "system": "Bard."}, SHARED)
    assert ([tool["function"]["name"] for tool in row.tools], row.messages[0]["content"]) == (["sing"], "Bard.")


def test_several_calls_of_one_command_are_one_turn() -> None:
    row = read({"user": "open both", "call": [CALL, CALL]}, SHARED)
    assert (len(row.calls), row.kind, row.expect()) == (2, "open+open", None)


@pytest.mark.parametrize("keys", [("prompt", "completion"), ("user", "assistant")])
def test_a_completion_has_two_spellings_and_may_have_a_system_text(keys: tuple[str, str]) -> None:
    value = dict(zip(keys, ("2+2?", "4"), strict=True))
    assert said(read(value)) == [("user", "2+2?"), ("assistant", "4")]
    assert said(read(value | {"system": "Count."}))[0] == ("system", "Count.")
    assert said(read(value | {"system": None})) == said(read(value))


def test_prompt_and_completion_give_the_tokens_and_the_mask_of_the_equal_messages(llama: Any) -> None:
    pair = read({"prompt": "Open the gate", "completion": "Sure."})
    chat = read({"messages": [{"role": role, "content": text} for role, text in said(pair)]})
    found = list(prepared_rows([pair, chat], llama.tokenizer, llama.recipe))
    assert isinstance(found[0], Prepared) and isinstance(found[1], Prepared)
    assert (found[0].ids, found[0].trained) == (found[1].ids, found[1].trained)


def test_an_alpaca_input_stands_below_the_instruction() -> None:
    value = {"instruction": "Translate.\n", "input": "Brücke", "output": "bridge"}
    assert said(read(value)) == [("user", "Translate.\n\nBrücke"), ("assistant", "bridge")]
    for empty in ("", " ", None):
        assert said(read(value | {"input": empty}))[0] == ("user", "Translate.\n")


def test_an_alpaca_history_comes_first() -> None:
    value = {"instruction": "And 3+3?", "output": "6", "history": [["2+2?", "4"]], "system": "Count."}
    assert [text for _, text in said(read(value))] == ["Count.", "2+2?", "4", "And 3+3?", "6"]
    assert reason(value | {"history": ["2+2?"]}) == "history: wanted an array of [question, answer]"


def test_an_alpaca_row_with_a_text_column_beside_it_is_an_alpaca_row() -> None:
    value = {"instruction": "Hi", "input": "", "output": "yo", "text": "### Instruction: Hi ### Response: yo"}
    assert said(read(value)) == [("user", "Hi"), ("assistant", "yo")]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"instruction": "Hi", "output": ""}, "output: the text is empty"),
        ({"instruction": "Hi", "output": None}, "output: found null, wanted a text"),
        ({"instruction": "", "input": "x", "output": "y"}, "instruction: the text is empty"),
        ({"instruction": "Hi", "input": 5, "output": "y"}, "input: found a number, wanted a text"),
        ({"prompt": [], "completion": "y"}, "prompt: found an array, wanted a text"),
        ({"text": ""}, "text: the text is empty"),
        ({"text": None}, "text: found null, wanted a text"),
    ],
)
def test_an_empty_or_missing_text_is_refused_with_its_key(value: dict[str, Any], why: str) -> None:
    assert reason(value) == why


def test_sharegpt_speakers_become_roles() -> None:
    talk = [("system", "Be brief."), ("human", "hi"), ("gpt", "yo"), ("user", "and?"), ("model", "so")]
    row = read({"conversations": [{"from": speaker, "value": text} for speaker, text in talk]})
    assert said(row) == [
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", "yo"),
        ("user", "and?"),
        ("assistant", "so"),
    ]


def test_sharegpt_calls_and_observations_are_calls_and_results() -> None:
    talk = [
        {"from": "human", "value": "open the gate"},
        {"from": "function_call", "value": json.dumps(CALL)},
        {"from": "observation", "value": '{"open": true}'},
        {"from": "gpt", "value": "It is open."},
    ]
    row = read({"conversations": talk, "tools": json.dumps(TOOLS), "system": "Guard."})
    assert [message["role"] for message in row.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert row.messages[2]["tool_calls"] == [{"type": "function", "function": CALL}]
    assert row.messages[3] == {"role": "tool", "content": '{"open": true}', "name": "open"}
    both = read({"conversations": [talk[0], {"from": "function_call", "value": [CALL, CALL]}], "tools": TOOLS})
    assert len(both.calls) == 2


def test_messages_under_the_key_of_sharegpt_are_read() -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    assert said(read({"conversations": talk})) == [("user", "hi"), ("assistant", "yo")]


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ({"from": "narrator", "value": "x"}, "conversations[1].from: found 'narrator', wanted one of human, user"),
        ({"from": "gpt", "value": ""}, "conversations[1].content: the assistant's text is empty"),
        ({"from": "function_call", "value": "open"}, "conversations[1].value: found a text, wanted a call"),
        ({"from": "function_call", "value": "[]"}, "conversations[1].value: found an array, wanted a call"),
        ({"from": "gpt", "value": "yo", "weight": 0}, "conversations[1].weight: single turns"),
        ("yo", "conversations[1]: found a text, wanted an object"),
    ],
)
def test_a_sharegpt_turn_that_is_none_is_refused_in_its_own_words(turn: Any, why: str) -> None:
    assert why in reason({"conversations": [{"from": "human", "value": "hi"}, turn]})


def test_a_plain_text_is_trained_as_it_stands_and_grouped_by_itself(llama: Any) -> None:
    rows = [read({"text": text}) for text in ("Once upon a time.", "The mill burned.")]
    assert [row.is_plain_text for row in rows] == [True, True]
    assert [(row.kind, row.user_text) for row in rows] == [("text", "Once upon a time."), ("text", "The mill burned.")]
    found = next(iter(prepared_rows(rows, llama.tokenizer, llama.recipe)))
    assert isinstance(found, Prepared)
    assert found.text == "Once upon a time.<|im_end|>"
    assert not read({"prompt": "a", "completion": "b"}).is_plain_text


def test_a_row_of_no_form_lists_its_keys_the_forms_and_what_is_probably_meant() -> None:
    found = reason({"question": "2+2?", "answer": "4"})
    assert found.startswith('found answer, question, wanted {"messages"}, {"conversations"}, ')
    assert found.endswith("perhaps --map user=question --map assistant=answer")
    assert reason({}).startswith("found no keys, wanted ")
