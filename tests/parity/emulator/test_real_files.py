"""Real ONNX files under the emulator, where `MLX_SENTIS_MODELS` names a folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from parity.runners.sentis import predicted_edge_b

MODELS = Path(os.environ.get("MLX_SENTIS_MODELS", "nowhere"))
BUDGET_DB = 90.0
SOUND = {  # file to the length of what its inputs leave open
    "openwakeword/alexa_v0.1.onnx": 16,
    "openwakeword/hey_mycroft_v0.1.onnx": 16,  # its LayerNorms are fused
    "openwakeword/embedding_model.onnx": 1,
    "openwakeword/melspectrogram.onnx": 16000,
    "blazeface-front/face_detection_front_128x128_barracuda.onnx": 1,
    "rapidocr/ch_ppocr_mobile_v2.0_cls_infer.onnx": 64,
    "silero-vad/silero_vad_openvino_16k.onnx": 576,
    "speechmos/dnsmos_models/model_v8.onnx": 64,
}
FAILING = {
    "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx": "OPERATOR.UNSUPPORTED",
    "table-edge-int8/edge_det_quantized.onnx": "OPERATOR.QUANTISED",
}
pytestmark = pytest.mark.slow


def inputs_of(path: Path, length: int) -> dict[str, np.ndarray]:
    """Return small random inputs; the first open size is one row, the others are of a length."""
    graph, rng = onnx.load(str(path), load_external_data=False).graph, np.random.default_rng(0)
    held, found = {tensor.name for tensor in graph.initializer}, {}
    for value in graph.input:
        tensor = value.type.tensor_type
        sizes = [dim.dim_value if dim.dim_value > 0 else length if at else 1 for at, dim in enumerate(tensor.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name not in held:
            found[value.name] = (rng.normal(size=sizes) / 10).astype(dtype)
    return found


def existing(name: str) -> Path:
    """Return a file's path, or skip by name."""
    if not (MODELS / name).is_file():
        pytest.skip(f"MLX_SENTIS_MODELS names no folder with {name}")
    return MODELS / name


@pytest.mark.parametrize("name", sorted(SOUND))
def test_a_real_file_is_predicted_to_compute_what_onnx_runtime_does(name: str):
    path = existing(name)
    edge = predicted_edge_b(path, inputs_of(path, SOUND[name]), BUDGET_DB)
    assert edge.prediction.verdict == "predicted", edge.prediction.reason
    assert edge.results and all(result.passed for result in edge.results), list(map(str, edge.results))


@pytest.mark.parametrize("name", sorted(FAILING))
def test_a_real_file_is_predicted_to_fail_for_its_own_reason(name: str):
    path = existing(name)
    edge = predicted_edge_b(path, inputs_of(path, 64), BUDGET_DB)
    assert edge.prediction.verdict == "import fails" and edge.prediction.reason.startswith(FAILING[name])
    assert not any(result.passed for result in edge.results)
