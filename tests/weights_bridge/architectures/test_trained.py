"""Gate A0's two sides on the architectures that the whole pipeline's tests leave out, and refusals of what differs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import edit_json, write_moved

from converters.export import export_model
from mlx_sentis.recipe import make_recipe
from mlx_sentis.training.definitions import load_causal_lm
from parity.a0_compare import Sides, backward_results, forward_results
from parity.budgets import load_budgets
from parity.gate_request import GateRequest
from parity.runners import mlx_gate, torch_gate
from weights_bridge.adapter_file import read_adapter
from weights_bridge.errors import StageError
from weights_bridge.merge import write_merged
from weights_bridge.model_folder import open_model_folder
from weights_bridge.settings import AdapterSettings, ExportSettings, Settings

TRAINED = ("mistral", "smollm3", "phi3", "gemma2")


def made_rows() -> list[dict[str, Any]]:
    """Three rows that share 20 tokens, one longer than 100."""
    rng = np.random.default_rng(3)
    shared = rng.integers(0, 400, 20).tolist()
    made = []
    for number, tokens in enumerate((100, 12, 17)):
        ids = shared + rng.integers(0, 400, tokens).tolist()
        made.append({"id": f"row-{number}", "ids": ids, "trained": [[len(ids) - 7, len(ids)]]})
    return made


@pytest.mark.parametrize("model_type", TRAINED)
def test_gate_a0_passes_with_an_adapter(toy_model: Callable[[str], Path], tmp_path: Path, model_type: str) -> None:
    base, adapter = toy_model(model_type), tmp_path / "a.safetensors"
    write_moved(base, adapter, Settings(adapter=AdapterSettings("dora", 4, 8.0)))
    folder = open_model_folder(base)
    write_merged(folder, read_adapter(adapter), tmp_path / "merged", [2])
    answers = []
    for side, answer in (("mlx", mlx_gate.answer), ("torch", torch_gate.answer)):
        places = (str(base), str(tmp_path / "merged"), str(adapter))
        rows, out = made_rows(), str(tmp_path / f"{side}.npz")
        answer(GateRequest(*places, rows, rows, 0, folder.config["vocab_size"], out=out).as_json())
        with np.load(out) as npz:
            answers.append(dict(npz))
    budgets, sides = load_budgets(model_type), Sides.of(*answers)
    results = forward_results(sides, 3, budgets).results + backward_results(sides, 3, budgets).results
    assert not [str(result) for result in results if not result.passed]
    modules = len(folder.architecture.linear_modules(folder.config))
    assert sum(result.tensor.startswith("backward model.layers") for result in results) == 3 * modules


def test_an_encoder_has_no_recipe_training_and_export_yet(tmp_path: Path) -> None:
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 12, "type_vocab_size": 2}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | sizes))
    with pytest.raises(StageError, match="`train` does not cover bert"):
        load_causal_lm(open_model_folder(tmp_path))
    with pytest.raises(StageError, match="`export` does not cover bert"):
        export_model(tmp_path, tmp_path / "x.onnx", ExportSettings(), tmp_path / "contract.json")
    with pytest.raises(StageError, match="`recipe` does not cover bert") as caught:
        make_recipe(tmp_path)
    assert "covered by bridge" in caught.value.hint


@pytest.mark.parametrize(
    ("model_type", "key", "value"),
    [
        ("mistral", "sliding_window", 4096),
        ("phi3", "sliding_window", 2047),
        ("phi3", "rope_scaling", {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
        ("phi3", "attention_bias", True),
        ("phi3", "rope_traditional", True),
        ("gemma2", "attn_logit_softcapping", None),
        ("gemma3_text", "final_logit_softcapping", 30.0),
    ],
)
def test_what_mlx_lms_definition_leaves_out_is_refused_by_key(
    toy_model: Callable[[str], Path], tmp_path: Path, model_type: str, key: str, value: object
) -> None:
    folder = Path(shutil.copytree(toy_model(model_type), tmp_path / "model"))
    edit_json(folder / "config.json", lambda config: config.update({key: value}))
    with pytest.raises(StageError, match=f"{model_type} as mlx-lm defines it differs:\n  {key}"):
        open_model_folder(folder, origin="mlx")


def test_what_only_an_mlx_directory_holds_is_refused_with_the_way_out(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "model"))
    edit_json(folder / "config.json", lambda config: config.update(quantization={"group_size": 32, "bits": 4}))
    with pytest.raises(StageError, match="quantization: not plain torch weights"):
        open_model_folder(folder).check_tensors()
    gptq = {"quant_method": "gptq", "bits": 4}
    edit_json(folder / "config.json", lambda config: config.update(quantization=None, quantization_config=gptq))
    with pytest.raises(StageError, match="quantization_config: not plain torch weights") as caught:
        open_model_folder(folder).check_tensors()
    assert caught.value.hint == "weights packed by gptq are not read: get the model's plain ones"
    edit_json(folder / "config.json", lambda config: config.pop("quantization_config"))
    edit_json(folder / "config.json", lambda config: config.update(rope_traditional=True))
    with pytest.raises(StageError, match="rope_traditional: not plain torch weights") as caught:
        open_model_folder(folder)
    assert f"bridge {folder} --to torch" in caught.value.hint
