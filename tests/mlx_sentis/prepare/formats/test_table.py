"""CSV and TSV: what spreadsheets and libraries write is read, and every record is a row, a blank or a fault."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_sentis.prepare.sources import Fault, Source, open_source
from weights_bridge.errors import StageError


def table(tmp_path: Path, text: str | bytes, name: str = "rows.csv", **more: Any) -> Source:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_source(path, "system-block", **more)


def read(source: Source) -> list[Any]:
    """Return user and assistant text of each row, or the fault behind the file's name."""
    return [
        str(row).partition(f"{source.name}:")[2]
        if isinstance(row, Fault)
        else tuple(m["content"] for m in row.messages)
        for row in source.rows("train")
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_byte_order_mark_line_ends_and_separators_change_no_row(
    tmp_path: Path, end: str, mark: bytes, name: str, separator: str
) -> None:
    lines = [("instruction", "input", "output"), ("Öffne", "Tor", "ja"), ("sag", "", '"x, y; z"\ta'.replace("\t", " "))]
    quoted = [separator.join('"' + cell.replace('"', '""') + '"' for cell in line) for line in lines]
    source = table(tmp_path, mark + end.join(quoted).encode() + end.encode(), name)
    assert read(source) == [("Öffne\n\nTor", "ja"), ("sag", '"x, y; z" a')]
    assert source.format == ("tsv" if separator == "\t" else "csv")
    assert source.why.startswith("columns instruction, input, output, alpaca rows")


def test_a_quoted_line_end_is_part_of_its_cell_and_numbers_go_by_lines(tmp_path: Path) -> None:
    source = table(tmp_path, 'user,assistant\n"two\nlines","a\r\nb"\n\nx,y,z\nq,r\n')
    assert read(source) == [("two\nlines", "a\r\nb"), "6: found 3 cells, wanted 2: user, assistant", ("q", "r")]
    assert source.blank_lines == {"rows.csv": 1}
    assert [row.source.rpartition(":")[2] for row in source.rows("train")] == ["2", "6", "7"]


def test_records_without_any_text_are_blank(tmp_path: Path) -> None:
    source = table(tmp_path, "user,assistant\na,b\n,\n , \n\n")
    assert (read(source), source.blank_lines) == ([("a", "b")], {"rows.csv": 3})


def test_a_map_names_the_columns_and_the_others_are_left_aside(tmp_path: Path) -> None:
    text = "id,Question,Answer,user\n1,2+2?,4,ann\n"
    source = table(tmp_path, text, mapping={"user": "Question", "assistant": "Answer"})
    assert read(source) == [("2+2?", "4")]
    assert source.why == "mapped: user is Question, assistant is Answer"


def test_a_column_that_is_not_there_lists_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="map names columns that are not there") as caught:
        table(tmp_path, "question,answer\na,b\n", mapping={"user": "questoin", "assistant": "answer"})
    assert "unknown column 'questoin'; did you mean question? known: answer, question" in caught.value.message


def test_a_field_that_is_needed_and_not_mapped_is_told(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="user mapped, call or assistant needed too") as caught:
        table(tmp_path, "question,answer\na,b\n", mapping={"user": "question"})
    assert caught.value.hint == "--map call=COLUMN, or --map assistant=COLUMN; columns: question, answer"


def test_fields_of_different_forms_cannot_be_mapped_together(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no format has the fields user, output"):
        table(tmp_path, "question,answer\na,b\n", mapping={"user": "question", "output": "answer"})


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("question,answer", "perhaps --map user=question --map assistant=answer"),
        ("Instruction,Output", "perhaps --map instruction=Instruction --map output=Output"),
        ("instuction,output", "perhaps --map instruction=instuction"),
        ("My Prompt,response,query", "perhaps --map user=query --map assistant=response"),
    ],
)
def test_columns_of_no_form_are_named_with_the_map_that_is_probably_meant(
    tmp_path: Path, header: str, meant: str
) -> None:
    with pytest.raises(StageError) as caught:
        table(tmp_path, f"{header}\n{header}\n")
    assert f"rows.csv:1: found {', '.join(sorted(header.split(',')))}, wanted" in caught.value.message
    assert caught.value.hint == f"{meant}, or rename them in the file"


def test_calls_and_messages_are_given_as_their_json_text(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "open", "parameters": {}}]')
    cells = [["user", "call"], ["open", '{"name": "open", "arguments": {}}'], ["sing", "none"], ["hm", ""], ["x", "{"]]
    written = io.StringIO()
    csv.writer(written).writerows(cells)
    found = list(table(tmp_path, written.getvalue()).rows("train"))
    assert [row.reason if isinstance(row, Fault) else row.kind for row in found] == [
        "open",
        "none",
        "call: the text is empty; write none where no tool fits",
        "call: the text is not JSON: Expecting property name enclosed in double quotes (column 2)",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "no rows, the file is empty"),
        (b"\n\n", "no rows, the file is empty"),
        (b"user,assistant\n\n", "no rows below the header"),
        (b"user,user\na,b\n", "the header names user twice"),
        (b'user,"assistant\n', "1: a quote is never closed, so the rest of the line is one cell"),
        (b"user,assist\xe4nt\na,b\n", "1: not UTF-8; save the table again as CSV UTF-8"),
        ("user,assistant\na,b\n".encode("utf-16"), "UTF-16 text, wanted UTF-8"),
    ],
)
def test_a_table_that_is_none_is_named(tmp_path: Path, text: bytes, reason: str) -> None:
    with pytest.raises(StageError) as caught:
        table(tmp_path, text)
    assert reason in caught.value.message


def test_bad_quotes_and_bad_bytes_are_faults_of_their_record(tmp_path: Path) -> None:
    text = b'user,assistant\na,"b" c"\nd,\xe4\ne,f\n"g,h\n'
    assert read(table(tmp_path, text)) == [
        "2: a quote inside a quoted cell is not doubled (',' expected after '\"')",
        "3: not UTF-8; save the table again as CSV UTF-8",
        ("e", "f"),
        "5: a quote is never closed, so the rest of the line is one cell",
    ]


def test_an_endless_cell_stops_the_file_and_says_so(tmp_path: Path) -> None:
    text = 'user,assistant\na,b\n"' + "x\n" * 70_000 + "c,d\n"
    found = read(table(tmp_path, text))
    assert found[0] == ("a", "b") and len(found) == 2
    assert found[1].startswith("3: a cell is longer than 131072 characters (a quote never closed?); nothing behind it")


def test_a_column_without_a_name_gets_its_number(tmp_path: Path) -> None:
    """`to_csv` of pandas writes its index under an empty name."""
    source = table(tmp_path, ",user,assistant\n0,a,b\n")
    assert read(source) == [("a", "b")]
    assert source.parts["train"].columns == ("column 1", "user", "assistant")


CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6), st.sampled_from([csv.excel, csv.unix_dialect]))
def test_what_pythons_writer_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str]], dialect: Any
) -> None:
    written = io.StringIO()
    csv.writer(written, dialect).writerows([("prompt", "completion"), *cells])
    path = tmp_path_factory.mktemp("table") / "a.csv"
    path.write_bytes(written.getvalue().encode())
    wanted = [(a, b) for a, b in cells if a.strip() and b.strip()]
    try:
        source = open_source(path, "system-block")
    except StageError as error:
        assert "no rows below the header" in error.message and not wanted
        return
    found = list(source.rows("train"))
    assert [tuple(m["content"] for m in row.messages) for row in found if not isinstance(row, Fault)] == wanted
    assert len(found) + source.blank_lines.get("a.csv", 0) == len(cells)


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_tsv_without_a_tab_names_its_separator(tmp_path: Path, separator: str) -> None:
    text = separator.join(["instruction", "output"]) + "\n" + separator.join(["a", "b"]) + "\n"
    with pytest.raises(
        StageError, match=f"rows.tsv:1: no tab in the header, it is separated by '{separator}'"
    ) as caught:
        table(tmp_path, text, "rows.tsv")
    assert caught.value.hint == "name it .csv, or say --format csv"
    assert len(read(table(tmp_path, text, "rows.csv"))) == 1
    assert len(read(table(tmp_path, text, "rows.tsv", format="csv"))) == 1
