"""Types of other dialects become JSON Schema's, wherever a schema may stand and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_sentis.prepare.schemas import normalised_schema
from mlx_sentis.prepare.tools import normalised_tools, read_call


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("dict", {"type": "object"}),
        ("HashMap", {"type": "object"}),
        ("float", {"type": "number"}),
        ("double", {"type": "number"}),
        ("long", {"type": "integer"}),
        ("STRING", {"type": "string"}),
        ("tuple", {"type": "array"}),
        ("bool", {"type": "boolean"}),
        ("List[str]", {"type": "array", "items": {"type": "string"}}),
        ("Dict[str, int]", {"type": "object"}),
        ("list[Point]", {"type": "array"}),
        ("any", {}),
        ("Point", {"type": "Point"}),
        ("", {"type": ""}),
        (["str", "None"], {"type": ["string", "null"]}),
        ("string", {"type": "string"}),
    ],
)
def test_a_types_word_becomes_that_of_json_schema(word: Any, wanted: dict[str, Any]) -> None:
    assert normalised_schema({"type": word}) == wanted
    assert normalised_schema(wanted) == wanted


def test_types_are_mended_at_every_depth_and_names_are_left_alone() -> None:
    schema = {
        "type": "dict",
        "properties": {
            "type": {"type": "str", "enum": ["dict", "float"], "default": "dict"},
            "path": {"type": "list", "items": {"type": "dict", "properties": {"x": {"type": "float"}}}},
            "either": {"anyOf": [{"type": "int"}, {"type": "NoneType"}]},
            "extra": {"type": "dict", "additionalProperties": {"type": "float"}},
        },
        "required": ["type"],
    }
    found = normalised_schema(schema)
    assert found["properties"] == {
        "type": {"type": "string", "enum": ["dict", "float"], "default": "dict"},
        "path": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "extra": {"type": "object", "additionalProperties": {"type": "number"}},
    }
    assert schema["properties"]["path"]["items"]["type"] == "dict", "what was given is not changed"


def test_a_call_is_checked_against_the_mended_types() -> None:
    tools = normalised_tools(
        [{"name": "f", "parameters": {"properties": {"n": {"type": "float"}, "a": {"type": "any"}}}}]
    )
    assert read_call({"name": "f", "arguments": {"n": 3, "a": [1]}}, tools, "call").arguments == {"n": 3, "a": [1]}
    with pytest.raises(ValueError, match=r"call\.arguments\.n: found a text, wanted number"):
        read_call({"name": "f", "arguments": {"n": "3"}}, tools, "call")


def test_an_enum_beside_an_array_lists_what_its_items_may_be() -> None:
    sides = {"type": "array", "items": {"type": "string"}, "enum": ["left", "right"]}
    tools = normalised_tools([{"name": "f", "parameters": {"properties": {"sides": sides}}}])
    assert read_call({"name": "f", "arguments": {"sides": ["left"]}}, tools, "call").arguments == {"sides": ["left"]}
    with pytest.raises(ValueError, match=r'found \["up"\], wanted left\|right'):
        read_call({"name": "f", "arguments": {"sides": ["up"]}}, tools, "call")
