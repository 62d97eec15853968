"""`export --slots`: a cache of fixed length, written at slots, against transformers and the growing form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call

from converters import onnx_file
from converters.explain import explain
from converters.export import export_model
from converters.families.causal_lm import Slots
from converters.ort_session import open_session
from converters.scan import scan
from weights_bridge.compare import psnr_db
from weights_bridge.errors import StageError
from weights_bridge.settings import ExportSettings

LENGTH = 80  # slots; the prompt has 70 tokens, past the toy's window of 32


def run(graph: Path, contract: dict[str, Any], ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Feed `ids` [1, T] in calls of the contract's size; `places` [T] is the slot of each token."""
    session, known = open_session(graph, "all", threads=2), contract["constants"]
    names = [output.name for output in session.get_outputs()]
    length, query = contract["cache"]["length"], contract["cache"]["query"]
    shape = (1, known["kv_heads"], length, known["head_dim"])
    caches = {e["name"]: np.zeros(shape, np.float32) for e in contract["inputs"] if e["name"].startswith("past_")}
    at_slot, found = np.full(length, 10**6), []  # position of the token in each slot; empty ones lie ahead
    for start in range(0, ids.shape[1], query):
        positions = np.arange(start, start + query)
        at_slot[places[start : start + query]] = positions
        slots = (np.arange(length)[:, None] == places[start : start + query]).astype(np.float32)
        feed = {"input_ids": ids[:, start : start + query], "position_ids": positions[None]} | caches
        feed["cache_slots"] = slots[None, None]
        for name, kind in contract["masks"].items():
            seen = at_slot[None] <= positions[:, None]
            if kind == "sliding_attention":
                seen &= at_slot[None] > positions[:, None] - known["sliding_window"]
            feed[name] = np.where(seen, 0, contract["masked"]).astype(np.float32)[None, None]
        out = dict(zip(names, session.run(names, feed), strict=True))
        found.append(out["logits"])
        caches = {name: out[name.replace("past_key_values", "present")] for name in caches}
    return np.concatenate(found, axis=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(model_type, query) -> (model, graph, contract), each exported once."""
    from mlx_sentis.demo.toy import write_toy_model

    held: dict[tuple[str, int], tuple[Path, Path, dict[str, Any]]] = {}

    def make(model_type: str, query: int) -> tuple[Path, Path, dict[str, Any]]:
        if (model_type, query) not in held:
            folder = tmp_path_factory.mktemp("slots")
            model = write_toy_model(folder / "model", model_type)
            slots = Slots(LENGTH, query)
            contract = export_model(model, folder / "m.onnx", ExportSettings(), folder / "contract.json", slots)
            held[model_type, query] = (model, folder / "m.onnx", contract)
        return held[model_type, query]

    return make


KINDS = [("gemma3_text", 5)] + [
    pytest.param(*one, marks=pytest.mark.slow)
    for one in (("llama", 1), ("gemma2", 1), ("qwen3", 7), ("gemma3_text", 1))
]


@pytest.mark.parametrize("model_type, query", KINDS)
def test_logits_are_transformers_own_in_whatever_slots_tokens_lie(made, reference_logits, prompt, model_type, query):
    model, graph, contract = made(model_type, query)
    wanted = reference_logits(model, prompt)
    shuffled = np.random.default_rng(0).permutation(LENGTH)[: prompt.shape[1]]
    for places in (np.arange(prompt.shape[1]), shuffled):
        assert psnr_db(wanted, run(graph, contract, prompt, places)) > 100


def test_a_slot_that_is_written_twice_holds_the_second_token(made, prompt):
    _, graph, contract = made("gemma3_text", 5)
    once = run(graph, contract, prompt[:, :20], np.arange(20))
    twice = np.concatenate([np.arange(20), np.arange(20)])
    again = run(graph, contract, np.concatenate([prompt[:, 30:50], prompt[:, :20]], 1), twice)
    assert psnr_db(once[:, :5], again[:, 20:25]) < 60  # other positions
    assert np.isfinite(again).all()


def test_every_size_is_a_number_and_sentis_sees_no_shapes(made):
    _, graph, contract = made("gemma3_text", 5)
    sizes = [size for entry in (*contract["inputs"], *contract["outputs"]) for size in entry["shape"]]
    assert all(isinstance(size, int) for size in sizes)
    operators = {node.op_type for node in onnx_file.read_skeleton(graph).model.graph.node}
    assert not operators & {"Shape", "Concat", "Where", "Expand", "ScatterND", "Range"} - {"Concat"}
    assert [finding for finding in scan(graph) if finding.blocking] == []
    assert explain(graph).prediction.layers["RMSNormalization"]


def test_more_tokens_than_slots_and_several_rows_are_refused(tmp_path, toy_model):
    with pytest.raises(StageError, match="9 new tokens into 8 slots"):
        Slots(8, 9)
    with pytest.raises(StageError, match="for one row"):
        settings = ExportSettings(batch="dynamic")
        export_model(toy_model("llama"), tmp_path / "m.onnx", settings, tmp_path / "c.json", Slots(8))
    answer = call("export", toy_model("llama"), "--out", tmp_path, "--slots", 8, "--query", 9)
    assert answer.exit_code == 1 and "into 8 slots" in answer.stderr
