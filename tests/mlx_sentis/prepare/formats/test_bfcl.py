"""BFCL files: questions and answers joined, alternatives chosen, irrelevance out of scope. The rows are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import Fault, Source, open_source
from weights_bridge.errors import StageError

BOOK = {
    "name": "inn.book",
    "description": "book rooms",
    "parameters": {
        "type": "dict",
        "properties": {
            "rooms": {"type": "integer"},
            "price": {"type": "float"},
            "names": {"type": "tuple", "items": {"type": "String"}},
            "diet": {"type": "dict", "properties": {"meat": {"type": "boolean"}, "note": {"type": "any"}}},
            "guests": {"type": "array", "items": {"type": "dict", "properties": {"age": {"type": "integer"}}}},
        },
        "required": ["rooms"],
    },
}


def question(name: str, text: str = "book", **more: Any) -> dict[str, Any]:
    return {"id": name, "question": [[{"role": "user", "content": text}]], "function": [BOOK]} | more


def answer(name: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "ground_truth": [{"inn.book": call} for call in calls]}


def source_of(
    folder: Path, questions: list[Any], answers: list[Any] | None, name: str = "BFCL_v4_simple.json"
) -> Source:
    folder.joinpath(name).write_text("".join(json.dumps(row) + "\n" for row in questions))
    if answers is not None:
        (folder / "possible_answer").mkdir()
        (folder / "possible_answer" / name).write_text("".join(json.dumps(row) + "\n" for row in answers))
    return open_source(folder / name, "template")


def calls_of(folder: Path, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    found = next(source_of(folder, [question("simple_0")], [answer("simple_0", *calls)]).rows("train"))
    assert isinstance(found, Row), found
    return [call.arguments for call in found.calls]


def test_questions_and_answers_are_joined_by_id_in_any_order(tmp_path: Path) -> None:
    questions = [question("simple_0", "one"), question("simple_1", "two")]
    answers = [answer("simple_1", {"rooms": [2]}), answer("simple_0", {"rooms": [1]})]
    source = source_of(tmp_path, questions, answers)
    assert (source.format, source.why) == ("bfcl", "answers in possible_answer/")
    rows = [row for row in source.rows("train") if isinstance(row, Row)]
    assert [(row.user_text, row.calls[0].arguments) for row in rows] == [("one", {"rooms": 1}), ("two", {"rooms": 2})]
    assert [call.name for call in rows[0].calls] == ["inn.book"]


def test_types_of_other_languages_become_those_of_json_schema(tmp_path: Path) -> None:
    row = next(source_of(tmp_path, [question("simple_0")], [answer("simple_0", {"rooms": [1]})]).rows("train"))
    assert isinstance(row, Row)
    schema = row.tools[0]["function"]["parameters"]
    assert schema["type"] == "object"
    assert {name: inner.get("type") for name, inner in schema["properties"].items()} == {
        "rooms": "integer",
        "price": "number",
        "names": "array",
        "diet": "object",
        "guests": "array",
    }
    assert schema["properties"]["names"]["items"] == {"type": "string"}
    assert schema["properties"]["diet"]["properties"] == {"meat": {"type": "boolean"}, "note": {}}


@pytest.mark.parametrize(
    ("alternatives", "wanted"),
    [
        ({"rooms": [2, 3]}, {"rooms": 2}),
        ({"rooms": [1], "price": ["", 9.5]}, {"rooms": 1}),
        ({"rooms": [1], "price": [9.5, ""]}, {"rooms": 1, "price": 9.5}),
        ({"rooms": ["", 4]}, {"rooms": 4}),  # required, so it cannot be left out
        ({"price": [1], "rooms": [0]}, {"rooms": 0, "price": 1}),  # in the schema's order
        ({"rooms": [1], "names": []}, {"rooms": 1, "names": []}),
        ({"rooms": [1], "names": [["Ann", "Bo"], ["Bo", "Ann"]]}, {"rooms": 1, "names": ["Ann", "Bo"]}),
        ({"rooms": [1], "diet": [{"meat": [False, True], "note": ["", "x"]}]}, {"rooms": 1, "diet": {"meat": False}}),
        ({"rooms": [1], "guests": [[{"age": [7, 8]}, {"age": [9]}]]}, {"rooms": 1, "guests": [{"age": 7}, {"age": 9}]}),
        ({"rooms": [1], "diet": [{"note": [{"deep": ["kept"]}]}]}, {"rooms": 1, "diet": {"note": {"deep": ["kept"]}}}),
    ],
)
def test_the_first_alternative_is_the_answer(tmp_path: Path, alternatives: dict[str, Any], wanted: Any) -> None:
    (found,) = calls_of(tmp_path, alternatives)
    assert found == wanted
    assert list(found) == list(wanted)


def test_parallel_calls_are_one_turn(tmp_path: Path) -> None:
    assert calls_of(tmp_path, {"rooms": [1]}, {"rooms": [2]}) == [{"rooms": 1}, {"rooms": 2}]


def test_an_irrelevance_set_is_out_of_scope_and_a_missing_answer_is_never(tmp_path: Path) -> None:
    questions = [question("live_irrelevance_0-0-0"), question("simple_7")]
    row, fault = source_of(tmp_path, questions, None).rows("train")
    assert isinstance(row, Row) and isinstance(fault, Fault)
    assert (row.kind, row.expect()) == ("none", {"kind": "none"})
    assert row.messages[0] == {"role": "system", "content": "If no tool fits, answer none."}
    assert fault.reason == "no answer with this id in possible_answer/ beside the file"


def test_an_answer_without_a_question_is_not_lost_in_silence(tmp_path: Path) -> None:
    answers = [answer("simple_0", {"rooms": [1]}), answer("simple_9", {"rooms": [1]})]
    found = list(source_of(tmp_path, [question("simple_0")], answers).rows("train"))
    assert isinstance(found[1], Fault) and len(found) == 2
    assert found[1].reason.endswith("answers questions that are not here: simple_9")


def test_an_answer_that_contradicts_its_schema_is_read_and_remarked(tmp_path: Path) -> None:
    answers = [answer("simple_0", {"rooms": ["two"], "pets": ["cat"]})]
    source = source_of(tmp_path, [question("simple_0")], answers)
    (row,) = source.rows("train")
    assert isinstance(row, Row) and row.calls[0].arguments == {"rooms": "two", "pets": "cat"}
    assert list(source.remarks.values()) == [
        "the answer contradicts its schema: ground_truth[0].arguments: inn.book has no pets, "
        "known: rooms, price, names, diet, guests"
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]}, "found 2 turns"),
        ({"question": []}, "question: the first turn after system must be the user's"),
        ({"question": 5}, "question[0].content: found a number"),
        ({"function": None, "involved_classes": []}, "tools[0]: found null"),
        ({"function": "x"}, "tools[0]: found a text"),
    ],
)
def test_a_question_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    source = source_of(tmp_path, [question("simple_0") | change], [answer("simple_0", {"rooms": [1]})])
    (found,) = source.rows("train")
    assert isinstance(found, Fault) and reason in found.reason


@pytest.mark.parametrize(
    ("truth", "reason"),
    [
        ([{"fly": {}}], "no tool 'fly', known: inn.book"),
        (["cd('x')"], "wanted an array of"),
        ([], "wanted an array of"),
        ([{"inn.book": [1]}], "found an array, wanted an object of arguments"),
    ],
)
def test_an_answer_that_is_none_is_refused(tmp_path: Path, truth: Any, reason: str) -> None:
    source = source_of(tmp_path, [question("simple_0")], [{"id": "simple_0", "ground_truth": truth}])
    (found,) = source.rows("train")
    assert isinstance(found, Fault) and reason in found.reason


def test_questions_played_with_simulated_classes_say_why_they_are_not_read(tmp_path: Path) -> None:
    row = {"id": "multi_turn_base_0", "question": [[], []], "involved_classes": ["FileSystem"], "path": []}
    (found,) = source_of(tmp_path, [row], None).rows("train")
    assert isinstance(found, Fault) and found.reason.startswith("no function: questions that are played with")


@pytest.mark.parametrize(
    "line", ["{", "{}", '{"id": "simple_0", "ground_truth": []}\n{"id": "simple_0", "ground_truth": []}']
)
def test_a_broken_answer_file_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "possible_answer").mkdir()
    (tmp_path / "possible_answer" / "a.json").write_text(line)
    (tmp_path / "a.json").write_text(json.dumps(question("simple_0")))
    with pytest.raises(StageError, match=r"possible_answer/a\.json:[12]: "):
        open_source(tmp_path / "a.json", "template")


def test_a_folder_of_questions_asks_for_one_of_them(tmp_path: Path) -> None:
    source_of(tmp_path, [question("simple_0")], [answer("simple_0", {"rooms": [1]})])
    with pytest.raises(StageError) as caught:
        open_source(tmp_path, "template")
    assert "give one of its question files" in caught.value.hint


def test_split_files_of_questions_make_a_folder(tmp_path: Path) -> None:
    source_of(tmp_path, [question("simple_0")], [answer("simple_0", {"rooms": [1]})], "train.json")
    (tmp_path / "test.json").write_text(json.dumps(question("irrelevance_0")))
    source = open_source(tmp_path, "template")
    assert [row.kind for split in source.files for row in source.rows(split) if isinstance(row, Row)] == [
        "inn.book",
        "none",
    ]
