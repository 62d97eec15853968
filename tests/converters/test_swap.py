from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from converters.swap import swap_run, swap_weights
from weights_bridge.errors import BudgetMissedError, StageError
from weights_bridge.files import sha256_of, write_json
from weights_bridge.run_folder import RunFolder


@pytest.mark.parametrize("settings", [{}, {"dtype": "fp16"}], ids=["fp32", "fp16"])
def test_a_swap_equals_a_fresh_export_byte_for_byte(exported, tmp_path, settings):
    base, tuned = exported("llama", **settings), exported("llama", seed=1, **settings)
    facts = swap_weights(base.onnx, base.contract, tuned.model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == tuned.onnx.read_bytes() != base.onnx.read_bytes()
    assert facts["initialisers"] == len(base.contract["initialisers"]) and facts["tensors_left_out"] == []


def _altered(exported, tmp_path, change):
    base = exported("llama")
    folder = shutil.copytree(base.model, tmp_path / "merged")
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return base, folder


def test_every_mismatch_is_listed_and_nothing_written(exported, tmp_path):
    def change(weights):
        weights["model.norm.weight"] = np.ones(65, np.float32)
        weights["model.layers.1.mlp.up_proj.weight"] = np.ones((64, 96), np.float32)
        del weights["model.layers.0.self_attn.q_proj.weight"]
        weights["model.layers.0.extra.weight"] = np.ones(3, np.float32)

    base, folder = _altered(exported, tmp_path, change)
    with pytest.raises(StageError) as caught:
        swap_weights(base.onnx, base.contract, folder, tmp_path / "model.onnx")
    for line in (
        "model.norm.weight: found (65,), wanted (64,)",
        "model.layers.1.mlp.up_proj.weight: found (64, 96), wanted (96, 64)",
        "model.layers.0.self_attn.q_proj.weight: missing, wanted (64, 64)",
        "model.layers.0.extra.weight: found (3,), the graph has no place for it",
    ):
        assert line in caught.value.message
    assert not (tmp_path / "model.onnx").exists()


def test_a_tied_head_stored_twice_is_named_as_left_out(exported, tmp_path):
    def change(weights):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()

    base, folder = _altered(exported, tmp_path, change)
    facts = swap_weights(base.onnx, base.contract, folder, tmp_path / "model.onnx")
    assert facts["tensors_left_out"] == ["lm_head.weight"]
    assert (tmp_path / "model.onnx").read_bytes() == base.onnx.read_bytes()


@pytest.mark.parametrize("key, value", [("rms_norm_eps", 1e-6), ("num_attention_heads", 8)])
def test_constants_that_shapes_cannot_tell_apart_are_compared(exported, tmp_path, key, value):
    base, folder = _altered(exported, tmp_path, lambda weights: None)
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StageError, match="does not fit the graph"):
        swap_weights(base.onnx, base.contract, folder, tmp_path / "model.onnx")


def test_a_graph_that_is_not_the_contracts_is_refused(exported, tmp_path):
    base, other = exported("llama"), exported("qwen2", batch="dynamic")
    with pytest.raises(StageError, match="topology"):
        swap_weights(other.onnx, base.contract, base.model, tmp_path / "model.onnx")


@pytest.fixture
def run(exported, tmp_path):
    """A run folder with a passed gate A0 on its merged weights."""
    base = exported("llama")
    folder = RunFolder(tmp_path / "run")
    with folder.stage("bridge") as stage:
        merged = shutil.copytree(exported("llama", seed=1).model, folder.path("merged"))
        folder.path("onnx").mkdir()
        shutil.copy(base.onnx, folder.path("onnx", "base.onnx"))
        write_json(folder.path("onnx", "contract.json"), base.contract)
        files = {path.name: sha256_of(path) for path in merged.iterdir()}
        write_json(folder.path("parity", "a0.json"), {"passed": True, "facts": {"merged_sha256": files}})
        stage.wrote(merged)
    return folder


def test_a_passed_gate_lets_the_swap_run_and_the_manifest_records_it(run, exported):
    swap_run(run)
    entry = run.manifest()["stages"]["swap"]
    assert entry["facts"]["ungated"] is False and "onnx/model.onnx" in entry["outputs"]
    assert run.path("onnx", "model.onnx").read_bytes() == exported("llama", seed=1).onnx.read_bytes()


def test_without_a_gate_report_the_swap_misses_its_budget(run):
    run.path("parity", "a0.json").unlink()
    with pytest.raises(BudgetMissedError, match="gate A0 has not passed for these weights") as caught:
        swap_run(run)
    assert caught.value.exit_code == 3 and not run.path("onnx", "model.onnx").exists()


def test_a_failed_gate_refuses_and_ungated_is_recorded(run):
    write_json(run.path("parity", "a0.json"), {"passed": False, "facts": {}})
    with pytest.raises(BudgetMissedError, match="says it failed"):
        swap_run(run)
    swap_run(run, ungated=True)
    assert run.manifest()["stages"]["swap"]["facts"]["ungated"] is True


def test_a_gate_measured_on_other_weights_refuses_and_names_the_file(run, exported):
    shutil.copy(exported("llama").model / "model.safetensors", run.path("merged", "model.safetensors"))
    with pytest.raises(BudgetMissedError, match=r"other files: model\.safetensors"):
        swap_run(run)
