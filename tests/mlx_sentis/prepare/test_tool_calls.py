"""Calls as the model will see them: what is rendered reads back as the call, in every syntax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_templates import STYLES, write_tool_model

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row, ToolSet, read_row
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer

ALL = ("system-block", *STYLES)
ANY = {"name": "f", "description": "does it", "parameters": {"properties": {key: {} for key in "abcdxyz"}}}
TOOLS = [
    {
        "name": "set_heat",
        "description": "heat a room",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "degrees": {"type": "number"}},
            "required": ["room", "degrees"],
        },
    }
]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, llama: Any) -> dict[str, Any]:
    """Style to (tokenizer, recipe)."""
    found = {"system-block": (llama.tokenizer, llama.recipe)}
    for style in STYLES:
        folder = write_tool_model(tmp_path_factory.mktemp(style) / "model", style)
        found[style] = (load_tokenizer(folder), make_recipe(folder))
    return found


def row_of(calls: Any, tools: Any = None, content: str | None = None, style: str = "template") -> Row:
    turn = {"role": "assistant", "content": content, "tool_calls": calls}
    messages = [{"role": "user", "content": "go"}, turn]
    return read_row({"messages": messages, "tools": tools or [ANY]}, "rows.jsonl:1", ToolSet(), style)


def prepared(model: Any, row: Row) -> Prepared:
    tokenizer, recipe = model
    found = next(iter(prepared_rows([row], tokenizer, recipe)))
    assert isinstance(found, Prepared), found
    return found


def trained_text(model: Any, found: Prepared) -> str:
    first, stop = found.trained[-1]
    return model[0].decode(found.ids[first:stop])


def read_back(model: Any, found: Prepared) -> list[dict[str, Any]]:
    """Return the calls of the text that the model is trained to write, its last token left out."""
    first, stop = found.trained[-1]
    answer = model[0].decode(found.ids[first : stop - 1])
    return [call.as_json() for call in parse_answer(answer, model[1]["tools"]).calls]


def test_templates_with_a_tools_branch_are_recognised(models: dict[str, Any]) -> None:
    assert {style: recipe["tools"] for style, (_, recipe) in models.items()} == {
        "system-block": "system-block",
        "qwen": "template",
        "llama": "template",
        "functiongemma": "template",
    }


WRITTEN = {
    "system-block": '{"name": "set_heat", "arguments": {"room": "die Küche", "degrees": 21.5}}<|im_end|>',
    "qwen": (
        '<tool_call>\n{"name": "set_heat", "arguments": {"room": "die Küche", "degrees": 21.5}}\n</tool_call><|im_end|>'
    ),
    "llama": '{"name": "set_heat", "parameters": {"room": "die Küche", "degrees": 21.5}}<|eot_id|>',
    "functiongemma": (
        "<start_function_call>call:set_heat{degrees:21.5,room:<escape>die Küche<escape>}<end_function_call>"
        "<start_function_response>"
    ),
}


@pytest.mark.parametrize("style", ALL)
def test_arguments_as_text_and_as_object_are_the_same_tokens(models: dict[str, Any], style: str) -> None:
    """One template prints the arguments as JSON, the other walks over them: neither may quote them twice."""
    forms = [
        {"degrees": 21.5, "room": "die Küche"},
        '{"degrees": 21.5, "room": "die Küche"}',
        {"room": "die Küche", "degrees": 21.5},
    ]
    rows = [row_of([{"function": {"name": "set_heat", "arguments": form}}], TOOLS) for form in forms]
    found = [prepared(models[style], row) for row in rows]
    assert found[0].ids == found[1].ids == found[2].ids
    assert trained_text(models[style], found[0]) == WRITTEN[style]


@pytest.mark.parametrize("style", ALL)
def test_null_and_absent_content_beside_a_call_give_the_same_tokens_and_the_call_is_trained(
    models: dict[str, Any], style: str
) -> None:
    call = {"name": "set_heat", "arguments": {"room": "hall", "degrees": 3}}
    ids = []
    for extra in ({}, {"content": None}, {"content": ""}):
        turn = {"role": "assistant", "tool_calls": [{"function": call}]} | extra
        value = {"messages": [{"role": "user", "content": "go"}, turn], "tools": TOOLS}
        found = prepared(models[style], read_row(value, "rows.jsonl:1", ToolSet(), "template"))
        assert read_back(models[style], found) == [call]
        ids.append(found.ids)
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize("style", ALL)
def test_three_rows_with_a_string_and_a_number_are_trained_with_prefix_and_plain_values(
    models: dict[str, Any], style: str
) -> None:
    for room, degrees in (("hall", 18), ("the attic", 21.5), ("bath", -3)):
        call = {"name": "set_heat", "arguments": {"room": room, "degrees": degrees}}
        found = prepared(models[style], row_of([call], TOOLS))
        text = trained_text(models[style], found)
        if style == "functiongemma":
            assert text.startswith(
                f"<start_function_call>call:set_heat{{degrees:{degrees},room:<escape>{room}<escape>}}"
            )
        assert read_back(models[style], found) == [call]


def test_a_template_that_nests_values_under_a_schema_key_is_refused_before_training(
    models: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_tool_model(tmp_path / "model", "functiongemma")
    file = folder / "chat_template.jinja"
    nested = "{{- key + ':{value:' }}{{- value(item) + '}' }}"
    text = file.read_text(encoding="utf-8")
    assert "{{- key + ':' }}{{- value(item) }}" in text
    file.write_text(text.replace("{{- key + ':' }}{{- value(item) }}", nested), encoding="utf-8")
    row = row_of([{"name": "set_heat", "arguments": {"room": "hall", "degrees": 3}}], TOOLS)
    found = next(iter(prepared_rows([row], load_tokenizer(folder), make_recipe(folder))))
    assert isinstance(found, str)
    assert found.startswith("rows.jsonl:1: the rendered call does not read back: '<start_function_call>call:set_heat{")


@pytest.mark.parametrize("style", ALL)
def test_several_calls_and_words_before_them_read_back_in_order(models: dict[str, Any], style: str) -> None:
    calls = [{"name": "f", "arguments": {"a": place}} for place in ("mill", 'a "quoted"\ngate', "")]
    found = prepared(models[style], row_of(calls))
    assert read_back(models[style], found) == calls
    if style != "llama":  # its template writes no words beside a call
        found = prepared(models[style], row_of(calls, content="On my way."))
        assert trained_text(models[style], found).startswith("On my way.")
        assert read_back(models[style], found) == calls


def test_words_that_a_template_would_drop_are_no_silent_loss(models: dict[str, Any]) -> None:
    tokenizer, recipe = models["llama"]
    row = row_of([{"name": "f", "arguments": {}}], content="On my way.")
    assert isinstance(next(iter(prepared_rows([row], tokenizer, recipe))), str)


@pytest.mark.parametrize("style", ALL)
def test_a_result_is_rendered_under_its_tools_name_and_never_trained(models: dict[str, Any], style: str) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "set_heat", "arguments": {"room": "hall", "degrees": 3}}}
    ]
    messages = [
        {"role": "developer", "content": "You heat."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": {"ok": True}},
        {"role": "assistant", "content": "Done."},
    ]
    row = read_row({"messages": messages, "tools": TOOLS}, "rows.jsonl:1", ToolSet(), "template")
    assert row.messages[3] == {"role": "tool", "content": '{"ok": true}', "name": "set_heat"}
    found = prepared(models[style], row)
    trained = [models[style][0].decode(found.ids[first:stop]) for first, stop in found.trained]
    assert trained[0] == WRITTEN[style].replace("die Küche", "hall").replace("21.5", "3")
    assert trained[1] in ("Done.<|im_end|>", "Done.<|eot_id|>", "Done.<end_of_turn>")
    assert len(trained) == 2


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<\uf5a0\uf5a1"), max_size=12)
# What the syntaxes are made of, inside a text.
MARKS = ['a "quote"', "\\", "\\n", "{", "}", "]", ",", ":", "; {", "'", "[1, 2]", "</tool_call>", "<tool_call>", "<b>"]
WORDS = ["null", "true", "12", "", " ", "橋 🌉", "a: b, c", "call:f{a:1}", "line\nbreak", "tab\t", "\u2028", "e\u0301"]
HARD = st.sampled_from([*MARKS, *WORDS])
NUMBERS = (
    st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0, 0.0, 1.0])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT | HARD
KEYS = st.text("abcdefXYZ_ 0", min_size=1, max_size=4).map(str.strip).filter(bool)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
ARGUMENTS = st.dictionaries(st.sampled_from("abcdxyz"), VALUES, max_size=3)


@pytest.mark.parametrize("style", ALL)
@settings(max_examples=60)
@given(several=st.lists(ARGUMENTS, min_size=1, max_size=3))
def test_every_call_that_json_can_write_reads_back(
    models: dict[str, Any], style: str, several: list[dict[str, Any]]
) -> None:
    row = row_of([{"name": "f", "arguments": arguments} for arguments in several])
    found = prepared(models[style], row)
    back, wanted = read_back(models[style], found), [call.as_json() for call in row.calls]
    assert json.dumps(back, sort_keys=True) == json.dumps(wanted, sort_keys=True)  # 1, 1.0 and true are not the same


@pytest.mark.parametrize("style", ALL)
def test_a_text_that_the_syntax_cannot_write_is_refused_and_not_mangled(models: dict[str, Any], style: str) -> None:
    tokenizer, recipe = models[style]
    row = row_of([{"name": "f", "arguments": {"a": "x <escape> y <|im_end|>"}}])
    found = next(iter(prepared_rows([row], tokenizer, recipe)))
    assert isinstance(found, str) and "special token" in found
