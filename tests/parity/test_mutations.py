"""The gate bites: every bug of the catalogue is planted in a toy model, missed by gate A0 and found at its place.

The unaltered model passes the same measurement in the same test, so that no bug is caught for the wrong reason.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from mlx_sentis.demo.toy import toy_weights
from parity.budgets import load_budgets
from parity.gate_request import BACKWARD, FORWARD, TRACE, GateRequest
from parity.mutations import MUTATIONS
from parity.runners import mlx_gate, mlx_made_adapter, torch_gate
from parity.runners.mlx_self_test import Reference, Trial, clean, tried
from weights_bridge.adapter_file import read_adapter
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder

Try = Callable[[str], Trial]
WIDE, MASSIVE = "gemma3_text, 80 wide", "gemma3_text, one massive channel"
HAVE = {  # where a bug needs something that toy-llama lacks
    "sliding window one token short": "gemma3_text",
    "embedding scale rounded to bf16": WIDE,
    "norms of query and key exchanged": "qwen3",
    "bias left out": "qwen2",
}
GEMMA_TOO = ("embedding scale: none where one belongs, or one where none does",)
GEMMA_TOO += ("norm of weight, not of 1 + weight, or the other way round",)
GEMMA_TOO += ("another activation: exact GELU for its tanh form, GELU for SiLU", "rotary base", "mask one token late")


def rows(vocabulary: int = 400) -> list[dict[str, Any]]:
    """Two rows that share 20 tokens, one longer than 100 tokens and than the toys' window."""
    rng = np.random.default_rng(3)
    shared = rng.integers(0, vocabulary, 20).tolist()
    made = []
    for number, tokens in enumerate((90, 12)):
        ids = shared + rng.integers(0, vocabulary, tokens).tolist()
        made.append({"id": f"row-{number}", "ids": ids, "trained": [[len(ids) - 7, len(ids)]]})
    return made


@pytest.fixture(scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory, toy_model: Callable[[str], Path]) -> Callable[[str], Try]:
    """Return, per toy model, what plants a bug in it and measures; torch answers once, MLX is loaded once."""
    made: dict[str, Try] = {}

    def of(name: str) -> Try:
        if name not in made:
            work = tmp_path_factory.mktemp(name.split(",")[0])
            base = toy_model(name) if name not in VARIANTS else VARIANTS[name](toy_model, work / "base")
            made[name] = prepared(base, work)
        return made[name]

    return of


def of_width_80(toy_model: Callable[[str], Path], folder: Path) -> Path:
    """Write a toy Gemma whose embedding scale is another number in bf16: the root of 80, where that of 64 is 8."""
    shutil.copytree(toy_model("gemma3_text"), folder)
    edit_json(folder / "config.json", lambda config: config.update(hidden_size=80))
    weights = toy_weights(json.loads((folder / "config.json").read_text()))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def with_a_massive_channel(toy_model: Callable[[str], Path], folder: Path) -> Path:
    """Write a toy Gemma that parks values a thousand times its others' size in one channel, as trained models do."""
    shutil.copytree(toy_model("gemma3_text"), folder)
    weights = dict(load_file(folder / "model.safetensors"))
    weights["model.layers.0.post_feedforward_layernorm.weight"][7] = 1000.0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


VARIANTS = {WIDE: of_width_80, MASSIVE: with_a_massive_channel}


def prepared(base: Path, work: Path) -> Try:
    settings = {"type": "dora", "rank": 4, "alpha": 8.0}
    mlx_made_adapter.answer({"model": str(base), "out": str(work / "a.safetensors"), "settings": settings})
    folder = open_model_folder(base)
    write_merged(folder, read_adapter(work / "a.safetensors"), work / "merged", [2])
    places = (str(base), str(work / "merged"), str(work / "a.safetensors"))
    asked = GateRequest(*places, rows()[:1], rows(), 0, folder.config["vocab_size"])
    arrays: dict[str, Any] = {}
    for before, question in (
        ("", asked.with_(parts=[FORWARD, BACKWARD, TRACE])),
        ("other/", asked.with_(parts=[BACKWARD], norm="attached")),
    ):
        torch_gate.answer(question.with_(out=str(work / "torch.npz")).as_json())
        with np.load(work / "torch.npz") as npz:
            arrays |= {before + name: npz[name] for name in npz.files}
    torch, model = Reference.of(arrays, "detached"), mlx_gate.load(asked)
    budgets = load_budgets(folder.config["model_type"])

    def attempt(bug: str) -> Trial:
        found = tried(model, asked, torch, MUTATIONS[bug], budgets)
        unaltered = clean(model, asked, torch, budgets)
        assert unaltered.caught, unaltered.detail  # before the bug is judged: taken away again, everything passes
        return found

    return attempt


CASES = [(bug, HAVE.get(bug, "llama")) for bug in MUTATIONS]
CASES += [(bug, "gemma3_text") for bug in GEMMA_TOO]
CASES += [("rotary base", "smollm3"), ("sliding window one token short", "gemma2"), ("rotary base", "phi3")]
CASES += [("sliding window one token short", MASSIVE), ("heads in another order", MASSIVE)]


@pytest.mark.parametrize(("bug", "model_type"), CASES)
def test_a_planted_bug_is_caught_at_its_place_and_the_unaltered_model_passes(
    trials: Callable[[str], Try], bug: str, model_type: str
) -> None:
    found = trials(model_type)(bug)
    assert found.wanted and (found.found, found.caught) == (found.wanted, True), found


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["phi3", "smollm3", "gemma2", "mistral"])
def test_no_bug_is_missed_in_the_other_architectures(trials: Callable[[str], Try], model_type: str) -> None:
    found = {bug: trials(model_type)(bug) for bug in MUTATIONS}
    assert [trial for trial in found.values() if trial.caught is False] == []
    assert sum(trial.caught is True for trial in found.values()) >= 12
