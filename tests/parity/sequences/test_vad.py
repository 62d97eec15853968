"""Silero VAD over a real clip: the streamed graph against the full TorchScript model, with its 64-sample context.

Needs `silero-vad` and `asterisk-clips` in the folder that MLX_SENTIS_MODELS names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers import call

from parity.sequences.acceptance import measure_sequence
from parity.sequences.graph import open_graph
from parity.sequences.loop import NoContext, NoState, Reset, drive
from parity.sequences.spec import read_spec
from weights_bridge.compare import compare
from weights_bridge.files import read_json

MODELS = Path(os.environ.get("MLX_SENTIS_MODELS", "nowhere"))
VAD, CLIPS = MODELS / "silero-vad", MODELS / "asterisk-clips" / "wav"
CLIP = "demo-congrats.wav"
BUDGET = 90.0
SPEC = f"""schema = "mlx-sentis/sequence/1"
outputs = ["output"]

[signal]
input = "input"
chunk = 512
context = 64
rate = 16000
file = "{CLIPS / CLIP}"

[state]
state = "stateN"

[reference]
file = "{VAD / "silero_vad.jit"}"
method = "audio_forward"
arguments = [16000]
axis = 1
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (VAD.is_dir() and CLIPS.is_dir()), reason="needs silero-vad and asterisk-clips"),
]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vad") / "silero-vad.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph for 512 samples: the inner network, as an export without the context would be."""
    model = onnx.load(VAD / "silero_vad_openvino_16k.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 512
    del model.graph.value_info[:]
    path = tmp_path_factory.mktemp("inner") / "inner-512.onnx"
    onnx.save(model, path)
    return path


def test_the_graph_with_its_context_says_what_the_full_model_says_in_every_step(spec: Path, tmp_path: Path) -> None:
    words = ("parity", "--model", VAD / "silero_vad_openvino_16k.onnx", "--sequence", spec, "--out", tmp_path)
    result = call(*words)
    assert result.exit_code == 0, result.output
    report = read_json(tmp_path / "sequence.json")
    assert report["passed"] and report["worst_db"] > BUDGET
    heard = report["facts"]["reference_values"]["output"]
    assert len(heard) > 300 and max(heard) > 0.95 and min(heard) < 0.05  # speech and pauses
    names = [one["tensor"] for one in report["results"]]
    assert names[:2] == ["off / output", "all / output"]


def test_the_inner_network_agrees_on_one_frame_and_fails_on_the_clip(spec: Path, inner: Path, tmp_path: Path) -> None:
    import torch

    signal = np.random.default_rng(0).normal(0, 0.1, (1, 512)).astype(np.float32)
    state = np.zeros((2, 1, 128), np.float32)
    with torch.no_grad():
        whole: Any = torch.jit.load(str(VAD / "silero_vad.jit"), map_location="cpu").eval()
        wanted, _ = whole._model.forward(torch.from_numpy(signal), torch.from_numpy(state))
    found = open_graph(inner).step({"input": signal, "state": state})["output"]
    assert compare("one frame", wanted.numpy(), found, BUDGET).passed
    result = call("parity", "--model", inner, "--sequence", spec, "--out", tmp_path)
    assert result.exit_code == 3
    report = read_json(tmp_path / "sequence.json")
    ours = [one for one in report["results"] if one["tensor"].startswith(("off", "all"))]
    assert {one["reason"] for one in ours} == {"context dropped"} and report["worst_db"] < 20


@pytest.mark.parametrize("loop", [NoContext(), NoState(), Reset(at=60)])
def test_each_fault_of_a_loop_around_the_right_graph_is_told_from_the_others(spec: Path, loop: Any) -> None:
    from parity.sequences.reference import load_reference

    graph = VAD / "silero_vad_openvino_16k.onnx"
    read = read_spec(spec)
    signal, _ = load_reference(read, ("output",))
    outputs = drive(open_graph(graph), read, signal, loop)
    failures = measure_sequence(graph, read, BUDGET, recorded=outputs).report.failures
    assert [one.reason for one in failures] == [loop.reason]
