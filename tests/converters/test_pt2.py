"""`export --pt2`: torch's own program beside the ONNX file, with its numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import call, write_packed

from converters.pt2 import write_pt2
from mlx_sentis.demo.toy import DECODER_TYPES
from weights_bridge.compare import psnr_db
from weights_bridge.errors import BudgetMissedError, StageError

KNOWN = {"dtype": "fp32", "sentis": "2.6", "cache": {"kind": "joined"}}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", DECODER_TYPES)
def test_the_program_gives_the_onnx_files_numbers(exported, tmp_path, model_type):
    made = exported(model_type)
    figures = write_pt2(made.model, tmp_path / "m.pt2", made.onnx, made.contract)
    assert figures["psnr_db"] is None or figures["psnr_db"] > 100
    assert figures["bytes"] == (tmp_path / "m.pt2").stat().st_size


@pytest.mark.slow  # torch reads and runs two programs: 7 s
def test_a_program_of_other_weights_is_not_kept(exported, tmp_path):
    made = exported("llama")
    assert (write_pt2(made.model, tmp_path / "m.pt2", made.onnx, made.contract)["psnr_db"] or 200) > 100
    (tmp_path / "m.pt2").unlink()
    other = tmp_path / "other"
    other.mkdir()
    for path in made.model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    from safetensors.numpy import load_file, save_file

    weights = load_file(other / "model.safetensors")
    weights["model.norm.weight"] *= 1.01
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(BudgetMissedError, match="dB from the ONNX file"):
        write_pt2(other, tmp_path / "m.pt2", made.onnx, made.contract)
    assert not (tmp_path / "m.pt2").exists()


@pytest.mark.parametrize("change, message", [
    ({"dtype": "fp16"}, "float32"), ({"sentis": "2.4"}, "does not read it"), ({"cache": {"kind": "slots"}}, "growing"),
])  # fmt: skip
def test_what_it_cannot_be_is_refused_before_anything_is_traced(tmp_path, change, message):
    with pytest.raises(StageError, match=message):
        write_pt2(tmp_path, tmp_path / "m.pt2", tmp_path / "m.onnx", KNOWN | change)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_the_program_has_every_output_of_a_dynamic_batch_with_ids(exported, reference_logits, tmp_path, model_type):
    made = exported(model_type, argmax=True, batch="dynamic")
    figures = write_pt2(made.model, tmp_path / "m.pt2", made.onnx, made.contract)
    assert figures["psnr_db"] is None or figures["psnr_db"] > 100
    program = torch.export.load(tmp_path / "m.pt2").module()
    ids = np.random.default_rng(1).integers(6, 300, (3, 12))
    sees = torch.from_numpy(np.triu(np.full((12, 12), -1e9, np.float32), 1))[None, None].expand(3, 1, 12, 12)
    known, masks = made.contract["constants"], len(made.contract["masks"])
    empty = torch.zeros(3, known["kv_heads"], 0, known["head_dim"])
    given = torch.from_numpy(ids), torch.arange(12).expand(3, 12), (sees,) * masks, (empty,) * 2 * known["layers"]
    logits, *caches, token = program(*given)
    for query in (1, 2):  # without a cache torch's own guards want four tokens
        cut = given[0][:1, :query], given[1][:1, :query], (sees[:1, :, :query, :query],) * masks
        (first, *_) = program(*cut, (empty[:1],) * 2 * known["layers"])
        assert psnr_db(logits[:1, :query].numpy(), first.numpy()) > 100
    assert psnr_db(reference_logits(made.model, ids), logits.numpy()) > 100
    assert token.tolist() == logits[:, -1:].argmax(2).tolist() and len(caches) == 2 * known["layers"]


@pytest.mark.slow
def test_a_packed_directory_is_written_as_its_dequantised_weights(tmp_path, toy_model):
    packing = {"group_size": 32, "bits": 4, "mode": "affine"}
    packed = write_packed(toy_model("llama"), tmp_path / "packed", packing)
    answer = call("export", packed, "--out", tmp_path / "out", "--pt2")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "out" / "base.pt2").is_file()


@pytest.mark.slow
def test_the_command_writes_both(toy_model, tmp_path):
    answer = call("export", toy_model("llama"), "--out", tmp_path, "--pt2")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "base.pt2").is_file() and "not predicted for Sentis" in answer.stdout
