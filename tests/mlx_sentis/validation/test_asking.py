"""Out-of-distribution prompts: given, asked for once, or generic."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mlx_sentis.validation.asking import QUESTION, ood_prompts
from weights_bridge.errors import StageError, UsedWronglyError


def given(*values: str) -> list[str] | None:
    return ood_prompts(values, may_ask=True, say=pytest.fail)


def asked(replies: str) -> tuple[list[str] | None, list[str]]:
    said: list[str] = []
    return ood_prompts([], may_ask=True, say=said.append, answers=io.StringIO(replies)), said


def test_prompts_are_taken_verbatim_from_texts_and_files(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_bytes(b"\xef\xbb\xbf Go to the mill. \r\n\r\nWait.\r\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Two\\nlines"}\n\n{"user": "Open it", "call": null}\n')
    (tmp_path / "array.json").write_text('["Sit.", "Stand."]')
    found = given("A text, as it is ", *(str(tmp_path / name) for name in ("lines.txt", "rows.jsonl", "array.json")))
    assert found == ["A text, as it is ", " Go to the mill. ", "Wait.", "Two\nlines", "Open it", "Sit.", "Stand."]
    (tmp_path / "array.json").write_text('{"prompt": "Sit."}')
    with pytest.raises(StageError, match="wanted an array of texts"):
        given(str(tmp_path / "array.json"))


def test_default_means_generic_prompts_and_stands_alone() -> None:
    assert given("default") is None
    with pytest.raises(UsedWronglyError, match="default beside other prompts"):
        given("default", "Go.")


def test_a_file_that_is_not_there_is_no_prompt() -> None:
    with pytest.raises(UsedWronglyError, match=r"prompts\.txt: no such file"):
        given("prompts.txt")
    assert given("What is in prompts.txt") == ["What is in prompts.txt"]


def test_a_text_too_long_for_a_files_name_is_a_prompt() -> None:
    for text in ("Walk to the mill and " * 15, "x" * 300, "a/" * 3000):
        assert given(text) == [text]


def test_folders_and_nul_characters_are_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(UsedWronglyError, match="is a folder"):
        given(str(tmp_path))
    for text in ("a\0b", "a\nb\0"):
        with pytest.raises(UsedWronglyError, match="NUL character"):
            given(text)


def test_empty_texts_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(StageError, match="no prompt in it"):
        given(str(tmp_path / "empty.txt"))
    with pytest.raises(UsedWronglyError, match="empty prompt"):
        given("  ")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": 3}\n')
    with pytest.raises(StageError, match=r"rows\.jsonl:2: no text under prompt"):
        given(str(tmp_path / "rows.jsonl"))


def test_a_person_is_asked_once_and_an_empty_line_ends() -> None:
    assert asked("Go.\nWait.\n\nnot read\n") == (["Go.", "Wait."], [QUESTION])
    assert asked("Go.") == (["Go."], [QUESTION])


@pytest.mark.parametrize("reply", ["", "\n", "default\n", "default\nmore\n"])
def test_no_reply_or_default_means_generic_prompts(reply: str) -> None:
    assert asked(reply) == (None, [QUESTION])


def test_nobody_is_asked_where_nobody_can_answer() -> None:
    assert ood_prompts([], may_ask=False, say=pytest.fail) is None
