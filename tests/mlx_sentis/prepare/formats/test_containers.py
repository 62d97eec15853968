"""What a file is: arrays, text files, unknown names; every file is named with what it was recognised by."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.sources import Fault, load_source, open_source
from weights_bridge.errors import StageError, UsedWronglyError

PAIR = {"prompt": "Geh", "completion": "ja"}
ALPACA = {"instruction": "Hi", "input": "", "output": "yo"}


def write(path: Path, content: str | bytes | Any) -> Path:
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content, indent=1)).encode()
    path.write_bytes(content)
    return path


def read(path: Path, **more: Any) -> list[str]:
    """Return `line: user text` of each row, or `line: reason`."""
    return [
        f"{row.source.rpartition(':')[2]}: {row.reason if isinstance(row, Fault) else row.user_text}"
        for row in open_source(path, "system-block", **more).rows("train")
    ]


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_array_is_read_with_the_line_each_row_begins_in(tmp_path: Path, mark: bytes, end: bytes) -> None:
    text = json.dumps([ALPACA, PAIR], indent=1, ensure_ascii=False).encode().replace(b"\n", end)
    source = open_source(write(tmp_path / "alpaca.json", mark + text), "system-block")
    assert [row.source.rpartition(":")[2] for row in source.rows("train")] == ["2", "7"]
    assert (source.format, source.why) == (
        "mixed",
        "of the first 2 rows: alpaca 1, completion 1; each is read by its own form; a JSON array",
    )


def test_an_array_on_one_line_and_one_without_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", json.dumps([PAIR, 5, [], None]))
    assert read(file) == [
        "1: Geh",
        "1: found a number, wanted an object {…}",
        "1: found an array, wanted an object {…}",
        "1: found null, wanted an object {…}",
    ]
    with pytest.raises(StageError, match="no rows"):
        read(write(tmp_path / "b.json", "[ ]"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[\n{"prompt": "a", "completion": "b"},\n{"prompt": "c"', "3: not JSON: Expecting ',' delimiter"),
        ('[\n{"prompt": "a", "completion": "b"}\n{"prompt": "c"}]', "2: not JSON: behind this row a comma or the clos"),
        ('[{"prompt": "a", "completion": "b"},\n]', "2: not JSON: Expecting value"),
        ('[{"prompt": "a", "completion": "b"}]\n x', "1: not JSON: more text stands behind the closing ]"),
        ('[{"prompt": "a", "completion": "b"},\nNaN]', "2: not JSON: NaN is no JSON number"),
    ],
)
def test_a_broken_array_gives_the_rows_before_the_break_and_one_fault(tmp_path: Path, text: str, reason: str) -> None:
    first, fault = read(write(tmp_path / "a.json", text))
    assert first.endswith(": a") and fault.startswith(reason)
    assert fault.endswith("could not be read") or "closing ]" in fault


def test_a_byte_that_is_not_utf_8_costs_an_array_one_row(tmp_path: Path) -> None:
    text = json.dumps([PAIR, {"prompt": "X", "completion": "ja"}, PAIR]).encode().replace(b"X", b"\xe4")
    assert read(write(tmp_path / "a.json", text)) == ["1: Geh", "1: not UTF-8 (byte 0xe4)", "1: Geh"]


def test_a_json_name_may_hold_json_lines(tmp_path: Path) -> None:
    """BFCL and many others name JSON lines so."""
    assert read(write(tmp_path / "a.json", json.dumps(PAIR) + "\n" + json.dumps(PAIR))) == ["1: Geh", "2: Geh"]


def test_an_array_under_a_jsonl_name_is_explained_and_read_when_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "train.jsonl", [PAIR, PAIR])
    with pytest.raises(StageError, match="a JSON array of 2 rows, wanted JSON lines") as caught:
        open_source(file, "system-block")
    assert "--format json" in caught.value.hint
    assert read(file, format="json") == ["2: Geh", "6: Geh"]


@pytest.mark.parametrize(
    ("name", "rows", "form", "why"),
    [
        ("a.jsonl", [PAIR], "completion", "keys prompt, completion"),
        ("a.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "id": 1}],
         "messages", "keys messages"),
        ("a.jsonl", [{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}],
         "sharegpt", "keys conversations"),
        ("a.jsonl", [ALPACA], "alpaca", "keys instruction, input, output"),
        ("a.jsonl", [{"text": "Once."}], "text", "keys text"),
        ("a.data", [PAIR, PAIR], "completion", "keys prompt, completion"),
        ("a.jsonl", [PAIR, {"text": "x"}, PAIR], "mixed",
         "of the first 3 rows: completion 2, text 1; each is read by its own form"),
    ],
)  # fmt: skip
def test_the_form_is_recognised_and_named_with_its_keys(
    tmp_path: Path, name: str, rows: list[Any], form: str, why: str
) -> None:
    file = write(tmp_path / name, "".join(json.dumps(row) + "\n" for row in rows))
    source = open_source(file, "system-block")
    assert (source.format, source.why) == (form, why)
    assert len(load_source(file, "system-block").splits["train"]) == len(rows)


def test_rows_of_no_known_form_are_said_to_be_so(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "a.jsonl", '{"a": 1}\n'), "system-block")
    assert (source.format, source.why) == ("unrecognised", "no row has the keys of a known form")


def test_a_forced_form_that_does_not_fit_says_so_row_by_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in (ALPACA, PAIR, ALPACA)))
    assert open_source(file, "system-block", format="alpaca").why == "as asked for; keys instruction, input, output"
    assert read(file, format="alpaca") == [
        "1: Hi",
        '2: found completion, prompt, wanted {"instruction", "output"} (format alpaca)',
        "3: Hi",
    ]


def test_a_forced_form_wins_over_the_one_that_would_be_recognised(tmp_path: Path) -> None:
    row = ALPACA | {"text": "### Hi ### yo"}
    file = write(tmp_path / "a.jsonl", json.dumps(row))
    assert read(file, format="text") == ["1: ### Hi ### yo"]


@pytest.mark.parametrize("name", ["alpace", "xml", ""])
def test_an_unknown_format_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsedWronglyError) as caught:
        open_source(write(tmp_path / "a.jsonl", json.dumps(PAIR)), "system-block", format=name)
    assert "sharegpt" in caught.value.hint and caught.value.exit_code == 2
    assert name != "alpace" or "did you mean alpaca?" in caught.value.hint


def test_a_map_renames_the_keys_of_json_rows_and_a_row_without_them_is_a_fault(tmp_path: Path) -> None:
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?"}, {"question": "4+4?", "answer": "8", "user": "x"}]
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    mapping = {"user": "question", "assistant": "answer"}
    assert read(file, mapping=mapping) == [
        "1: 2+2?",
        "2: no answer in this row (data.map), found question",
        "3: 4+4?",
    ]
    source = open_source(file, "system-block", mapping=mapping)
    assert (source.format, source.why) == ("completion", "mapped: user is question, assistant is answer")


def test_a_text_file_has_a_row_per_line_or_per_paragraph(tmp_path: Path) -> None:
    lines = write(tmp_path / "barks.txt", b"\xef\xbb\xbfWho goes there?\r\nStop!\r\n\r\n")
    assert read(lines) == ["1: Who goes there?", "2: Stop!"]
    source = open_source(lines, "system-block")
    assert (source.format, source.why) == ("text", "one row per line, no empty line between texts")
    list(source.rows("train"))
    assert source.blank_lines == {"barks.txt": 1}
    tales = write(tmp_path / "tales.txt", "\nOnce\nupon.\n \n\nTwice.\n")
    assert read(tales) == ["2: Once\nupon.", "6: Twice."]
    assert open_source(tales, "system-block").why == "one row per paragraph, between empty lines"


def test_a_text_of_another_name_is_read_when_asked_for(tmp_path: Path) -> None:
    assert read(write(tmp_path / "lore.dat", "The mill burned.\n"), format="text") == ["1: The mill burned."]


def test_a_picture_under_a_text_name_is_no_text(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.txt", b"\x89PNG\n\x00\x00\nfine\n"))
    assert found == [
        "1: not UTF-8 (byte 0 of the line is 0x89)",
        "2: found a NUL character, this is no text",
        "3: fine",
    ]


def test_a_folder_may_mix_containers_and_leaves_other_files_alone(tmp_path: Path) -> None:
    write(tmp_path / "train.json", [PAIR])
    write(tmp_path / "test.csv", "prompt,completion\na,b\n")
    write(tmp_path / "dev.jsonl", json.dumps(PAIR))
    for name in ("README.md", "LICENSE.txt", "labels.json", "picture.png"):
        write(tmp_path / name, "x")
    loaded = load_source(tmp_path, "system-block")
    assert {split: len(rows) for split, rows in loaded.splits.items()} == {"train": 1, "valid": 1, "holdout": 1}
    assert not loaded.is_single_file


def test_two_files_for_one_split_are_refused_whatever_they_are(tmp_path: Path) -> None:
    write(tmp_path / "train.json", [PAIR])
    write(tmp_path / "train.csv", "prompt,completion\na,b\n")
    with pytest.raises(StageError, match="is there for the same split"):
        open_source(tmp_path, "system-block")


def test_json_lines_under_a_text_name_are_rows_and_no_text_to_train(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.txt", json.dumps(PAIR) + "\n")
    assert open_source(file, "system-block").format == "completion"
    assert read(file, format="completion") == ["1: Geh"]
    assert read(file, format="text") == ["1: " + json.dumps(PAIR)]


def test_a_file_that_says_nothing_about_itself_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.dat", "prompt,completion\na,b\n")
    with pytest.raises(StageError, match="neither its name nor its first line says what it is") as caught:
        open_source(file, "system-block")
    assert "--format csv, tsv, text or jsonl" in caught.value.hint
    assert read(file, format="csv") == ["2: a"]


def test_rows_inside_one_object_are_found_for_the_user(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", {"version": 1, "data": [PAIR, PAIR]})
    with pytest.raises(StageError, match="one JSON value over several lines") as caught:
        open_source(file, "system-block")
    assert caught.value.hint == "its 2 rows stand under 'data': write that array alone into a .json file"


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
@pytest.mark.parametrize("indent", [None, 1])
def test_rows_under_a_key_of_one_object_are_explained(tmp_path: Path, name: str, indent: int | None) -> None:
    file = tmp_path / name
    file.write_text(json.dumps({"version": "1", "data": [PAIR] * 5}, indent=indent), encoding="utf-8")
    with pytest.raises(StageError) as caught:
        open_source(file, "system-block")
    assert "5 rows stand under 'data'" in caught.value.message + caught.value.hint


def test_a_line_with_an_array_of_rows_among_others_is_one_bad_row(tmp_path: Path) -> None:
    lines = [json.dumps({"data": [PAIR]}), json.dumps(PAIR)]
    (found, _) = read(write(tmp_path / "rows.jsonl", "\n".join(lines)))
    assert found.startswith("1: found data, wanted ")
