"""The prompt contract at each place that holds it against a model: every planted change fails there, by its field."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from helpers import edit_json
from tool_templates import QWEN

from mlx_sentis.demo.toy import write_toy_model
from mlx_sentis.prepare.run import run_prepare
from mlx_sentis.training.inputs import require_contract
from parity.a0 import prompt_results
from parity.commands import parity
from parity.verify import edge_a_of_run
from weights_bridge.compare import GateResult
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl, write_jsonl, write_text
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings, resolve

TOOL = {
    "name": "go",
    "description": "Go to a place.",
    "parameters": {"properties": {"place": {"type": "string"}, "haste": {"type": "integer"}}, "required": ["place"]},
}


def said(*turns: Any) -> dict[str, Any]:
    """Return a row of user and assistant turns; an assistant's turn is a text or the arguments of a call."""
    messages = []
    for number, turn in enumerate(turns):
        message: dict[str, Any] = {"role": ("user", "assistant")[number % 2], "content": turn}
        if isinstance(turn, dict):
            message |= {"content": None, "tool_calls": [{"function": {"name": "go", "arguments": turn}}]}
        messages.append(message)
    return {"messages": messages, "tools": [TOOL]}


@pytest.fixture(scope="module")
def prepared(exported: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model whose template begins with BOS and has a tools branch, and a run on it. Copy it."""
    folder = tmp_path_factory.mktemp("contract")
    model = write_toy_model(folder / "model", "llama")
    write_text(model / "chat_template.jinja", "{{- bos_token }}" + QWEN)
    train = [
        said("Go to the mill", {"place": "the mill", "haste": 2}),
        said("Sing to me", "none"),
        said("Who are you?", "A guard."),
        said("Are you there?", "I am.", "Then go to the gate", {"place": "the gate"}),
        said("Zur Brücke, bitte – 橋", {"place": "Brücke"}),
    ]
    write_jsonl(folder / "rows" / "train.jsonl", train)
    for number, split in enumerate(("valid", "calibration", "holdout")):
        write_jsonl(folder / "rows" / f"{split}.jsonl", [said(f"Walk {number} miles", {"place": f"mile {number}"})])
    run_prepare(str(folder / "rows"), str(model), folder / "run", DataSettings())
    run, graph = RunFolder(folder / "run"), exported("llama")
    shutil.copytree(model, run.path("merged"))
    run.path("onnx").mkdir()
    shutil.copyfile(graph.onnx, run.path("onnx", "model.onnx"))
    run.path("onnx", "contract.json").write_text(json.dumps(graph.contract))
    resolve(overrides=("parity.fixture_rows=1", "parity.greedy_tokens=1")).write(run.path("config.toml"))
    return folder


@pytest.fixture
def place(prepared: Path, tmp_path: Path) -> Path:
    """A copy of it; its recipe names the copied model."""
    folder = Path(shutil.copytree(prepared, tmp_path / "place"))
    edit_json(folder / "run" / "recipe.json", lambda recipe: recipe["model"].update(path=str(folder / "model")))
    return folder


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        file = model / "chat_template.jinja"
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    return change


def config(file: str, **values: Any) -> Callable[[Path], None]:
    return lambda model: edit_json(model / file, lambda document: document.update(values))


# change: how a model's directory is changed, and the field that must say so
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "one space": (replaced("<|im_start|>user\\n", "<|im_start|>user \\n"), "rendered"),
    "key order": (replaced("arguments | tojson", "arguments | tojson(sort_keys=true)"), "tool_serialisation.key_order"),
    "spacing of a call": (
        replaced("arguments | tojson", "arguments | tojson(separators=(',', ':'))"),
        "tool_serialisation.probe_answer",
    ),
    "escapes of a call": (
        replaced("arguments | tojson", "arguments | tojson(ensure_ascii=true)"),
        "tool_serialisation.probe_answer",
    ),
    "pad id": (config("tokenizer_config.json", pad_token="<start_of_turn>"), "padding.value"),
    "padding side": (config("tokenizer_config.json", padding_side="left"), "padding.side"),
    "stop id": (config("generation_config.json", eos_token_id=[2, 5]), "stop_ids"),
    "doubled BOS": (replaced("{{- bos_token }}", "{{- bos_token + bos_token }}"), "bos.count_in_prompt"),
}


def fields_of(results: list[GateResult]) -> set[str]:
    return {result.where for result in results if not result.passed}


def before_step_1(folder: Path) -> tuple[Path, Callable[[], set[str]]]:
    run = RunFolder(folder / "run")

    def check() -> set[str]:
        rows, recipe = read_jsonl(run.path("data", "train.jsonl")), read_json(run.path("recipe.json"))
        try:
            require_contract(run, rows, recipe)
        except StageError as error:
            return set(re.findall(r"FAIL contract ([\w.-]+):", error.message))
        return set()

    return folder / "model", check


def on_the_trained_checkpoint(folder: Path) -> tuple[Path, Callable[[], set[str]]]:
    run = RunFolder(folder / "run")
    return run.path("merged"), lambda: fields_of(prompt_results(run, read_json(run.path("recipe.json"))))


def at_export(folder: Path) -> tuple[Path, Callable[[], set[str]]]:
    run = RunFolder(folder / "run")
    return run.path("merged"), lambda: fields_of(edge_a_of_run(run, "tuned").results)


CHECKS = (before_step_1, on_the_trained_checkpoint, at_export)


@pytest.mark.parametrize("where", CHECKS, ids=lambda where: where.__name__)
def test_the_unchanged_model_holds_its_contract(place: Path, where: Any) -> None:
    _, check = where(place)
    assert check() == set()


@pytest.mark.parametrize("where", CHECKS, ids=lambda where: where.__name__)
@pytest.mark.parametrize("change", CHANGES)
def test_each_change_fails_each_check_and_names_its_field(place: Path, change: str, where: Any) -> None:
    alter, field = CHANGES[change]
    model, check = where(place)
    alter(model)
    assert field in check()


def test_a_recipe_that_pads_otherwise_than_the_model_is_caught_before_step_1(place: Path) -> None:
    edit_json(place / "run" / "recipe.json", lambda recipe: recipe["padding"].update(value=4))
    _, check = before_step_1(place)
    assert check() == {"padding.value"}


def test_rows_of_which_only_the_last_turn_is_trained_are_checked_as_such(prepared: Path, tmp_path: Path) -> None:
    model, out = prepared / "model", tmp_path / "run"
    run_prepare(str(prepared / "rows"), str(model), out, DataSettings(train_turns="last"))
    run, recipe = RunFolder(out), read_json(out / "recipe.json")
    rows = read_jsonl(run.path("data", "train.jsonl"))
    assert [len(row["trained"]) for row in rows] == [1, 1, 1, 1, 1]
    assert read_json(run.path("prompt_contract.json"))["train_turns"] == "last"
    require_contract(run, rows, recipe)
    edit_json(run.path("prompt_contract.json"), lambda contract: contract.update(train_turns="all"))
    with pytest.raises(StageError, match=r"train-0004 trained: .*found not trained, wanted trained") as error:
        require_contract(run, rows, recipe)
    assert "contract train_turns" in error.value.message


@pytest.mark.parametrize("where", CHECKS, ids=lambda where: where.__name__)
def test_a_contract_that_names_other_trained_turns_than_the_rows_show_fails_each_check(place: Path, where: Any) -> None:
    _, check = where(place)
    edit_json(place / "run" / "prompt_contract.json", lambda contract: contract.update(train_turns="last"))
    assert "train_turns" in check()


def test_a_tuned_graph_without_a_contract_is_no_pass(place: Path) -> None:
    run = RunFolder(place / "run")
    run.path("prompt_contract.json").unlink()
    (failure,) = [result for result in edge_a_of_run(run, "tuned").results if not result.passed]
    assert (failure.reason, failure.where) == ("missing", "prompt_contract.json")


def test_the_parity_command_exits_3_and_names_the_field(place: Path) -> None:
    model, _ = at_export(place)
    CHANGES["padding side"][0](model)
    done = CliRunner().invoke(parity, [str(place / "run"), "--edge", "a", "--json", "-q"])
    failures = [r["where"] for gate in json.loads(done.stdout)["gates"] for r in gate["results"] if not r["passed"]]
    assert (done.exit_code, failures) == (3, ["recipe.json", "padding.side"])  # the copy's recipe names the copy
