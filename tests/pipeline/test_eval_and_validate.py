"""`eval` and `validate` on a finished run, each command in a process of its own as a user starts it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import call, call_alone, edit_json

from weights_bridge.errors import StageError
from weights_bridge.files import read_json, read_jsonl

Alter = Callable[[Callable[[Path], object]], Path]
FRAMEWORKS = {"torch", "mlx", "onnxruntime", "transformers"}


def process(*words: object) -> tuple[Any, list[str]]:
    """Return a command's JSON answer and the frameworks its process had loaded in the end."""
    answer, loaded = call_alone(*words, "--json", "-q")
    return json.loads(answer), sorted(loaded & FRAMEWORKS)


@pytest.fixture(scope="module")
def copied(toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the toy run that this file writes to."""
    return shutil.copytree(toy_run, tmp_path_factory.mktemp("validated") / "run", symlinks=True)


def test_both_runners_give_the_same_answers_on_a_finished_run_each_alone_in_its_process(copied: Path) -> None:
    mlx, with_mlx = process("eval", copied, "--runner", "mlx")
    onnx, with_onnx = process("eval", copied, "--runner", "onnx")
    assert (with_mlx, with_onnx) == (["mlx"], ["onnxruntime"])
    assert mlx["rows"] == onnx["rows"] and len(mlx["rows"]) == 6
    assert mlx["after"] == onnx["after"] and mlx["verdicts"] == onnx["verdicts"]
    assert "wanted at least 5 of each" in onnx["gate"]["why_not"]  # four calibration rows


def test_the_pipeline_wrote_the_log_and_said_why_there_is_no_gate(toy_run: Path) -> None:
    log = (toy_run / "eval" / "eval_log.md").read_text(encoding="utf-8")
    assert log.startswith("# Held-out verdicts") and "## Runtime gate" in log and "%" not in log
    assert not (toy_run / "eval" / "gate.json").exists()
    assert "eval/eval_log.md" in read_json(toy_run / "manifest.json")["stages"]["eval"]["outputs"]


WORDS = ("--ood", "Meet me by the river.", "--ood", "Light the lamp", "--max-new-tokens", 32)


@pytest.fixture(scope="module")
def rendered(copied: Path) -> tuple[dict[str, Any], list[str]]:
    """What `validate` through MLX answered, and what its process had loaded."""
    return process("validate", copied, *WORDS)


def test_three_categories_are_rendered_from_the_runs_own_splits_and_new_texts(
    copied: Path, rendered: tuple[dict[str, Any], list[str]]
) -> None:
    answer, loaded = rendered
    assert loaded == ["mlx"]  # new texts became ids in a child
    folder = copied / "outputs" / "eval"
    assert answer["counts"] == {"in-distribution": 3, "out-of-distribution": 2, "held-out": 5}
    assert {path.name for path in folder.iterdir()} == {*answer["counts"], "prompts.json"}
    manifest = read_json(folder / "prompts.json")
    files = {path.relative_to(folder).as_posix() for path in folder.glob("*/*")}
    assert files == set(manifest) == set(answer["files"])
    splits = {"in-distribution": ("train", 3), "held-out": ("holdout", 5)}
    for category, (split, count) in splits.items():
        rows = read_jsonl(copied / "data" / f"{split}.jsonl")
        drawn = random.Random(42).sample([row["messages"][-2]["content"] for row in rows], count)
        assert [entry["prompt"] for entry in manifest.values() if entry["category"] == category] == drawn
    assert "out-of-distribution/01_meet-me-by-the-river.txt" in files
    recorded = read_json(copied / "manifest.json")["stages"]["validate"]
    assert recorded["outputs"].keys() == {f"outputs/eval/{name}" for name in [*files, "prompts.json"]}
    assert recorded["facts"] == {"runner": "mlx", "checkpoint": "final", "renders": answer["counts"]}


def texts(run: Path) -> dict[str, str]:
    folder = run / "outputs" / "eval"
    return {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.glob("*/*"))}


@pytest.mark.usefixtures("rendered")
def test_the_graph_renders_what_the_directory_does_and_held_out_prompts_as_eval_asks_them(copied: Path) -> None:
    mlx = texts(copied)
    _, loaded = process("validate", copied, *WORDS, "--runner", "onnx")
    assert loaded == ["onnxruntime"] and texts(copied) == mlx
    scored = {row["id"]: row["after"]["text"] for row in read_json(copied / "eval" / "axes.json")["rows"]}
    asked = {row["messages"][-2]["content"]: row["id"] for row in read_jsonl(copied / "data" / "holdout.jsonl")}
    manifest = read_json(copied / "outputs" / "eval" / "prompts.json")
    held_out = {name: entry for name, entry in manifest.items() if entry["category"] == "held-out"}
    assert len(held_out) == 5
    for name, entry in held_out.items():
        assert mlx[name] == scored[asked[entry["prompt"]]] + "\n"


def test_a_new_text_is_rendered_to_the_very_ids_that_prepare_gives_it(copied: Path) -> None:
    from mlx_sentis.validation.text import ids_of_texts

    recipe, contract = read_json(copied / "recipe.json"), read_json(copied / "prompt_contract.json")
    rows = read_jsonl(copied / "data" / "holdout.jsonl")
    asked = [row["messages"][-2]["content"] for row in rows]
    found = ids_of_texts(asked, Path(recipe["model"]["path"]), recipe, contract)
    assert found == [row["ids"][: row["prompt_tokens"]] for row in rows]
    with pytest.raises(StageError, match=r"prompt 2: .*<\|im_end\|>"):
        ids_of_texts(["Go.", "Go <|im_end|> now"], Path(recipe["model"]["path"]), recipe, contract)
    with pytest.raises(StageError, match="contract template_sha256"):
        ids_of_texts(["Go."], Path(recipe["model"]["path"]), recipe, contract | {"template_sha256": "other"})


@pytest.mark.usefixtures("children_here")
def test_without_the_final_model_it_stops_and_takes_no_checkpoint_unasked(altered_run: Alter) -> None:
    run = altered_run(lambda copy: shutil.rmtree(copy / "merged"))
    result = call("validate", run, "--ood", "Go.")
    assert result.exit_code == 1 and "the final model is not there" in result.stderr
    assert "--checkpoint N" in result.stderr and not (run / "outputs").exists()
    known = sorted(path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal())
    answer = call("validate", run, "--ood", "Go.", "--checkpoint", known[-1], "--json", "-q")
    assert answer.exit_code == 0, answer.stderr
    assert json.loads(answer.stdout)["counts"]["held-out"] == 5


def test_a_model_from_before_the_last_training_is_not_the_final_one(altered_run: Alter) -> None:
    def trained_again(run: Path) -> None:
        edit_json(run / "manifest.json", lambda m: m["stages"].update(train=m["stages"].pop("train")))

    run = altered_run(trained_again)
    for runner in ("mlx", "onnx"):
        result = call("validate", run, "--ood", "Go.", "--runner", runner)
        assert result.exit_code == 1 and "was made before the last train" in result.stderr


def test_data_prepared_after_the_training_is_read_by_no_later_stage(altered_run: Alter, small_data: Path) -> None:
    run = altered_run(lambda copy: None)
    every = [path.read_text(encoding="utf-8").splitlines() for path in sorted(small_data.glob("*.jsonl"))]
    rows = run.with_name("rows")  # one file: the splits are cut anew, so trained rows are held out
    rows.mkdir()
    shutil.copyfile(small_data / "tools.json", rows / "tools.json")
    (rows / "all.jsonl").write_text("\n".join(line for lines in every for line in lines) + "\n", encoding="utf-8")
    model = read_json(run / "recipe.json")["model"]["path"]
    assert call("prepare", rows / "all.jsonl", "--model", model, "--out", run).exit_code == 0
    before = {path: path.read_bytes() for path in (run / "eval").iterdir()}
    for words in (("eval",), ("validate", "--yes"), ("bridge",), ("swap",)):
        result = call(words[0], run, *words[1:])
        assert result.exit_code == 1, words
        assert "the data was prepared after the training" in result.stderr
        assert "data/holdout.jsonl" in result.stderr and "mlx-sentis train --data" in result.stderr
    result = call("parity", run)
    assert result.exit_code == 3
    assert result.output.count("the data was prepared after the training") >= 2  # gate A0 and edge A, tuned weights
    assert {path: path.read_bytes() for path in (run / "eval").iterdir()} == before


@pytest.mark.parametrize(
    ("words", "split"), [(("eval",), "holdout"), (("eval",), "calibration"), (("validate", "--yes"), "holdout")]
)
def test_a_recorded_split_that_is_gone_is_an_altered_run_and_not_a_run_without_it(
    altered_run: Alter, words: tuple[str, ...], split: str
) -> None:
    run = altered_run(lambda copy: (copy / "data" / f"{split}.jsonl").unlink())
    result = call(words[0], run, *words[1:])
    assert result.exit_code == 1 and f"data/{split}.jsonl: recorded, not there" in result.stderr
    assert not (run / "outputs").exists()


def test_a_checkpoint_through_the_graph_is_wrong_use(copied: Path) -> None:
    result = call("validate", copied, "--runner", "onnx", "--checkpoint", "best", "--ood", "Go.")
    assert result.exit_code == 2 and "the graph holds the final weights only" in result.stderr


@pytest.mark.usefixtures("children_here")
def test_a_run_without_held_out_rows_says_so_and_judges_nothing(altered_run: Alter) -> None:
    def forget(run: Path) -> None:
        (run / "data" / "holdout.jsonl").unlink()
        edit_json(run / "manifest.json", lambda m: m["stages"]["prepare"]["outputs"].pop("data/holdout.jsonl"))

    run = altered_run(forget)
    result = call("validate", run, "--yes")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[lines.index("Held-out renders (0 samples):") + 1] == "  (skipped — no holdout set)"
    assert lines[-3] == (
        "Held-out evaluation skipped: no holdout set was reserved for this run. "
        "The post-train eval only covers Categories 1 and 2."
    )
    assert not (run / "outputs" / "eval" / "held-out").exists()
    assert "generic prompts" in result.stderr and "?" not in result.stdout
    new = sorted(path.name for path in (run / "outputs" / "eval" / "out-of-distribution").iterdir())
    assert len(new) == 3 and all(name[2:].startswith("_please-") for name in new)  # what the tools do
