"""Reading data files: every row is read, counted or reported with its place."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.masks import prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import Fault, load_source, open_source
from weights_bridge.errors import StageError, UsedWronglyError

GOOD = {"messages": [{"role": "user", "content": "Geh über die Brücke"}, {"role": "assistant", "content": "ja"}]}
LINE = json.dumps(GOOD, ensure_ascii=False).encode()


def load(path: Path | str) -> list[Any]:
    return load_source(path, "system-block").splits["train"]


def messages_of(path: Path) -> list[Any]:
    return [row.messages for row in load(path)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_byte_order_mark_and_line_ends_change_no_row(tmp_path: Path, end: bytes, mark: bytes) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(mark + LINE + end + LINE + end)
    assert messages_of(file) == [GOOD["messages"]] * 2
    assert [row.source for row in load(file)] == [f"{file}:1", f"{file}:2"]


def test_line_ends_and_the_byte_order_mark_change_no_token(tmp_path: Path, llama: Any) -> None:
    ids = []
    for number, (mark, end) in enumerate([(b"", b"\n"), (codecs.BOM_UTF8, b"\r\n"), (b"", b"\r")]):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(mark + LINE + end + b"\n" + LINE + end)
        ids.append([row.ids for row in prepared_rows(load(file), llama.tokenizer, llama.recipe)])
    assert ids[0] == ids[1] == ids[2]


def test_an_empty_text_row_is_a_fault_of_its_line_and_costs_no_other_row(jsonl: Any) -> None:
    file = jsonl([{"text": "Once."}, {"text": ""}, {"text": "Twice."}])
    found = list(open_source(file, "system-block").rows("train"))
    assert found[1] == Fault(f"{file}:2", "text: the text is empty")
    assert [row.user_text for row in found if isinstance(row, Row)] == ["Once.", "Twice."]
    with pytest.raises(StageError, match=r"rows\.jsonl:2: text: the text is empty"):
        load(file)


def test_a_missing_last_line_end_loses_no_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(LINE + b"\n" + LINE)
    assert len(load(file)) == 2


def test_a_line_separator_inside_a_text_is_no_line_end(jsonl: Any) -> None:
    file = jsonl([{"prompt": "one\u2028two\x85three", "completion": "ja"}])
    assert load(file)[0].user_text == "one\u2028two\x85three"


def test_blank_lines_are_skipped_counted_and_keep_the_numbering(jsonl: Any) -> None:
    file = jsonl([GOOD, "", "  ", GOOD])
    loaded = load_source(file, "system-block")
    assert loaded.blank_lines == {"rows.jsonl": 2}
    assert [row.source.rpartition(":")[2] for row in loaded.splits["train"]] == ["1", "4"]


def test_all_bad_rows_come_in_one_error_with_file_and_line(jsonl: Any) -> None:
    truncated = LINE.decode()[:-9]
    file = jsonl([GOOD, truncated, GOOD, "[1]", {"messages": []}, {"body": ""}])
    with pytest.raises(StageError) as caught:
        load(file)
    assert caught.value.exit_code == 1
    assert "4 bad rows, nothing was written" in caught.value.message
    for place in (
        ":2: not JSON: ",
        ":4: found an array, wanted an object",
        ":5: messages: found an empty array",
        ":6: found body, wanted ",
    ):
        assert f"{file}{place}" in caught.value.message


def test_a_missing_tools_json_is_told_once_per_file(jsonl: Any) -> None:
    file = jsonl([GOOD, *[{"user": f"open {i}", "call": None} for i in range(30)]])
    with pytest.raises(StageError) as caught:
        load(file)
    assert caught.value.message == (
        f"{file}: 30 bad rows, nothing was written:\n"
        f"  {file}:2: a row with a call needs tools.json beside its file (and 29 rows below it)"
    )


ROLE = "assistant"
BAD_MESSAGES = [
    ([{"role": "user", "content": "hi"}], "no assistant turn"),
    ([{"role": "user", "content": " \n"}, {"role": ROLE, "content": "ja"}], "messages[0].content: the user's text"),
    ([{"role": "user", "content": "hi"}, {"role": ROLE, "content": ""}], "messages[1].content: the assistant's text"),
    ([{"role": "user", "content": "hi"}, {"role": ROLE, "content": None}], "messages[1].content: the assistant's text"),
    ([{"role": "user", "content": 5}, {"role": ROLE, "content": "ja"}], "messages[0].content: found a number"),
    ([{"role": "bot", "content": "x"}], "messages[0].role: found 'bot', wanted one of system, user"),
    (["hi"], "messages[0]: found a text, wanted an object"),
    ("hi", "messages: found a text, wanted an array"),
    ([{"role": ROLE, "content": "ja"}], "the first turn after system must be the user's"),
    (
        [{"role": "user", "content": "a"}, {"role": ROLE, "content": "b"}, {"role": "user", "content": "c"}],
        "the last turn is the user's",
    ),
    (
        [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": ROLE, "content": "c"}],
        "messages[1]: a system turn can only come first",
    ),
]


@pytest.mark.parametrize(("messages", "reason"), BAD_MESSAGES)
def test_a_row_that_cannot_be_trained_is_refused_with_its_reason(jsonl: Any, messages: Any, reason: str) -> None:
    file = jsonl([GOOD, {"messages": messages}])
    with pytest.raises(StageError) as caught:
        load(file)
    assert f"{file}:2: " in caught.value.message
    assert reason in caught.value.message


def test_a_json_array_is_recognised_with_its_rows_and_a_conversion(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps([GOOD, GOOD], indent=1))
    with pytest.raises(StageError, match="a JSON array of 2 rows, wanted JSON lines") as caught:
        load(file)
    assert "rows.jsonl" in caught.value.hint


def test_one_object_over_several_lines_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(GOOD, indent=1))
    with pytest.raises(StageError, match="one JSON value over several lines"):
        load(file)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_objects_over_several_lines_each_are_recognised_and_explained_once(tmp_path: Path, end: str) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes("\n\n".join([json.dumps(GOOD, indent=1)] * 3).replace("\n", end).encode())
    with pytest.raises(StageError, match=r"train\.jsonl:1: this is 3 JSON objects over several lines each") as caught:
        load(file)
    assert "jq -c . train.jsonl > rows.jsonl" in caught.value.hint


def test_one_line_with_two_objects_is_a_fault_of_that_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(LINE + LINE + b"\n" + LINE)
    with pytest.raises(StageError, match="1 bad row") as caught:
        load(file)
    assert f"{file}:1: not JSON: Extra data" in caught.value.message


@pytest.mark.parametrize("content", [b"", b"\n\n", codecs.BOM_UTF8])
def test_an_empty_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(content)
    with pytest.raises(StageError, match=r"train\.jsonl: no rows, the file is empty"):
        load(file)


def test_utf_16_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(GOOD), encoding="utf-16")
    with pytest.raises(StageError, match="UTF-16 text, wanted UTF-8"):
        load(file)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt": NaN, "completion": "a"}', "NaN is no JSON number"),
        ('{"prompt": 1e999, "completion": "a"}', "1e999 is too large"),
        ('{"prompt": "\\ud800", "completion": "a"}', "half a surrogate pair"),
        ('{"prompt": ' + "[" * 100 + "]" * 100 + "}", "nested deeper than 64"),
        ('{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper than 64"),
        ('{"prompt": ' + "1" * 5000 + "}", "a number of 5000 digits$"),
        ('{"prompt": "a", "prompt": "b", "completion": "c"}', "the key 'prompt' stands twice in one object"),
        ('{"prompt": "a", "completion": "c", "x": {"y": 1, "z": 2, "y": 1}}', "the key 'y' stands twice"),
    ],
)
def test_json_that_no_tokenizer_can_take_is_refused(jsonl: Any, line: str, reason: str) -> None:
    with pytest.raises(StageError, match=re.compile(reason, re.MULTILINE)):
        load(jsonl([line, GOOD]))


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_name_is_not_the_current_folder(source: str) -> None:
    with pytest.raises(UsedWronglyError, match="the name is empty"):
        load(source)


def test_a_device_is_neither_a_file_nor_a_folder() -> None:
    with pytest.raises(StageError, match=r"^/dev/null: neither a file nor a folder") as caught:
        load("/dev/null")
    assert "write them to a file" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(LINE), "gzip"),
        (bz2.compress(LINE), "bzip2"),
        (lzma.compress(LINE), "xz"),
        (b"PK\x03\x04rest", "zip"),
    ],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.txt", "rows.json"])
def test_a_compressed_file_is_recognised(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StageError, match=rf"{name}: compressed \({kind}\), wanted text in UTF-8"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "says", "silent"),
    [
        ('{"prompt": NaN, "completion": "a"}', "write null where a value is missing", "--help"),
        ('{"prompt": "a" "completion": "a"}', "write each row with a JSON library", "--help"),
        ('{"prompt": "a", "prompt": "a", "completion": "a"}', "mend these lines", "--help"),
        ('{"ask": "a"}', "--help", "UTF-8"),
    ],
)
def test_the_hint_for_bad_rows_fits_the_reason_and_names_skip_bad(
    jsonl: Any, line: str, says: str, silent: str
) -> None:
    with pytest.raises(StageError) as caught:
        load(jsonl([GOOD, line]))
    assert says in caught.value.hint
    assert silent not in caught.value.hint
    assert caught.value.hint.endswith("--skip-bad (of `run`: --set data.skip_bad=true) leaves the rows out")


@pytest.mark.parametrize("content", [[], {"instruction": "Be brief."}, {"functions": [{"name": "f"}]}])
def test_a_tools_json_without_tools_is_told_from_a_missing_one(jsonl: Any, content: Any) -> None:
    jsonl([json.dumps(content)], "tools.json")
    with pytest.raises(StageError, match=r"a row with a call needs tools: tools\.json lists none"):
        load(jsonl([{"user": "go", "call": None}]))


def test_a_tool_without_parameters_takes_no_arguments(jsonl: Any) -> None:
    jsonl([json.dumps([{"name": "stop"}])], "tools.json")
    with pytest.raises(StageError, match="stop has no x, it takes no arguments\n"):
        load(jsonl([{"user": "go", "call": {"name": "stop", "arguments": {"x": 1}}}]))


def test_a_byte_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(LINE + b"\n" + LINE.replace(b"ja", b"j\xe4") + b"\n")
    with pytest.raises(StageError, match=r"a\.jsonl:2: not UTF-8 \(byte \d+ of the line is 0xe4\)"):
        load(file)


def test_a_surrogate_pair_is_one_character(jsonl: Any) -> None:
    assert load(jsonl(['{"prompt": "\\ud83d\\ude00", "completion": "a"}']))[0].user_text == "😀"


def test_a_folder_gives_its_splits_and_other_names_for_them(jsonl: Any) -> None:
    files = [jsonl([GOOD], f"set/{name}.jsonl") for name in ("train", "validation", "test")]
    assert list(load_source(files[0].parent, "system-block").splits) == ["train", "valid", "holdout"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["valid"], "no train.jsonl in it"),
        (["train", "extra"], r"extra\.jsonl: no split has this name"),
        (["train", "test", "holdout"], "is there for the same split"),
    ],
)
def test_a_folder_with_unclear_files_is_refused(jsonl: Any, names: list[str], reason: str) -> None:
    files = [jsonl([GOOD], f"set/{name}.jsonl") for name in names]
    with pytest.raises(StageError, match=reason):
        load_source(files[0].parent, "system-block")


def test_bad_rows_of_all_files_come_together(jsonl: Any) -> None:
    folder = jsonl([GOOD, "{"], "set/train.jsonl").parent
    jsonl(["5"], "set/valid.jsonl")
    with pytest.raises(StageError) as caught:
        load_source(folder, "system-block")
    assert "train.jsonl:2: " in caught.value.message
    assert "valid.jsonl:1: " in caught.value.message


def test_an_unknown_source_lists_the_shipped_sets() -> None:
    with pytest.raises(StageError, match="no such file, folder or shipped set") as caught:
        load_source("npc-comands", "system-block")
    assert "npc-commands" in caught.value.hint


def test_the_shipped_set_loads_by_name_with_its_tools() -> None:
    loaded = load_source("npc-commands", "system-block")
    assert {split: len(rows) for split, rows in loaded.splits.items()} == {
        "train": 300,
        "valid": 40,
        "calibration": 60,
        "holdout": 100,
    }
    row = loaded.splits["train"][0]
    assert row.source == "npc-commands/train.jsonl:1"
    assert len(row.tools) == 6
    assert row.messages[0]["role"] == "system"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"name": "fly", "arguments": {}}, "no tool 'fly', known: move_to, set_light"),
        ({"name": "move_to", "arguments": {}}, "move_to wants place"),
        ({"name": "move_to", "arguments": {"place": "a", "x": 1}}, "move_to has no x, known: place"),
        ({"name": "move_to", "arguments": {"place": 7}}, "call.arguments.place: found a number, wanted string"),
        ({"name": "set_light", "arguments": {"state": "dim"}}, 'found "dim", wanted on|off'),
        ({"name": "set_light", "arguments": {"lamps": True}}, "call.arguments.lamps: found a truth value"),
        ({"name": "move_to", "arguments": '{"place": '}, "call.arguments: the text is not JSON"),
        ({"name": "move_to", "arguments": [1]}, "call.arguments: found an array"),
        ({"arguments": {}}, "call.name: found null"),
        ("move_to", "call: found a text"),
    ],
)
def test_a_call_that_its_schema_excludes_is_refused(jsonl: Any, tools: Any, call: Any, reason: str) -> None:
    jsonl([json.dumps({"tools": tools})], "tools.json")
    with pytest.raises(StageError) as caught:
        load(jsonl([{"user": "go", "call": call}]))
    assert reason in caught.value.message


def test_a_call_row_without_tools_beside_it_is_refused(jsonl: Any) -> None:
    with pytest.raises(StageError, match=r"needs tools\.json beside its file"):
        load(jsonl([{"user": "go", "call": None}]))


def test_arguments_as_text_and_as_object_are_the_same_row_in_schema_order(jsonl: Any, tools: Any) -> None:
    jsonl([json.dumps({"tools": tools})], "tools.json")
    arguments = {"lamps": 2, "state": "on"}
    calls = [{"name": "set_light", "arguments": form} for form in (arguments, json.dumps(arguments))]
    first, second = load(jsonl([{"user": "light", "call": call} for call in calls]))
    assert first.messages == second.messages
    assert list(first.calls[0].arguments) == ["state", "lamps"]


def test_null_and_absent_content_beside_a_call_are_the_empty_text(jsonl: Any, tools: Any) -> None:
    call = [{"function": {"name": "move_to", "arguments": {"place": "mill"}}}]
    turns = [{"role": ROLE, "tool_calls": call} | extra for extra in ({}, {"content": None}, {"content": ""})]
    rows = [{"messages": [{"role": "user", "content": "go"}, turn], "tools": tools} for turn in turns]
    found = messages_of(jsonl(rows))
    assert found[0] == found[1] == found[2]
    assert found[0][1]["content"] == ""


@pytest.mark.parametrize(
    "value", ["{", '"x"', '{"tools": 5}', '{"tools": [{"name": ""}]}', '{"instruction": 5}', "\x00"]
)
def test_a_broken_tools_file_is_named(jsonl: Any, value: str) -> None:
    jsonl([value], "tools.json")
    with pytest.raises(StageError, match=r"tools\.json: "):
        load(jsonl([GOOD]))
