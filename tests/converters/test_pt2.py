"""`export --pt2`: torch's own program beside the ONNX file, with its numbers."""

from __future__ import annotations

import pytest
from helpers import call

from converters.pt2 import write_pt2
from mlx_sentis.demo.toy import DECODER_TYPES
from weights_bridge.errors import BudgetMissedError, StageError

KNOWN = {"dtype": "fp32", "sentis": "2.6", "cache": {"kind": "joined"}}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", DECODER_TYPES)
def test_the_program_gives_the_onnx_files_numbers(exported, tmp_path, model_type):
    made = exported(model_type)
    figures = write_pt2(made.model, tmp_path / "m.pt2", made.onnx, made.contract)
    assert figures["psnr_db"] is None or figures["psnr_db"] > 100
    assert figures["bytes"] == (tmp_path / "m.pt2").stat().st_size


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
def test_the_command_writes_both(toy_model, tmp_path):
    answer = call("export", toy_model("llama"), "--out", tmp_path, "--pt2")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "base.pt2").is_file() and "not predicted for Sentis" in answer.stdout
