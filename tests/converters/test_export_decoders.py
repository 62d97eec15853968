"""The decoders that `test_export` leaves out: a toy export of each takes ten seconds."""

from __future__ import annotations

import pytest

from weights_bridge.compare import psnr_db

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model_type", ["mistral"])
def test_logits_equal_transformers_beyond_100_db(exported, reference_logits, prompt, model_type):
    made = exported(model_type)
    wanted = reference_logits(made.model, prompt)
    assert psnr_db(wanted, made.logits(prompt, [70], "all")) > 100
    assert psnr_db(wanted, made.logits(prompt, [29, 1, 1, 1, 1, 20, 1, 1, 15])) > 100


def test_a_packed_directory_is_exported_as_its_dequantised_weights(tmp_path, prompt):
    import onnx
    from exports import read_export
    from helpers import write_packed

    from converters.export import export_model
    from mlx_sentis.demo.toy import write_toy_model
    from parity.runners.torch_causal_lm import TorchCausalLM
    from weights_bridge.model_folder import open_base
    from weights_bridge.settings import ExportSettings

    packed = write_packed(
        write_toy_model(tmp_path / "toy", "llama"), tmp_path / "packed", {"group_size": 32, "bits": 4, "mode": "affine"}
    )
    export_model(packed, tmp_path / "base.onnx", ExportSettings(), tmp_path / "contract.json")
    made = read_export(packed, tmp_path)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(made.onnx)).graph.initializer}
    for name, array in open_base(packed).tensors():
        turned = made.contract["initialisers"][name]["transform"] == "transpose"
        assert (stored[name].T if turned else stored[name]).tobytes() == array.tobytes()
    wanted = TorchCausalLM(packed).forward(prompt[0].tolist()).logits
    assert psnr_db(wanted, made.logits(prompt, [70])) > 100
