"""A run folder made of a toy export, and rows for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exports import Exported
from onnx import numpy_helper
from tokenizers import Tokenizer

from mlx_sentis.demo.toy import write_toy_model
from mlx_sentis.prepare.contract import make_contract, samples_of
from mlx_sentis.prepare.rows import Row
from mlx_sentis.recipe import make_recipe
from mlx_sentis.templates import load_tokenizer
from weights_bridge.files import write_json, write_jsonl
from weights_bridge.run_folder import RunFolder

SYSTEM = (
    "Tools:\nopen(thing: string) - open a thing\nmove_to(place: string) - walk to a place\nAnswer with a call or none."
)
WORDS = ["gate", "chest", "door", "mill", "bridge", "forge", "market", "stable", "lamp", "old"]


def random_rows(*lengths: int, vocab: int = 400) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [{"id": f"row-{n}", "ids": rng.integers(0, vocab, n).tolist()} for n in lengths]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return random_rows(40, 130, 25, 60)


def rendered_row(tokenizer: Tokenizer, row: str, user: str, answer: str) -> dict[str, Any]:
    prompt = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    whole = tokenizer.encode(prompt + answer + "<|im_end|>\n", add_special_tokens=False).ids
    expect = {"kind": "none"} if answer == "none" else {"kind": "call", **json.loads(answer)}
    return {"id": row, "ids": whole, "prompt_tokens": len(ids), "expect": expect}


def opening(word: str) -> str:
    return f'{{"name": "open", "arguments": {{"thing": "{word}"}}}}'


def write_data(run: RunFolder, tokenizer: Tokenizer) -> None:
    def rows(name: str, ask: str, answer: Callable[[str], str], words: list[str]) -> list[dict[str, Any]]:
        return [rendered_row(tokenizer, f"{name}-{i}", ask.format(w), answer(w)) for i, w in enumerate(words)]

    made = rows("r", "Open the {}, please.", opening, WORDS)
    made += rows("o", "What is a {} worth?", lambda word: "none", WORDS[:4])
    calibration = rows("cr", "The {} should be open.", opening, WORDS[:6])
    calibration += rows("co", "Who made the {}?", lambda word: "none", WORDS[:5])
    write_jsonl(run.path("data", "train.jsonl"), made)
    write_jsonl(run.path("data", "holdout.jsonl"), made)
    write_jsonl(run.path("data", "calibration.jsonl"), calibration)
    first, shared = made[0]["ids"], 0
    while all(row["ids"][shared] == first[shared] for row in made):
        shared += 1
    write_json(
        run.path("data", "dataset.json"),
        {"tools": [{"name": "open"}, {"name": "move_to"}], "shared_prefix_tokens": shared},
    )


@pytest.fixture(scope="session")
def made_run(exported: Callable[[str], Exported], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with base and tuned graph, data and recipe, recorded in its manifest. Copy it before changing it."""
    from converters.swap import swap_weights

    source = exported("llama")
    run = RunFolder(tmp_path_factory.mktemp("runs") / "made")
    model = run.root.with_name("model")
    shutil.copytree(source.model, model)
    recipe = make_recipe(model)
    recipe["model"]["name"] = "toy"
    with run.stage("export", [model]) as stage:
        write_json(run.path("recipe.json"), recipe)
        write_json(run.path("onnx", "contract.json"), source.contract)
        shutil.copyfile(source.onnx, run.path("onnx", "base.onnx"))
        stage.wrote(run.path("recipe.json"), run.path("onnx"))
    with run.stage("prepare") as stage:
        write_data(run, Tokenizer.from_file(str(model / "tokenizer.json")))
        said = [{"role": "user", "content": "Open the gate."}, {"role": "assistant", "content": "none"}]
        contract = make_contract(samples_of([Row(said, [], "rows.jsonl:1")]), load_tokenizer(model), recipe)
        write_json(run.path("prompt_contract.json"), contract)
        stage.wrote(run.path("data"), run.path("prompt_contract.json"))
    with run.stage("swap") as stage:
        write_toy_model(run.path("merged"), "llama", seed=1)
        swap_weights(run.path("onnx", "base.onnx"), source.contract, run.path("merged"), run.path("onnx", "model.onnx"))
        stage.wrote(run.path("merged"), run.path("onnx", "model.onnx"))
    return run.root


@pytest.fixture(scope="session")
def measured_run(made_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made run with fixtures and the original's outputs. Copy it before changing it."""
    from parity.verify import edge_a_of_run

    run = RunFolder(tmp_path_factory.mktemp("measured") / "run")
    shutil.copytree(made_run, run.root)
    with run.stage("edge-a-tuned") as stage:
        edge_a_of_run(run, "tuned", fixtures_to=run.path("onnx", "fixtures"))
        stage.wrote(run.path("onnx", "fixtures"))
    return run.root


@pytest.fixture
def run(made_run: Path, tmp_path: Path) -> RunFolder:
    """A copy of the made run that a test may alter; its model directory is a copy too."""
    shutil.copytree(made_run, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def swap_heads() -> Callable[..., None]:
    """Write a graph whose weight `name` has the rows of its first two heads (of 16) swapped."""

    def plant(source: Path, target: Path, name: str) -> None:
        model = onnx.load(source)
        (tensor,) = [t for t in model.graph.initializer if t.name.startswith(name)]
        weight = numpy_helper.to_array(tensor)  # [in, out]: the exporter stores Linear weights transposed
        changed = weight[:, [*range(16, 32), *range(16), *range(32, weight.shape[1])]]
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))
        onnx.save(model, target)

    return plant
