"""Plain text for a model without a chat template: trained whole, with a contract; conversations are refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlx_sentis.prepare.checks import check_contract, check_rows
from mlx_sentis.prepare.run import look_at_data, run_prepare
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl
from weights_bridge.settings import DataSettings

TEXTS = [f"The river runs past mill number {n}.\nNobody lives there." for n in range(20)]


@pytest.fixture(scope="module")
def bare(gemma: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The toy without its chat template."""
    folder = tmp_path_factory.mktemp("bare") / "model"
    shutil.copytree(gemma.folder, folder, ignore=shutil.ignore_patterns("chat_template.jinja"))
    return replace(gemma, folder=folder, tokenizer=load_tokenizer(folder), recipe=make_recipe(folder))


@pytest.fixture(scope="module")
def run(bare: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run prepared for it."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "story.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    run_prepare(str(folder / "story.txt"), str(bare.folder), folder / "run", DataSettings())
    return folder / "run"


def test_every_token_of_the_texts_is_trained(bare: Any, run: Path) -> None:
    rows = read_jsonl(run / "data" / "train.jsonl")
    assert len(rows) == 12
    end = bare.tokenizer.decode([bare.recipe["stop_ids"][0]])
    for row in rows:
        assert row["messages"][0]["content"] in TEXTS
        assert row["text"] == row["messages"][0]["content"] + end
        assert row["ids"] == bare.tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        assert row["trained"] == [[1, len(row["ids"])]]  # nothing comes before the first to predict it
    assert all(result.passed for result in check_rows(rows, bare.folder, bare.recipe))


def test_rows_and_prompt_are_those_of_the_same_model_with_a_template(gemma: Any, run: Path, tmp_path: Path) -> None:
    run_prepare(str(run.parent / "story.txt"), str(gemma.folder), tmp_path / "run", DataSettings())
    for split in ("train", "valid", "calibration", "holdout"):
        one, other = (read_jsonl(place / "data" / f"{split}.jsonl") for place in (run, tmp_path / "run"))
        assert one == other
    without, framed = (read_json(place / "prompt_contract.json") for place in (run, tmp_path / "run"))
    assert [without[key] for key in ("kind", "rendered", "ids", "stop_ids", "pieces")] == [
        framed[key] for key in ("kind", "rendered", "ids", "stop_ids", "pieces")
    ]


def test_recipe_and_contract_say_that_there_is_no_template(bare: Any, run: Path) -> None:
    contract = read_json(run / "prompt_contract.json")
    assert read_json(run / "recipe.json")["template"]["source"] == "none"
    assert (contract["kind"], contract["template_sha256"]) == ("plain-text", None)
    assert all(result.passed for result in check_contract(bare.folder, contract))


def test_a_template_that_came_later_fails_the_contract_by_name(gemma: Any, run: Path) -> None:
    results = check_contract(gemma.folder, read_json(run / "prompt_contract.json"))
    assert "template_sha256" in [result.where for result in results if not result.passed]


UNCUT = DataSettings(holdout_share=0, valid_share=0, calibration_share=0)
FRAMED = {
    "messages": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
    "prompt and completion": {"prompt": "Hi", "completion": "Ho"},
    "command": {"user": "Hi", "call": None},
}


@pytest.mark.parametrize("form", FRAMED)
def test_conversations_are_refused_before_any_work_and_by_their_place(
    bare: Any, jsonl: Any, tmp_path: Path, form: str
) -> None:
    folder = jsonl([FRAMED[form]], "set/train.jsonl").parent
    jsonl([{"tools": [{"name": "wave"}]}] if form == "command" else [{"tools": []}], "set/tools.json")
    for stage in (
        lambda: look_at_data(str(folder), bare.recipe, UNCUT),
        lambda: run_prepare(str(folder), str(bare.folder), tmp_path / "run", UNCUT),
    ):
        with pytest.raises(StageError, match=r"set/train\.jsonl:1: a conversation, and .*model has no chat") as caught:
            stage()
        assert "--template FILE; plain texts need none" in caught.value.hint
    assert not (tmp_path / "run").exists()
