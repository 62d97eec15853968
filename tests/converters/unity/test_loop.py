"""The greedy loop in C#, compiled with Mono, its model run by ONNX Runtime: ids, inputs of every step, allocations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import Exported
from unity_engine import Engine
from unity_kit import Built, build_kit
from unity_loop import MOST, Loop, faults_of

from converters.unity.kit import write_kit
from mlx_sentis.evaluation.gate import first_token_margin
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder


@pytest.fixture(scope="module")
def loop(project: Any) -> Loop:
    return Loop(project.built.program("Loop"), project.folder)


@pytest.fixture(scope="module")
def reference(finished: RunFolder) -> OnnxDecoder:
    onnx = finished.path("onnx")
    return OnnxDecoder(onnx / "model.onnx", read_json(onnx / "contract.json"), threads=1)


@pytest.fixture(scope="module")
def prompts(reference: OnnxDecoder) -> list[list[int]]:
    """One prompt shorter than the window, whose answer crosses it, and one longer."""
    window = reference.contract["constants"]["sliding_window"]
    assert 3 < window <= 32
    numbers = np.random.default_rng(5)
    return [numbers.integers(10, 200, size).tolist() for size in (window - 2, 2 * window + 3)]


def stop_ids(run: RunFolder) -> list[int]:
    return read_json(run.path("prompt_contract.json"))["stop_ids"]


@pytest.mark.parametrize("polls", [False, True], ids=["waiting", "polled"])
@pytest.mark.parametrize("backend", ["CPU", "GPUCompute"])
def test_the_loop_chooses_the_ids_of_the_reference_and_makes_no_tensor_in_a_step(
    loop: Loop, reference: OnnxDecoder, prompts: list[list[int]], finished: RunFolder, backend: str, polls: bool
) -> None:
    assert all(len(reference.greedy(prompt, 12, stop_ids(finished)).ids) == 12 for prompt in prompts)
    again = [*prompts, prompts[0]]  # the second time with a cache and masks that were used
    assert faults_of(loop, reference, again, stop_ids(finished), backend, polls) == []


PLANTED: dict[str, tuple[str, str, str, str]] = {
    # what is planted: (source, old, new, the fault that must be found)
    "a tensor for each layer and token": (
        "KeyValueCache.cs",
        "worker.CopyOutput(ModelConstants.PresentNames[i], ref _tensors[i]);",
        "Tensor made = new Tensor<float>(ShapeOf(tokens));\n"
        "                worker.CopyOutput(ModelConstants.PresentNames[i], ref made);\n"
        "                _tensors[i].Dispose();\n                _tensors[i] = made;",
        "made: ",
    ),
    "the worker's own outputs fed back": (
        "KeyValueCache.cs",
        "worker.CopyOutput(ModelConstants.PresentNames[i], ref _tensors[i]);",
        "_tensors[i] = worker.PeekOutput(ModelConstants.PresentNames[i]);",
        "thrown: InvalidOperationException an output of an earlier Schedule",
    ),
    "a cache that is not cleared": ("GreedyDecoder.cs", "_cache.Clear();\n            _step", "_step", "thrown: "),
    "a place too far": (
        "StepInputs.cs",
        "_place[0] = past;",
        "_place[0] = past + 1;",
        "inputs: position_ids of step 1",
    ),
    "a window too wide": (
        "StepInputs.cs",
        "int last = past - window;",
        "int last = past - window - 1;",
        "inputs: sliding_attention_mask of step ",
    ),
    "a prompt's window too wide": (
        "PromptInputs.cs",
        "column > row - window",
        "column >= row - window",
        "inputs: sliding_attention_mask of step 0",
    ),
    "masks that remember the prompt before": (
        "GreedyDecoder.cs",
        "            _step.Clear();\n",
        "",
        "inputs: sliding_attention_mask of step ",
    ),
    "the first row instead of the last": ("LogitsReader.cs", "logits.shape.length - _row.Length", "0", "ids: "),
    "garbage in a step": (
        "StepInputs.cs",
        "_placeTensor.Upload(_place);",
        "_placeTensor.Upload(new[] { past });",
        "garbage: ",
    ),
    "a tensor that is not given back": ("StepInputs.cs", "            _idTensor.Dispose();\n", "", "left: 1 0"),
    "a worker that is not given back": ("GreedyDecoder.cs", "            _worker.Dispose();\n", "", "left: 0 1"),
    "outputs read before they are there": (
        "LogitsReader.cs",
        "logits.CompleteAllPendingOperations();",
        "",
        "thrown: InvalidOperationException Tensor data is still pending",
    ),
    "a prompt given back while it is read, polled": (
        "GreedyDecoder.cs",
        "            Schedule(promptIds.Count);\n",
        "            Schedule(promptIds.Count);\n            ForgetPrompt();\n",
        "waits: ",
    ),
    "a poll that waits, polled": (
        "LogitsReader.cs",
        "            _asked.ReadbackRequest();\n",
        "            _asked.ReadbackRequest();\n            _asked.CompleteAllPendingOperations();\n",
        "waits: ",
    ),
    "a step that is run again when it is polled": (
        "GreedyDecoder.cs",
        "            if (_isUnderWay || _isChosen)\n            {\n                return true;\n            }\n",
        "            if (_isChosen)\n            {\n                return true;\n            }\n",
        "",
    ),
    "a cache moved to the device when it is empty": (
        "KeyValueCache.cs",
        "ComputeTensorData.Pin(_tensors[i]);",
        "",
        "thrown: InvalidOperationException reshaped to ",
    ),
}


AT_ONCE = ("a tensor for each layer and token", "garbage in a step")


@pytest.mark.parametrize(
    "name", [name if name in AT_ONCE else pytest.param(name, marks=pytest.mark.slow) for name in PLANTED]
)
def test_a_planted_fault_of_the_loop_is_found(
    project: Any,
    stubs: Path,
    tmp_path: Path,
    reference: OnnxDecoder,
    prompts: list[list[int]],
    finished: RunFolder,
    name: str,
) -> None:
    source, old, new, wanted = PLANTED[name]
    altered = copied_kit(project, tmp_path, stubs, {f"Runtime/{source}": (old, new)})
    backend = "GPUCompute" if "device" in name else "CPU"
    loop = Loop(altered.program("Loop"), project.folder)
    asked = (loop, reference, [*reversed(prompts), prompts[0]], stop_ids(finished), backend)
    faults = faults_of(*asked, polls="polled" in name)
    assert any(fault.startswith(wanted) for fault in faults), faults


def copied_kit(project: Any, folder: Path, stubs: Path, edits: dict[str, tuple[str, str]]) -> Built:
    """Copy a kit's runtime, edit its sources, and compile it."""
    shutil.copytree(project.kit / "Runtime", folder / "kit" / "Runtime")
    for name, (old, new) in edits.items():
        path = folder / "kit" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, (name, text.count(old))
        path.write_text(text.replace(old, new), encoding="utf-8")
    return build_kit(folder / "kit", stubs, folder / "built", "MyGame.Npc")


@pytest.mark.parametrize("polls", [False, True], ids=["waiting", "polled"])
def test_the_margin_is_that_of_the_gate(
    loop: Loop, reference: OnnxDecoder, prompts: list[list[int]], polls: bool
) -> None:
    said, _, _ = loop(Engine(), *prompts, refusal=7, polls=polls)
    rows = [reference.greedy(prompt, 1, keep_logits=True).logits[0] for prompt in prompts]
    assert [one.margin for one in said] == [first_token_margin(row, 7) for row in rows]
    assert all(np.isnan(one.margin) for one in loop(Engine(), *prompts)[0])


def test_an_answer_ends_at_a_stop_id_at_the_callers_limit_or_where_the_cache_is_full(
    loop: Loop, reference: OnnxDecoder, prompts: list[list[int]], finished: RunFolder
) -> None:
    stops = stop_ids(finished)
    prompt = prompts[0]
    (cut,), _, _ = loop(Engine(), prompt, new=5)
    assert (cut.state, len(cut.ids)) == ("cut", 5)
    (full,), _, left = loop(Engine(), prompt, most=len(prompt) + 3, new=99)
    assert (full.state, left) == ("full", "0 0")
    assert full.ids == reference.greedy(prompt, 4, stops).ids  # the last id of a full cache is chosen, not run

    def stopping(outputs: dict[str, Any]) -> dict[str, Any]:
        if outputs["present.0.key"].shape[2] == len(prompt) + 2:
            outputs["logits"][:, -1, stops[-1]] = 1e6
        return outputs

    (done,), _, _ = loop(Engine(change=stopping), prompt)
    assert (done.state, done.ids) == ("done", reference.greedy(prompt, 2, stops).ids)


@pytest.mark.parametrize("backend", ["CPU", "GPUCompute"])
def test_a_prompt_begun_while_another_is_run_gets_its_own_answer(
    loop: Loop, reference: OnnxDecoder, prompts: list[list[int]], finished: RunFolder, backend: str
) -> None:
    said, thrown, left = loop(Engine(), *prompts, backend=backend, refusal=7, interrupts=True)
    assert (thrown, left) == ([], "0 0")
    for prompt, answer in zip(prompts, said, strict=True):
        found = reference.greedy(prompt, 12, stop_ids(finished), keep_logits=True)
        assert (answer.ids, answer.made) == (found.ids, 0)
        assert answer.margin == first_token_margin(found.logits[0], 7)


def test_equal_logits_give_the_first_id_and_nan_is_refused(loop: Loop, prompts: list[list[int]]) -> None:
    def flat(outputs: dict[str, Any]) -> dict[str, Any]:
        return outputs | {"logits": np.zeros_like(outputs["logits"])}

    def broken(outputs: dict[str, Any]) -> dict[str, Any]:
        return outputs | {"logits": np.full_like(outputs["logits"], np.nan)}

    (said,), _, _ = loop(Engine(change=flat), prompts[0], new=2)
    assert said.ids in ([0, 0], [])  # [] where 0 is a stop id
    for polls in (False, True):
        _, (thrown,), left = loop(Engine(change=broken), prompts[0], polls=polls)
        assert thrown.startswith("InvalidOperationException the model put out NaN")
        assert left == "0 0"


def test_prompts_that_cannot_be_run_are_refused(loop: Loop, reference: OnnxDecoder) -> None:
    vocabulary = reference.contract["constants"]["vocab"]
    engine = Engine()
    _, thrown, left = loop(engine, [], [vocabulary], [-1], [1] * (MOST + 1))
    assert [one.split(" ", 1)[1] for one in thrown] == [
        "the prompt has no ids",
        f"id {vocabulary} at 0 is none of the vocabulary",
        "id -1 at 0 is none of the vocabulary",
        f"the prompt has {MOST + 1} ids, there is room for {MOST}",
    ]
    assert (engine.runs, left) == ([], "0 0")


def test_a_model_that_puts_out_the_next_token_needs_no_logits(
    tmp_path: Path,
    prepared: RunFolder,
    exported: Callable[..., Exported],
    stubs: Path,
    finished_of: Callable[..., RunFolder],
) -> None:
    run = finished_of(exported("llama", argmax=True))
    write_kit(run, tmp_path / "Assets" / "Npc", "MyGame.Npc")
    built = build_kit(tmp_path / "Assets" / "Npc", stubs, tmp_path / "built", "MyGame.Npc")
    loop = Loop(built.program("Loop"), tmp_path)
    reference = OnnxDecoder(run.path("onnx", "model.onnx"), read_json(run.path("onnx", "contract.json")), threads=1)
    prompt = [5, 9, 77, 31, 8]
    row = reference.greedy(prompt, 1, keep_logits=True).logits[0]

    def without(outputs: dict[str, Any]) -> dict[str, Any]:
        return outputs | {"logits": np.full_like(outputs["logits"], np.nan)}

    for backend in ("CPU", "GPUCompute"):
        (said,), _, _ = loop(Engine(change=without), prompt, backend=backend)
        assert said.ids == reference.greedy(prompt, 12, stop_ids(run)).ids
        assert said.made == 0
        (asked,), _, _ = loop(Engine(), prompt, backend=backend, refusal=3)
        assert asked.margin == first_token_margin(row, 3)
