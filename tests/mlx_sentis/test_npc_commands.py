"""The shipped demo data: balanced, consistently labelled, and held-out rows that really are held out."""

from __future__ import annotations

import json
import re
from collections import Counter
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import Any

import pytest

FOLDER = files("mlx_sentis") / "data" / "npc-commands"
SPLITS = {"train": (300, 60), "valid": (40, 8), "calibration": (60, 20), "holdout": (100, 40)}  # rows, without a call
OTHERS = ("train", "valid", "calibration")
DETERMINERS = re.compile(r"(the|an?|any|some|this|that|these|those|my|your|our|his|her|its|their)\b")

# One word swapped in a frame of four words scores 0.75, in a longer one more: a bound of 0.7 catches every such edit.
# The worst held-out row scores 0.63 (0.62 against training rows).
NEAR_DUPLICATE = 0.7

# No answer has fewer than 2.5 characters per SmolLM2 token (longest: 65 characters, 22 tokens), so 75 are at most 30.
LONGEST_ANSWER = 75

NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
NUMBERS |= {"ten": 10, "eleven": 11, "twelve": 12}
NUMBERS |= {"thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18}
NUMBERS |= {"nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70}
NUMBERS |= {"eighty": 80, "ninety": 90, "hundred": 100, "a": 1, "couple": 2, "dozen": 12}
SPOKEN = {"half a minute": 30, "quarter of a minute": 15, "a minute and a half": 90, "two and a half minutes": 150}


@cache
def tools() -> dict[str, dict[str, Any]]:
    """Return tool name → parameter schema."""
    listed = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))["tools"]
    return {tool["function"]["name"]: tool["function"]["parameters"] for tool in listed}


@cache
def rows(split: str) -> list[dict[str, Any]]:
    """Return the rows of a split as they stand in the file."""
    return [json.loads(line) for line in (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]


def calls(split: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (user text, tool name, arguments) of the rows that have a call."""
    return [(row["user"], row["call"]["name"], row["call"]["arguments"]) for row in rows(split) if row["call"]]


def faults_against(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """Return what is wrong with `arguments` under the part of JSON Schema that tools.json uses."""
    faults = [f"{name}: missing" for name in schema["required"] if name not in arguments]
    for name, value in arguments.items():
        wanted: dict[str, Any] = schema["properties"].get(name, {})
        if not wanted:
            faults.append(f"{name}: unknown")
        elif type(value) is not {"string": str, "integer": int}[wanted["type"]]:
            faults.append(f"{name}: found {value!r}, wanted {wanted['type']}")
        elif "enum" in wanted and value not in wanted["enum"]:
            faults.append(f"{name}: {value!r} is not one of {wanted['enum']}")
        elif "minimum" in wanted and value < wanted["minimum"]:
            faults.append(f"{name}: {value} is below {wanted['minimum']}")
    return faults


def number(word: str) -> int:
    """Return the value of `12`, `twelve` or `thirty-five`."""
    return int(word) if word.isdigit() else sum(NUMBERS[part] for part in word.split("-"))


def spoken_seconds(text: str) -> int:
    """Return the time a text names, in seconds."""
    for phrase, seconds in SPOKEN.items():
        if phrase in text.lower():
            return seconds
    found = re.search(r"(\w+(?:-\w+)?)(?: of| more)?[ -](sec|minute)", text.lower())
    assert found, text
    return number(found[1]) * (60 if found[2] == "minute" else 1)


def frame(row: dict[str, Any]) -> list[str]:
    """Return the words of a row's text with argument values and numbers replaced by `@`."""
    text = row["user"].lower()
    for value in row["call"]["arguments"].values() if row["call"] else ():
        text = re.sub(rf"\b{re.escape(str(value))}\b", "@", text)
    return ["@" if word in NUMBERS and word != "a" else word for word in re.findall(r"[a-z0-9'@]+", text)]


def likeness(one: list[str], other: list[str]) -> float:
    """Return how alike two frames are, 0 to 1: the larger of word-set Jaccard and word-order ratio."""
    jaccard = len(set(one) & set(other)) / len(set(one) | set(other))
    return max(jaccard, SequenceMatcher(None, one, other, autojunk=False).ratio())


@pytest.mark.parametrize("split", SPLITS)
def test_each_split_has_the_rows_and_the_share_without_a_call_that_its_readme_names(split: str) -> None:
    assert (len(rows(split)), sum(row["call"] is None for row in rows(split))) == SPLITS[split]
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"`{split}\.jsonl` \| {SPLITS[split][0]} \| \S+ \| {SPLITS[split][1]} ", readme)


def test_a_fifth_of_the_training_rows_has_no_call() -> None:
    assert sum(row["call"] is None for row in rows("train")) * 5 == len(rows("train"))


@pytest.mark.parametrize(
    ("split", "each"), [("train", {40}), ("holdout", {10}), ("valid", {5, 6}), ("calibration", {6, 7})]
)
def test_tools_are_balanced(split: str, each: set[int]) -> None:
    count = Counter(name for _, name, _ in calls(split))
    assert set(count) == set(tools())
    assert set(count.values()) == each


@pytest.mark.parametrize("split", SPLITS)
def test_rows_have_the_documented_keys(split: str) -> None:
    for row in rows(split):
        assert set(row) == ({"user", "call"} if row["call"] else {"user", "call", "topic"}), row
        assert row["user"] == row["user"].strip() != ""


def test_every_tool_takes_one_or_two_arguments_and_says_what_it_does_in_a_few_words() -> None:
    listed = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))["tools"]
    assert len(listed) == len(tools()) == 6
    for tool in listed:
        assert 1 <= len(tool["function"]["parameters"]["properties"]) <= 2
        assert len(tool["function"]["description"]) <= 24  # six of them share a block of fewer than 200 tokens


@pytest.mark.parametrize("split", SPLITS)
def test_arguments_satisfy_their_tools_schema(split: str) -> None:
    for user, name, arguments in calls(split):
        assert faults_against(tools()[name], arguments) == [], user


@pytest.mark.parametrize(
    ("name", "arguments", "fault"),
    [
        ("set_light", {"state": "bright"}, "is not one of"),
        ("wait_for", {"seconds": "10"}, "wanted integer"),
        ("wait_for", {"seconds": True}, "wanted integer"),
        ("wait_for", {"seconds": 0}, "below 1"),
        ("open", {}, "missing"),
        ("open", {"thing": "gate", "how": "slowly"}, "unknown"),
    ],
)
def test_the_schema_check_refuses_wrong_arguments(name: str, arguments: dict[str, Any], fault: str) -> None:
    (found,) = faults_against(tools()[name], arguments)
    assert fault in found


def test_training_uses_every_listed_state_and_emote_about_equally() -> None:
    for name, key in (("set_light", "state"), ("play_emote", "emote")):
        count = Counter(arguments[key] for _, tool, arguments in calls("train") if tool == name)
        assert set(count) == set(tools()[name]["properties"][key]["enum"])
        assert max(count.values()) - min(count.values()) <= 1
        assert set(count) == {arguments[key] for _, tool, arguments in calls("holdout") if tool == name}


def test_training_names_forty_different_places_things_and_items_each() -> None:
    for name in ("move_to", "open", "give_item"):
        assert len({str(arguments) for _, tool, arguments in calls("train") if tool == name}) == 40


@pytest.mark.parametrize("split", SPLITS)
def test_a_free_text_argument_is_the_players_own_words_without_the_article(split: str) -> None:
    for user, name, arguments in calls(split):
        if name in ("move_to", "open", "give_item"):
            (value,) = arguments.values()
            assert re.search(rf"\b{re.escape(value)}\b", user.lower()), user
            assert value == value.lower() and not DETERMINERS.match(value), user
            assert re.fullmatch(r"[a-z]+('s)?( [a-z]+){0,2}", value), user


@pytest.mark.parametrize("split", SPLITS)
def test_seconds_are_the_time_the_player_names(split: str) -> None:
    for user, name, arguments in calls(split):
        if name == "wait_for":
            assert arguments["seconds"] == spoken_seconds(user), user


def test_no_text_occurs_twice_in_any_split() -> None:
    count = Counter(" ".join(re.findall(r"\w+", row["user"].lower())) for split in SPLITS for row in rows(split))
    assert [text for text, times in count.items() if times > 1] == []


@pytest.mark.parametrize("split", OTHERS)
def test_no_held_out_row_is_a_light_edit_of_another_splits_row(split: str) -> None:
    known = [(frame(row), row["user"]) for row in rows(split)]
    for row in rows("holdout"):
        score, nearest = max((likeness(frame(row), words), user) for words, user in known)
        assert score < NEAR_DUPLICATE, f"{row['user']!r} is {score:.2f} like {nearest!r}"


def test_the_likeness_bound_catches_another_argument_and_one_swapped_word() -> None:
    longer = [row for row in rows("train") if len(frame(row)) >= 4]
    assert len(longer) > 180
    for row in longer:
        words = frame(row)
        assert likeness(words, words) == 1
        for place in range(len(words)):
            edited = [*words[:place], "swapped", *words[place + 1 :]]
            assert likeness(words, edited) >= NEAR_DUPLICATE, row["user"]
    known = {"user": "Walk to the old mill.", "call": {"name": "move_to", "arguments": {"place": "old mill"}}}
    renamed = {"user": "walk to the bank", "call": {"name": "move_to", "arguments": {"place": "bank"}}}
    assert likeness(frame(known), frame(renamed)) == 1


def test_held_out_rows_without_a_call_are_on_topics_no_other_split_has() -> None:
    topics = {split: {row["topic"] for row in rows(split) if row["call"] is None} for split in SPLITS}
    assert len(topics["train"]) >= 12 and len(topics["holdout"]) >= 15
    for split in OTHERS:
        assert topics["holdout"] & topics[split] == set()


@pytest.mark.parametrize("split", SPLITS)
def test_an_answer_fits_in_thirty_tokens(split: str) -> None:
    assert max(len(json.dumps(row["call"])) for row in rows(split)) <= LONGEST_ANSWER
