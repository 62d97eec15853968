"""Reading answers back: the inverse of what is trained."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_sentis.prepare.answers import parse_answer, parse_call
from mlx_sentis.prepare.tools import Call, normalised_tools, serialised, signature

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text("abcd_", min_size=1, max_size=4), VALUES, max_size=3)


@given(ARGUMENTS)
def test_every_serialised_call_reads_back(arguments: dict[str, Any]) -> None:
    call = Call("move_to", arguments)
    answer = parse_answer(serialised(call))
    assert answer.kind == "call"
    assert answer.calls[0].same_as(call)
    assert "\n" not in serialised(call)


@given(st.text(max_size=60))
def test_any_text_reads_as_one_of_the_four_kinds(text: str) -> None:
    for style in ("system-block", "template"):
        assert parse_answer(text, style).kind in ("call", "none", "broken", "prose")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("none", "none"),
        (" none\n", "none"),
        ("None of my tools does that.", "prose"),
        ("", "prose"),
        ('{"name": "open", "arguments": {}}', "call"),
        ('On my way.\n{"name": "open", "arguments": {}}', "call"),
        ('{"name": "open", "arguments": {}} and more', "broken"),
        ('{"name": "open"}', "broken"),
        ('{"name": "open", "arguments": "{}"}', "broken"),
        ('{"name": "open", "arguments": {}, "id": 1}', "broken"),
        ('{"name": "open", "arguments": {"thing": "gate', "broken"),
        ('I call {"name": "open", "arguments": {}}', "broken"),
    ],
)
def test_the_system_block_convention_is_read_strictly(text: str, kind: str) -> None:
    assert parse_answer(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "f", "arguments": {"a": "x, y", "n": 3}}\n</tool_call>',
        '{"name": "f", "parameters": {"a": "x, y", "n": 3}}',
        '<|python_tag|>{"name": "f", "parameters": {"a": "x, y", "n": 3}}',
        "<start_function_call>call:f{a:<escape>x, y<escape>,n:3}<end_function_call>",
    ],
)
def test_the_templates_own_syntaxes_are_read(text: str) -> None:
    assert parse_call(text, "template") == {"kind": "call", "name": "f", "arguments": {"a": "x, y", "n": 3}}


def test_nested_values_of_the_escape_syntax_are_read() -> None:
    text = "<start_function_call>call:f{a:{b:[<escape>x<escape>,true,null,1.5],c:{}},d:[]}<end_function_call>"
    wanted = {"a": {"b": ["x", True, None, 1.5], "c": {}}, "d": []}
    assert parse_call(text, "template") == {"kind": "call", "name": "f", "arguments": wanted}


@pytest.mark.parametrize("body", ["f", "f{", "f{a}", "f{a:}", "f{a:1", "f{a:1 b:2}", "f{a:1}}", "{a:1}", "f{a:<}"])
def test_a_damaged_escape_syntax_is_broken(body: str) -> None:
    assert parse_answer(f"<start_function_call>call:{body}<end_function_call>", "template").kind == "broken"


def test_two_calls_are_no_single_call() -> None:
    line = '{"name": "open", "arguments": {}}'
    assert parse_call(f"{line}\n{line}") == {"kind": "invalid"}
    assert len(parse_answer(f"{line}\n{line}").calls) == 2


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, "f()"),
        ({"properties": {"a": {"type": "string"}}}, "f(a: string)"),
        ({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, "f(a: string, b?: any)"),
        ({"properties": {"a": {"enum": ["x", 1]}}}, "f(a: x|1)"),
        ({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, "f(a: integer[])"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "f(a: string|null)"),
    ],
)
def test_a_schema_becomes_a_signature(parameters: dict[str, Any], wanted: str) -> None:
    assert signature(normalised_tools([{"name": "f", "parameters": parameters}])[0]) == wanted


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ({}, "tools: found an object, wanted an array"),
        ([5], r"tools\[0\]: found a number"),
        ([{"name": " "}], r"tools\[0\].name: found a text"),
        ([{"name": "f", "parameters": {"properties": []}}], r"tools\[0\].parameters: wanted a JSON schema"),
        ([{"name": "f", "parameters": {"properties": {"a": 1}}}], "wanted an object per argument"),
        ([{"name": "f", "parameters": {"required": "a"}}], "required: wanted an array"),
        ([{"name": "f", "description": 5}], "description: found a number"),
        ([{"name": "f"}, {"name": "f"}], "f is there twice"),
    ],
)
def test_a_tool_that_is_no_schema_is_refused(tools: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        normalised_tools(tools)
