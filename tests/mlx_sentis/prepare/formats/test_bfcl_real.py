"""The real leaderboard: every row loads, every ground-truth call survives render → parse, none is lost silently."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from tool_templates import STYLES, write_tool_model

from mlx_sentis.demo.toy import write_toy_model
from mlx_sentis.packages import PinnedWheel, download
from mlx_sentis.prepare.answers import parse_answer
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import Fault, open_source
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError
from weights_bridge.files import read_jsonl, sha256_of

pytestmark = pytest.mark.slow

SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
WHEEL = PinnedWheel("bfcl-eval", "2026.3.23", SHA256, ".json", 2)  # Apache-2.0; only unpacked
INSIDE = "bfcl_eval/data/"
# category: rows, ground-truth calls, rows whose answer contradicts its own schema or that have no tools
READ = {
    "simple_python": (400, 400, 0),
    "multiple": (200, 200, 0),
    "parallel": (200, 540, 0),
    "parallel_multiple": (200, 607, 2),
    "live_simple": (258, 258, 0),
    "live_multiple": (1053, 1053, 16),
    "live_parallel": (16, 39, 0),
    "live_parallel_multiple": (24, 55, 1),
    "irrelevance": (240, 0, 0),
    "live_irrelevance": (884, 0, 4),
    "simple_java": (100, 100, 10),
    "simple_javascript": (50, 50, 7),
}
REFUSED = {
    "live_relevance": (16, "no answer with this id"),
    "memory": (155, "no function"),
    "web_search": (100, "no function"),
    "multi_turn_base": (200, "no function"),
    "multi_turn_long_context": (200, "no function"),
    "multi_turn_miss_func": (200, "no function"),
    "multi_turn_miss_param": (200, "no function"),
}


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of question files, with `possible_answer/` inside."""
    folder = tmp_path_factory.mktemp("bfcl")
    wheel = download(WHEEL, folder)
    assert sha256_of(wheel) == WHEEL.sha256
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return folder / INSIDE


@pytest.fixture(scope="module", params=["system-block", *STYLES])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("model") / request.param
    if request.param == "system-block":
        write_toy_model(folder, "llama")
    else:
        write_tool_model(folder, request.param)
    return request.param, load_tokenizer(folder), make_recipe(folder)


def acceptable(value: Any, alternatives: Any) -> bool:
    """Tell whether a value is one of the leaderboard's alternatives, or an object made of its keys' alternatives."""
    if value in alternatives or (value == [] and not alternatives):
        return True
    for one in alternatives:
        pairs = [(value, one)] if isinstance(value, dict) else list(zip(value, one, strict=False)) if one else []
        if pairs and all(acceptable_object(mine, other) for mine, other in pairs):
            return True
    return False


def acceptable_object(value: Any, alternatives: Any) -> bool:
    given = isinstance(alternatives, dict) and all(acceptable(item, alternatives[key]) for key, item in value.items())
    return given and all("" in several for key, several in alternatives.items() if key not in value)


def file_of(questions: Path, category: str) -> Path:
    return questions / f"BFCL_v4_{category}.json"


def truths(questions: Path, category: str) -> int:
    """Return how many calls the answer file has, counted without our reader."""
    file = questions / "possible_answer" / f"BFCL_v4_{category}.json"
    return sum(len(one["ground_truth"]) for one in read_jsonl(file)) if file.is_file() else 0


def test_every_file_is_read_or_refused_and_none_is_forgotten(questions: Path) -> None:
    found = {file.stem.removeprefix("BFCL_v4_") for file in questions.glob("BFCL_v4_*.json")}
    assert found == {*READ, *REFUSED, "format_sensitivity"}
    with pytest.raises(StageError, match="one JSON value over several lines"):  # a list of ids, no questions
        open_source(file_of(questions, "format_sensitivity"), "template")


@pytest.mark.parametrize("category", READ)
def test_every_row_loads_and_every_ground_truth_call_reads_back_as_it_was_rendered(
    questions: Path, model: tuple[str, Any, dict[str, Any]], category: str
) -> None:
    style, tokenizer, recipe = model
    source = open_source(file_of(questions, category), recipe["tools"])
    rows = list(source.rows("train"))
    assert [row for row in rows if isinstance(row, Fault)] == []
    rows = [row for row in rows if isinstance(row, Row)]
    survived = declined = 0
    for row, found in zip(rows, prepared_rows(rows, tokenizer, recipe), strict=True):
        assert isinstance(found, Prepared), found
        first, stop = found.trained[-1]
        answer = parse_answer(tokenizer.decode(found.ids[first : stop - 1]), recipe["tools"])
        same = [mine.same_as(other) for mine, other in zip(answer.calls, row.calls, strict=True)]
        assert all(same)
        survived += len(same)
        declined += answer.kind == "none"
    counts = f"{len(rows):5} rows {survived:5} calls {declined:5} none {len(source.remarks):3} remarks"
    print(f"{style:14} {category:24} {counts}")
    assert (len(rows), survived, len(source.remarks)) == READ[category]
    assert survived == truths(questions, category)
    assert declined == (len(rows) if "irrelevance" in category else 0)


@pytest.mark.parametrize("category", [category for category in READ if "irrelevance" not in category])
def test_what_is_trained_is_what_the_answer_file_accepts(questions: Path, category: str) -> None:
    """Held against the file itself by a checker of its own: each value is an alternative, each gap may be one."""
    answers = {
        one["id"]: one["ground_truth"]
        for one in read_jsonl(questions / "possible_answer" / file_of(questions, category).name)
    }
    asked = read_jsonl(file_of(questions, category))
    rows = list(open_source(file_of(questions, category), "template").rows("train"))
    for one, row in zip(asked, rows, strict=True):
        assert isinstance(row, Row)
        for call, truth in zip(row.calls, answers[one["id"]], strict=True):
            assert acceptable_object(call.arguments, truth[call.name]), (one["id"], call, truth)


@pytest.mark.parametrize("category", REFUSED)
def test_what_cannot_be_read_is_one_fault_per_row_with_its_reason(questions: Path, category: str) -> None:
    count, reason = REFUSED[category]
    found = list(open_source(file_of(questions, category), "template").rows("train"))
    assert [isinstance(row, Fault) and row.reason.startswith(reason) for row in found] == [True] * count
