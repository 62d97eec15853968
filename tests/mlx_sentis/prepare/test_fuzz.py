"""Readers against what nobody would write: no traceback, no hang, no record lost without a word."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.formats import FORMS
from mlx_sentis.prepare.masks import prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import Fault, Source, open_source
from weights_bridge.errors import StageError

FUZZ = settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
PAIR = {"prompt": "Geh über die Brücke", "completion": "ja"}
LINE = json.dumps(PAIR, ensure_ascii=False).encode()
NAMES = ("a.jsonl", "a.json", "a.csv", "a.tsv", "a.txt", "a.parquet", "a.arrow", "a.data")
WORDS = b'{ } [ ] " "" , ; : null NaN 1e999 prompt completion text "prompt" "text" "\\ud800" PAR1 ARROW1 \\'
SIGNS = [*WORDS.split(b" "), codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"\n", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b"\0"]
WHOLE = [b"prompt,completion\n", b"text\n", b"a,b\n", b'"a\nb",c\n', b"\xff", LINE, b"[" + LINE + b"," + LINE + b"]"]
PIECES = st.sampled_from(SIGNS + WHOLE)
BYTES = st.one_of(st.binary(max_size=120), st.lists(PIECES, max_size=30).map(b"".join))


def opened(path: Path, content: bytes, **more: Any) -> Source | None:
    """Return the source, None where it was refused in one line."""
    path.write_bytes(content)
    try:
        return open_source(path, "system-block", **more)
    except StageError as error:
        assert path.name in error.message
        assert error.hint
        return None


@pytest.mark.parametrize("form", ["auto", "jsonl", "json", "csv", "tsv", "text", "bfcl", "alpaca", "datasets"])
@FUZZ
@given(content=BYTES)
def test_arbitrary_bytes_give_rows_faults_or_one_stage_error(tmp_path: Path, form: str, content: bytes) -> None:
    for name in NAMES if form == "auto" else ("a.jsonl",):
        source = opened(tmp_path / name, content, format=form)
        if source is None:
            continue
        for _ in range(2):  # each reading begins anew
            found = list(source.rows("train"))
            assert all(isinstance(row, Row | Fault) for row in found)
            assert found, "a source that opens has rows or says what is wrong"
            places = [int(row.source.rpartition(":")[2]) for row in found]
            assert places == sorted(places)


@FUZZ
@given(
    lines=st.lists(st.sampled_from([LINE, b"", b" ", b"{", b"5", b"\xff", b'{"text": ""}']), min_size=1, max_size=20)
)
def test_every_line_of_json_lines_is_a_row_a_fault_or_a_blank(tmp_path: Path, lines: list[bytes]) -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        source = opened(tmp_path / "a.jsonl", end.join(lines) + end)
        if source is None:
            assert not any(line.strip() for line in lines)
            continue
        found = list(source.rows("train"))
        assert len(found) + source.blank_lines.get("a.jsonl", 0) == len(lines)
        assert sum(isinstance(row, Row) for row in found) == lines.count(LINE)


@FUZZ
@given(values=st.lists(st.sampled_from([PAIR, {}, {"text": ""}, [], [PAIR], None, "x", 5, True]), max_size=12))
def test_every_element_of_an_array_is_a_row_or_a_fault(tmp_path: Path, values: list[Any]) -> None:
    for indent in (None, 1):
        source = opened(tmp_path / "a.json", json.dumps(values, indent=indent).encode())
        if source is None:
            assert not values
            continue
        found = list(source.rows("train"))
        assert [isinstance(row, Row) for row in found] == [value == PAIR for value in values]


RECORDS = st.lists(
    st.sampled_from(["a,b", '"two\nlines",b', '"q ""x""",b', "", ",", "a", "a,b,c", '"a" b,c']), max_size=12
)


@FUZZ
@given(records=RECORDS)
def test_every_record_of_a_table_is_a_row_a_fault_or_a_blank(tmp_path: Path, records: list[str]) -> None:
    source = opened(tmp_path / "a.csv", ("prompt,completion\n" + "".join(one + "\n" for one in records)).encode())
    if source is None:
        assert not any(record.strip(",") for record in records)
        return
    found = list(source.rows("train"))
    assert len(found) + source.blank_lines.get("a.csv", 0) == len(records)
    whole = [
        next(csv.reader([record])) for record in records if record.count(",") == 1 and record not in (",", '"a" b,c')
    ]
    assert [row.user_text for row in found if isinstance(row, Row)] == [cells[0] for cells in whole]


@FUZZ
@given(lines=st.lists(st.sampled_from([b"Who goes there?", "Brücke".encode(), b"", b" ", b"\xff", b"{"]), max_size=20))
def test_every_line_of_a_text_is_in_one_row_a_fault_or_blank(tmp_path: Path, lines: list[bytes]) -> None:
    source = opened(tmp_path / "a.txt", b"\n".join(lines) + b"\n")
    said = [line for line in lines if line.strip()]
    if source is None:
        assert not said
        return
    found = list(source.rows("train"))
    if "per line" in source.why:
        assert len(found) + source.blank_lines.get("a.txt", 0) == len(lines)
    else:  # the lines of good paragraphs come back in order, each other paragraph is one fault
        groups = [list(group) for blank, group in itertools.groupby(lines, lambda line: not line.strip()) if not blank]
        assert len(found) == len(groups)
        good = [b"\n".join(group).decode() for group in groups if b"\xff" not in group]
        assert [row.messages[0]["content"] for row in found if isinstance(row, Row)] == good


LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES |= st.sampled_from(
    ["", " ", "hi", "user", "human", "gpt", "none", "{}", "[]", '{"name": "open"}', "<tool_call>{"]
)
INNER = ["role", "content", "from", "value", "name", "function", "arguments", "tool_calls", "id", "parameters", "open"]
INNER += ["properties", "required", "enum", "type", "items", "weight"]
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=10,
)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw something right nine times of ten, else anything that JSON can write."""
    return st.one_of(*[good] * 9, JSON)


TEXT = mostly(st.sampled_from(["hi", "Geh!", "none", '{"name": "open"}', "<tool_call>{"]))
CALL = mostly(
    st.fixed_dictionaries(
        {"name": st.just("open"), "arguments": mostly(st.dictionaries(st.just("a"), JSON, max_size=1))}
    )
)
SCHEMA = st.fixed_dictionaries(
    {}, optional={"properties": st.dictionaries(st.just("a"), mostly(st.just({})), max_size=1)}
)
TOOLS = st.lists(st.fixed_dictionaries({"name": st.just("open"), "parameters": mostly(SCHEMA)}), max_size=1)


def talk(role: str, content: str, names: tuple[str, str, str, str]) -> st.SearchStrategy[Any]:
    """Draw a conversation whose turns have these keys, from a user to an assistant, with anything in between."""
    calls = {"tool_calls": mostly(st.lists(CALL, max_size=2))}
    first = st.fixed_dictionaries({role: st.just(names[0]), content: TEXT})
    turn = st.fixed_dictionaries({role: mostly(st.sampled_from(names)), content: TEXT}, optional=calls)
    last = st.fixed_dictionaries({role: st.just(names[1])}, optional={content: TEXT} | calls)
    return st.tuples(first, st.lists(mostly(turn), max_size=2), last).map(lambda parts: [parts[0], *parts[1], parts[2]])


KEYS = {field: TEXT for form in FORMS.values() for field in form.fields}
KEYS["messages"] = mostly(talk("role", "content", ("user", "assistant", "tool", "system")))
KEYS["conversations"] = mostly(talk("from", "value", ("human", "gpt", "observation", "function_call")))
KEYS |= {key: mostly(TOOLS | TOOLS.map(json.dumps)) for key in ("tools", "functions", "function")}
KEYS |= {
    "call": mostly(CALL | st.lists(CALL, max_size=2)),
    "history": mostly(st.lists(st.tuples(TEXT, TEXT), max_size=2)),
}
KEYS["question"] = mostly(
    st.lists(st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}), max_size=2))
)
ALTERNATIVES = st.dictionaries(st.just("a"), mostly(st.lists(JSON, max_size=2)), max_size=1)
KEYS["ground_truth"] = mostly(st.lists(st.fixed_dictionaries({"open": ALTERNATIVES}), max_size=2))
KEYS["id"] = st.sampled_from(["simple_0", "irrelevance_0"])
FIELDS = [(needs, form.also) for form in FORMS.values() for needs in form.needs]
ROWS = st.sampled_from(FIELDS).flatmap(
    lambda keys: st.fixed_dictionaries(
        {field: KEYS[field] for field in keys[0]}, optional={field: KEYS[field] for field in keys[1]}
    )
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(values=st.lists(ROWS, min_size=1, max_size=4))
def test_arbitrary_rows_of_every_form_are_rows_that_can_be_rendered_or_faults(
    tmp_path: Path, llama: Any, values: list[Any]
) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "open", "parameters": {"properties": {"a": {}}}}]')
    source = opened(tmp_path / "a.jsonl", "".join(json.dumps(value) + "\n" for value in values).encode())
    assert source is not None
    found = list(source.rows("train"))
    assert len(found) == len(values)
    rows = [row for row in found if isinstance(row, Row)]
    for row in rows:
        json.dumps([row.messages, row.tools], allow_nan=False)
        assert row.messages[-1]["role"] == "assistant"
        assert all(isinstance(message["content"], str) for message in row.messages)
    assert len(list(prepared_rows(rows, llama.tokenizer, llama.recipe))) == len(rows)


@FUZZ
@given(
    cells=st.lists(
        st.tuples(st.text(max_size=5), st.sampled_from(["none", "{", '{"name": "open"}', "[]", ""])), max_size=4
    )
)
def test_arbitrary_cells_of_a_mapped_table_are_rows_or_faults(tmp_path: Path, cells: list[tuple[str, str]]) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "open", "parameters": {}}]')
    written = io.StringIO()
    csv.writer(written).writerows([("question", "answer"), *cells])
    content = written.getvalue().encode("utf-8", "replace")
    source = opened(tmp_path / "a.csv", content, mapping={"user": "question", "call": "answer"})
    if source is not None:
        assert len(list(source.rows("train"))) + source.blank_lines.get("a.csv", 0) == len(cells)


MARKS = ["<tool_call>", "</tool_call>", "<start_function_call>call:", "<end_function_call>", "<escape>", "f", "{", "}"]
MARKS += ["[", "]", ":", ",", ";", '"', "<|python_tag|>", '{"name": "f", "parameters": {}}', "1", " ", "\n", "none"]


@FUZZ
@given(st.lists(st.sampled_from(MARKS), max_size=20).map("".join) | st.text(max_size=40))
def test_any_answer_reads_as_one_of_the_four_kinds(text: str) -> None:
    for style in ("system-block", "template"):
        answer = parse_answer(text, style)
        assert answer.kind in ("call", "none", "broken", "prose")
        assert (answer.kind == "call") == bool(answer.calls)


@pytest.mark.parametrize("opening", ["[", "{a:", '[{"a":'])
def test_an_endlessly_nested_answer_is_broken_and_no_crash(opening: str) -> None:
    deep = opening * 100_000
    for text in (deep, f"<tool_call>{deep}", f"<start_function_call>call:f{{a:{deep}", f'{{"name": {deep}'):
        assert parse_answer(text, "template").kind in ("broken", "prose")
