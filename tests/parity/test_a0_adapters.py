"""Gate A0's two sides on every kind of adapter: transformers and autograd against the trainer, at toy size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import write_moved
from safetensors import safe_open
from safetensors.numpy import save_file

from parity.a0_compare import Sides, backward_results, forward_results
from parity.budgets import load_budgets
from parity.gate_request import GateRequest
from parity.runners import mlx_gate, torch_gate
from weights_bridge.adapter_file import Adapter, read_adapter
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.compare import GateResult
from weights_bridge.foreign_adapters import write_adapter_file
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

CASES = [(kind, "detached") for kind in KINDS] + [(k, "attached") for k in ("dora", "dora-cols", "bora", "bora-xs")]


def rows(vocabulary: int = 400) -> list[dict[str, Any]]:
    """Three rows that share 20 tokens, one of them longer than 100."""
    rng = np.random.default_rng(3)
    shared = rng.integers(0, vocabulary, 20).tolist()
    made = []
    for number, tokens in enumerate((100, 12, 17)):
        ids = shared + rng.integers(0, vocabulary, tokens).tolist()
        made.append({"id": f"row-{number}", "ids": ids, "trained": [[len(ids) - 7, len(ids)]]})
    return made


def measured(base: Path, adapter: Path, work: Path, *, for_torch: Path | None = None) -> list[GateResult]:
    """Return the forward and backward results of both sides, run in this process."""
    folder = open_model_folder(base)
    write_merged(folder, read_adapter(adapter), work / "merged", [2])
    answers = []
    for side, answer in (("mlx", mlx_gate.answer), ("torch", torch_gate.answer)):
        given = for_torch if for_torch is not None and side == "torch" else adapter
        places = (str(base), str(work / "merged"), str(given))
        asked = GateRequest(*places, rows(), rows(), 0, folder.config["vocab_size"], out=str(work / f"{side}.npz"))
        answer(asked.as_json())
        with np.load(work / f"{side}.npz") as npz:
            answers.append(dict(npz))
    budgets, sides = load_budgets(folder.config["model_type"]), Sides.of(*answers)
    return forward_results(sides, 3, budgets).results + backward_results(sides, 3, budgets).results


def failed(results: list[GateResult]) -> list[str]:
    return [str(result) for result in results if not result.passed]


@pytest.mark.parametrize(("kind", "norm"), CASES)
def test_both_sides_agree_on_every_kind(toy_model: Callable[[str], Path], tmp_path: Path, kind: str, norm: Any) -> None:
    chosen = AdapterSettings(kind, 4, 8.0, rank_pattern={"up_proj": 2}, norm=norm)  # type: ignore[arg-type]
    write_moved(toy_model("llama"), tmp_path / "a.safetensors", Settings(adapter=chosen))
    results = measured(toy_model("llama"), tmp_path / "a.safetensors", tmp_path)
    assert not failed(results)
    gradients = [result for result in results if result.tensor.startswith("backward model.layers.")]
    assert len(gradients) == 2 * 7 * len(KINDS[kind].parts - {"U", "V"})


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma3_text"])
def test_both_sides_agree_on_all_weights(toy_model: Callable[[str], Path], tmp_path: Path, model_type: str) -> None:
    write_moved(toy_model(model_type), tmp_path / "a.safetensors", Settings(train=TrainSettings(full=True)))
    results = measured(toy_model(model_type), tmp_path / "a.safetensors", tmp_path)
    assert not failed(results)
    folder = open_model_folder(toy_model(model_type))
    named = {result.tensor.removeprefix("backward ") for result in results}
    assert named >= folder.architecture.torch_shapes(folder.config).keys()  # the embedding table among them


WHOLE = ("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.down_proj.weight")


def test_both_sides_agree_on_whole_tensors_beside_an_adapter(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    """PEFT's `modules_to_save`: head, table, a norm and a Linear that the adapter leaves out, each as it was saved."""
    base = open_model_folder(toy_model("qwen3"))
    write_moved(base.path, tmp_path / "all.safetensors", Settings(adapter=AdapterSettings("dora", 4, 8.0)))
    every, rng = read_adapter(tmp_path / "all.safetensors"), np.random.default_rng(2)
    weights = {name: array for name, array in base.tensors() if name in WHOLE}
    saved = {n: (a + 0.05 * rng.standard_normal(a.shape)).astype(np.float32) for n, a in weights.items()}
    modules = {name: parts for name, parts in every.modules.items() if f"{name}.weight" not in saved}
    facts = every.facts | {"targets": sorted(modules), "saved": sorted(saved)}
    write_adapter_file(tmp_path / "a.safetensors", Adapter(facts, modules, saved))
    results = measured(base.path, tmp_path / "a.safetensors", tmp_path)
    assert not failed(results)
    merged = {name: array.tobytes() for name, array in open_model_folder(tmp_path / "merged").tensors()}
    assert {name: merged[name] for name in WHOLE} == {name: saved[name].tobytes() for name in WHOLE}
    gradients = [result for result in results if result.tensor.startswith("backward model.layers.")]
    assert len(gradients) == 3 * (2 * 7 - 1)


@pytest.mark.parametrize("planted", [{"norm": "attached"}, {"alpha": 8.5, "scale": 2.125}])
def test_a_convention_that_differs_is_found_by_the_gradients(
    toy_model: Callable[[str], Path], tmp_path: Path, planted: dict[str, Any]
) -> None:
    path, other = tmp_path / "a.safetensors", tmp_path / "other.safetensors"
    write_moved(toy_model("llama"), path, Settings(adapter=AdapterSettings("dora-cols", 4, 8.0)))
    with safe_open(path, framework="np") as reader:
        facts = json.loads(reader.metadata()["adapter"]) | planted
        save_file({n: reader.get_tensor(n) for n in reader.keys()}, other, {"adapter": json.dumps(facts)})  # noqa: SIM118
    results = measured(toy_model("llama"), path, tmp_path, for_torch=other)
    # torch's forward pass is that of the merged directory, and a norm's convention does not show in a forward pass
    assert {line.split()[1] for line in failed(results)} == {"backward"}
