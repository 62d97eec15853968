"""mlx-lm's definitions under our mends, against transformers' own classes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import edit_json
from safetensors.numpy import load_file, save_file

from mlx_sentis.demo.toy import toy_weights
from mlx_sentis.training.definitions import CausalLM, load_causal_lm
from mlx_sentis.training.mlx_lm_models import models_module
from weights_bridge.compare import psnr_db
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.model_folder import open_model_folder

IDS = np.random.default_rng(0).integers(0, 420, (1, 130))


@pytest.fixture
def wide_gemma(toy_model: Callable[[str], Path], tmp_path: Path) -> Path:
    """Toy gemma of width 72: bf16(√72) is 8.5 and not 8.485; √64 is exact and would hide the mend."""
    folder = Path(shutil.copytree(toy_model("gemma3_text"), tmp_path / "wide"))
    edit_json(folder / "config.json", lambda config: config.update(hidden_size=72))
    save_file(toy_weights(read_json(folder / "config.json")), folder / "model.safetensors")
    return folder


def level(model: CausalLM) -> float:
    """Return the PSNR of the logits against transformers in fp32, in dB."""
    import torch

    from parity.runners.torch_gate import load

    ours = np.array(model.logits(model.hidden(model.embed(mx.array(IDS)))))
    theirs = load(str(model.folder.path), torch.float32)(
        input_ids=torch.from_numpy(IDS), use_cache=False
    ).logits.numpy()
    return psnr_db(theirs, ours)


def test_gemmas_embeddings_are_scaled_by_the_root_and_not_by_its_bf16(
    wide_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_causal_lm(open_model_folder(wide_gemma))
    assert model.inner_scale == 8.5
    assert level(model) > 115
    monkeypatch.setattr(CausalLM, "embed", lambda self, ids: self.network.model.embed_tokens(ids))
    assert level(model) < 90  # the gate would miss it


def test_gemma_2_slides_in_every_second_layer_which_mlx_lm_leaves_out(
    toy_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_causal_lm(open_model_folder(toy_model("gemma2")))
    assert level(model) > 115
    monkeypatch.setattr(CausalLM, "hidden", lambda self, embeddings: self.network.model(mx.array(IDS)))
    assert level(model) < 60  # mlx-lm's own, on a row past the window


def test_gemma_2s_capped_head_has_its_gradient(toy_model: Callable[[str], Path]) -> None:
    from mlx_sentis.training.head import frozen_weight, head_loss_sum

    model = load_causal_lm(open_model_folder(toy_model("gemma2")))
    rng = np.random.default_rng(2)
    hidden, labels = rng.standard_normal((5, 64)).astype(np.float32), rng.integers(0, 400, 5)
    assert model.logit_cap == 5.0 and frozen_weight(model) is None

    def loss(states: mx.array) -> mx.array:
        return head_loss_sum(model, states, mx.array(labels), mx.ones(5))

    value, gradient = mx.value_and_grad(loss)(mx.array(hidden))
    table = model.folder.tensor("model.embed_tokens.weight").astype(np.float64)
    raw = hidden @ table.T
    capped = 5 * np.tanh(raw / 5)
    shares = np.exp(capped) / np.exp(capped).sum(1, keepdims=True)
    assert float(value.item()) == pytest.approx(-np.log(shares[range(5), labels]).sum(), rel=1e-5)
    shares[range(5), labels] -= 1
    np.testing.assert_allclose(np.array(gradient), (shares / np.cosh(raw / 5) ** 2) @ table, atol=1e-5)


def test_other_architectures_embeddings_are_the_tables_rows(decoder: Callable[..., Any]) -> None:
    model = decoder("qwen3", None)
    table = model.folder.tensor("model.embed_tokens.weight")
    assert model.inner_scale == 1.0
    np.testing.assert_array_equal(np.array(model.embed(mx.array(IDS))), table[IDS])


def test_the_head_is_the_table_where_tied_and_its_own_where_not(decoder: Callable[..., Any]) -> None:
    hidden = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    for model_type, name in (("llama", "model.embed_tokens.weight"), ("qwen3", "lm_head.weight")):
        model = decoder(model_type, None)
        wanted = hidden @ model.folder.tensor(name).T
        np.testing.assert_allclose(np.array(model.logits(mx.array(hidden))), wanted, atol=1e-5)


def test_half_precision_checkpoints_are_computed_in_fp32(toy_model: Callable[[str], Path], tmp_path: Path) -> None:
    import ml_dtypes

    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "half"))
    weights = load_file(folder / "model.safetensors")
    save_file({n: a.astype(ml_dtypes.bfloat16) for n, a in weights.items()}, folder / "model.safetensors")
    model = load_causal_lm(open_model_folder(folder))
    assert model.layers[0].mlp.up_proj.weight.dtype == mx.float32
    assert level(model) > 115


def test_tensors_that_do_not_fit_are_refused_before_mlx_sees_them(
    toy_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(toy_model("llama"), tmp_path / "cut"))
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(StageError, match=r"model\.norm\.weight: missing, wanted \(64,\)"):
        load_causal_lm(open_model_folder(folder))


def test_a_definition_mlx_lm_does_not_have_is_refused() -> None:
    with pytest.raises(StageError, match="mlx-lm has no definition 'gone'"):
        models_module("gone")


def test_definitions_come_without_the_rest_of_mlx_lm() -> None:
    import subprocess
    import sys

    code = (
        "from mlx_sentis.training.mlx_lm_models import models_module; models_module('llama'); "
        "import sys; print('transformers' in sys.modules, 'mlx_lm' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_forward_pass_leaves_the_callers_embeddings_as_they_were(decoder: Callable[..., Any]) -> None:
    model = decoder("gemma3_text", None)
    embeddings = model.embed(mx.array(IDS % model.folder.config["vocab_size"]))
    before = np.array(embeddings)
    mx.eval(model.hidden(embeddings))
    assert np.array_equal(np.array(embeddings), before)
