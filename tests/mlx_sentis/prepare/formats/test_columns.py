"""The map from fields to columns: what it takes, and how a wrong one is told."""

from __future__ import annotations

import pytest

from mlx_sentis.prepare.formats.columns import FIELDS, mapped_form, read_map, renamed, suggestion
from weights_bridge.errors import StageError, UsedWronglyError


def test_entries_become_a_map() -> None:
    assert read_map(["user=Question", " assistant = the = answer "]) == {
        "user": "Question",
        "assistant": "the = answer",
    }
    assert read_map([]) == {}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["user"], "map 'user': wanted FIELD=COLUMN"),
        (["=question"], "wanted FIELD=COLUMN"),
        (["user="], "wanted FIELD=COLUMN"),
        (["users=question"], "unknown field 'users'"),
        (["user=a", "user=b"], "user is mapped to a already"),
    ],
)
def test_a_wrong_entry_is_a_mistake_on_the_command_line(entries: list[str], message: str) -> None:
    with pytest.raises(UsedWronglyError) as caught:
        read_map(entries)
    assert message in caught.value.message and caught.value.exit_code == 2
    assert "users" not in entries[0] or "did you mean user?" in caught.value.hint


def test_a_mapped_column_takes_the_place_of_a_column_of_the_fields_name() -> None:
    assert renamed({"user": "ann", "q": "2+2?", "a": "4"}, {"user": "q"}) == {"a": "4", "user": "2+2?"}


def test_the_form_is_the_one_that_has_all_mapped_fields() -> None:
    keys = ["q", "a", "output"]
    assert mapped_form("a.csv", keys, {"instruction": "q"}, None).name == "alpaca"  # its output has its own name
    assert mapped_form("a.csv", keys, {"user": "q", "call": "a"}, None).name == "command"
    assert mapped_form("a.csv", keys, {"text": "a"}, None).name == "text"
    with pytest.raises(StageError, match="lacks one of them"):
        mapped_form("a.csv", keys, {"text": "a"}, "alpaca")


def test_every_field_can_be_mapped_to_itself() -> None:
    """A field that no form would have could never be used."""
    for field in FIELDS:
        assert read_map([f"{field}={field}"]) == {field: field}


@pytest.mark.parametrize("keys", [(), ("a", "b"), ("question",), ("",), ("messages",)])
def test_nothing_is_suggested_when_nothing_comes_to_mind(keys: tuple[str, ...]) -> None:
    assert suggestion(keys) == ""


def test_a_suggestion_can_be_pasted_into_a_shell() -> None:
    assert suggestion(("Human", "the answer")) == ""
    assert suggestion(("Query", "RESPONSE")) == "perhaps --map user=Query --map assistant=RESPONSE"
    assert suggestion(("INSTRUCTION", " output ")) == "perhaps --map instruction=INSTRUCTION --map 'output= output '"
