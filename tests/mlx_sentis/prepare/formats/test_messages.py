"""Conversations as chat APIs write them, in all their spellings, become one form or a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlx_sentis.prepare.rows import Row, ToolSet, read_row

USER = {"role": "user", "content": "go"}
DONE = {"role": "assistant", "content": "Done."}
TOOLS = [{"name": name, "parameters": {"properties": {"place": {"type": "string"}}}} for name in ("move_to", "look_at")]
CALL = {"name": "move_to", "arguments": {"place": "mill"}}


def read(value: dict[str, Any]) -> Row:
    return read_row(value, "rows.jsonl:1", ToolSet(), "system-block")


def reason(value: dict[str, Any]) -> str:
    with pytest.raises(ValueError) as caught:
        read(value)
    return str(caught.value)


def turns(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [USER, *messages], **more}


SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [SYSTEM, USER, DONE]},
        {"messages": [SYSTEM | {"role": "developer"}, USER, DONE]},
        {"system": "Be brief.", "messages": [USER, DONE]},
        {"messages": [SYSTEM | {"content": [{"type": "text", "text": "Be "}, {"text": "brief."}]}, USER, DONE]},
        {"messages": json.dumps([SYSTEM, USER, DONE])},
    ],
    ids=["system", "developer", "beside", "parts", "json text"],
)
def test_a_system_text_is_the_same_first_turn_however_it_is_given(value: dict[str, Any]) -> None:
    assert read(value).messages == [SYSTEM, USER, DONE]


def test_several_system_turns_at_the_beginning_are_one() -> None:
    first = [SYSTEM, {"role": "developer", "content": "Never lie."}]
    assert read({"messages": [*first, USER, DONE]}).messages[0]["content"] == "Be brief.\n\nNever lie."


def test_a_system_turn_further_down_or_a_second_system_text_is_refused() -> None:
    assert reason({"messages": [USER, SYSTEM, DONE]}) == "messages[1]: a system turn can only come first"
    assert reason({"messages": [SYSTEM, USER, DONE], "system": "Sing."}).startswith("system: the row has a system text")
    assert reason({"messages": [USER, DONE], "system": 5}) == "system: found a number, wanted a text"


@pytest.mark.parametrize(
    "calls",
    [
        {"tool_calls": [{"type": "function", "id": "1", "function": CALL}]},
        {"tool_calls": [CALL]},
        {"tool_calls": json.dumps([CALL])},
        {"tool_calls": [json.dumps(CALL)]},
        {"tool_calls": [{"function": {"name": "move_to", "arguments": '{"place": "mill"}'}}]},
        {"tool_calls": [{"name": "move_to", "parameters": {"place": "mill"}}]},
        {"function_call": {"name": "move_to", "arguments": '{"place": "mill"}'}},
        {"content": '<tool_call>\n{"name": "move_to", "arguments": {"place": "mill"}}\n</tool_call>'},
    ],
)
def test_a_call_is_the_same_call_however_it_is_written(calls: dict[str, Any]) -> None:
    for tools in ({"tools": TOOLS}, {"functions": TOOLS}, {"tools": json.dumps(TOOLS)}):
        row = read(turns({"role": "assistant", **calls}, **tools))
        assert row.messages[1] == {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": CALL}],
        }


def test_words_before_written_calls_stay_and_words_behind_them_are_refused() -> None:
    block = '<tool_call>{"name": "move_to", "arguments": {"place": "</tool_call>"}}</tool_call>'
    row = read(turns({"role": "assistant", "content": f"Gladly.\n{block}\n{block}"}, tools=TOOLS))
    assert row.messages[1]["content"] == "Gladly."
    assert [call.arguments["place"] for call in row.calls] == ["</tool_call>"] * 2
    for content, why in (
        (f"{block} ok?", "text stands behind the call"),
        ("<tool_call>move_to</tool_call>", "not JSON"),
    ):
        assert why in reason(turns({"role": "assistant", "content": content}, tools=TOOLS))
    assert read(turns({"role": "assistant", "content": f"{block} ok?"})).calls == []  # without tools it is a text


def test_results_carry_the_name_of_their_tool_by_id_by_name_or_in_order() -> None:
    calls = [
        {"id": str(place), "function": {"name": tool["name"], "arguments": {}}} for place, tool in enumerate(TOOLS)
    ]
    asked = {"role": "assistant", "tool_calls": calls}

    def names(*results: dict[str, Any]) -> list[Any]:
        row = read(turns(asked, *({"role": "tool", "content": "ok"} | result for result in results), DONE, tools=TOOLS))
        return [message.get("name") for message in row.messages if message["role"] == "tool"]

    assert names({"tool_call_id": "1"}, {"tool_call_id": "0"}) == ["look_at", "move_to"]
    assert names({}, {}) == ["move_to", "look_at"]
    assert names({"name": "other"}, {}, {}) == ["other", "look_at", None]


def test_a_function_result_may_be_an_object() -> None:
    result = {"role": "function", "name": "look_at", "content": {"sees": ["a Brücke"]}}
    row = read(turns({"role": "assistant", "function_call": CALL}, result, DONE, tools=TOOLS))
    assert row.messages[2] == {"role": "tool", "content": '{"sees": ["a Brücke"]}', "name": "look_at"}


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ({"weight": 0}, "messages[1].weight: single turns cannot be left untrained"),
        ({"train": False}, "messages[1].train: single turns cannot be left untrained"),
        ({"reasoning_content": "hm"}, "messages[1].reasoning_content: thoughts stand inside content"),
        ({"content": [{"type": "image_url"}]}, "messages[1].content: found parts that are no text"),
        ({"role": "user", "tool_calls": [CALL]}, "messages[1].tool_calls: only the assistant calls tools"),
        ({"tool_calls": 5}, "messages[1].tool_calls: found a number, wanted an array"),
        ({"tool_calls": [{"function": CALL | {"name": "fly"}}]}, "no tool 'fly', known: look_at, move_to"),
        ({"tool_calls": [{"function": CALL | {"arguments": "{"}}]}, "arguments: the text is not JSON"),
    ],
)
def test_what_asks_for_other_training_or_is_no_turn_is_refused_by_name(turn: dict[str, Any], why: str) -> None:
    assert why in reason(turns(DONE | turn, DONE, tools=TOOLS))


def test_a_turn_of_weight_one_and_empty_thoughts_are_an_ordinary_turn() -> None:
    assert read(turns(DONE | {"weight": 1, "reasoning_content": ""})).messages == [USER, DONE]


@pytest.mark.parametrize("tools", ["[", "{}", 5, [{"name": ""}], '[{"name": 5}]'])
def test_tools_that_are_none_are_refused(tools: Any) -> None:
    assert "tools" in reason(turns(DONE, tools=tools))


@pytest.mark.parametrize("tools", [None, "", []])
def test_a_row_without_tools_may_say_so(tools: Any) -> None:
    assert read(turns(DONE, tools=tools)).tools == []


@pytest.mark.parametrize("given", [None, 5, ["user"]])
def test_a_role_that_is_no_text_is_named_in_the_words_of_json(given: Any) -> None:
    found = {type(None): "null", int: "a number", list: "an array"}[type(given)]
    assert reason({"messages": [{"role": given, "content": "x"}]}).startswith(f"messages[0].role: found {found}, ")


def test_an_empty_conversation_wants_a_message() -> None:
    assert reason({"messages": []}) == "messages: found an empty array, wanted at least one message"
    assert reason({"messages": {}}) == "messages: found an object, wanted an array"


def test_objects_inside_arguments_are_ordered_by_their_schemas_too() -> None:
    inner = {"type": "object", "properties": {"row": {"type": "integer"}, "column": {"type": "integer"}}}
    properties = {"at": inner, "stops": {"type": "array", "items": inner}, "free": {"type": "object"}}
    tools = [{"name": "go", "parameters": {"properties": properties}}]
    at = {"column": 1, "note": "x", "row": 2}
    arguments = {"free": {"b": 1, "a": 2}, "stops": [at, at], "at": at}
    row = read(
        turns({"role": "assistant", "tool_calls": [{"function": {"name": "go", "arguments": arguments}}]}, tools=tools)
    )
    ordered = '{"row": 2, "column": 1, "note": "x"}'
    assert json.dumps(row.calls[0].arguments) == (
        f'{{"at": {ordered}, "stops": [{ordered}, {ordered}], "free": {{"b": 1, "a": 2}}}}'
    )
