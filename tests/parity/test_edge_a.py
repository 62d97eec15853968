"""Edge A: the right graph passes, planted bugs fail and are named."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from parity.budgets import load_budgets
from parity.edge_a import error_by_layer, measure_edge_a, measure_fixture
from weights_bridge.compare import GateReport, GateResult
from weights_bridge.errors import StageError
from weights_bridge.settings import Settings

Row = dict[str, Any]


def measured(toy: Any, rows: list[Row], **changes: Any) -> GateReport:
    given = {"onnx": toy.onnx, "contract": toy.contract, "original": toy.model} | changes
    budgets = load_budgets(given["contract"]["architecture"])
    fixtures_to = given.pop("fixtures_to", None)
    return measure_edge_a(**given, rows=rows, budgets=budgets, settings=Settings(), fixtures_to=fixtures_to)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_an_export_passes_at_both_levels_and_every_token_is_equal(
    exported: Callable[[str], Any], rows: list[Row], model_type: str
) -> None:
    report = measured(exported(model_type), rows)
    assert report.passed
    names = {result.tensor for result in report.results}
    assert {f"{level} / row-130 / present.1.value" for level in ("off", "all")} <= names
    greedy = [result for result in report.results if result.tensor.startswith("greedy")]
    assert len(greedy) >= 2 and all(result.detail == "32 tokens equal" for result in greedy)
    assert list(report.facts["error_by_layer"]["optimisation all"]) == ["layer 0", "layer 1", "logits"]
    assert min(report.facts["worst_db"].values()) > 110


@pytest.mark.parametrize("model_type", ["llama", pytest.param("gemma3_text", marks=pytest.mark.slow)])
def test_an_fp16_graph_meets_the_fp32_budget_and_its_rounding_has_one_of_its_own(
    exported: Callable[..., Any], rows: list[Row], model_type: str
) -> None:
    report = measured(exported(model_type, dtype="fp16"), rows)
    assert report.passed
    assert min(report.facts["worst_db"].values()) > 110
    rounding = [result for result in report.results if result.tensor.startswith("fp16 weights / ")]
    assert len(rounding) == 3 and all(60 < (result.psnr_db or 0) < 100 for result in rounding)
    assert report.facts["stored_fp16"]["db"] == 60.0


def test_rounding_to_fp16_that_costs_too_much_fails_by_its_own_budget(
    exported: Callable[..., Any], rows: list[Row]
) -> None:
    toy = exported("llama", dtype="fp16")
    budgets = dataclasses.replace(load_budgets("llama"), stored_fp16_db=120.0)
    report = measure_edge_a(toy.onnx, toy.contract, toy.model, rows, budgets, Settings())
    assert {result.reason for result in report.failures} == {"below budget"}
    assert all(result.tensor.startswith("fp16 weights / ") for result in report.failures[-3:])


def test_swapped_heads_in_one_weight_are_found_in_their_layer(
    exported: Callable[[str], Any], rows: list[Row], swap_heads: Callable[..., None], tmp_path: Path
) -> None:
    toy = exported("llama")
    swap_heads(toy.onnx, tmp_path / "bug.onnx", "model.layers.1.self_attn.q_proj.weight")
    report = measured(toy, rows, onnx=tmp_path / "bug.onnx")
    first = report.failures[0]
    assert not report.passed
    assert (first.reason, first.where) == ("below budget", "layer 1 (self_attn.q_proj)")
    assert "model.layers.1.self_attn.q_proj.weight: 2048 of 4096 values differ" in first.detail
    assert any(result.reason == "token mismatch" for result in report.failures)


def test_a_sliding_mask_off_by_one_is_found_where_it_is_first_used(
    exported: Callable[[str], Any], rows: list[Row]
) -> None:
    toy = exported("gemma3_text")
    contract = copy.deepcopy(toy.contract)
    contract["constants"]["sliding_window"] += 1
    first = measured(toy, rows, contract=contract).failures[0]
    assert (first.reason, first.where) == ("below budget", "layer 0 (self_attn.o_proj)")
    assert "its weights are the original's" in first.detail


def test_weights_of_another_checkpoint_fail_from_the_first_norm_on(
    exported: Callable[[str], Any], rows: list[Row], tmp_path: Path
) -> None:
    from mlx_sentis.demo.toy import write_toy_model

    other = write_toy_model(tmp_path / "other", "llama", seed=5)
    report = measured(exported("llama"), rows, original=other)
    assert report.failures[0].where == "layer 0 (input_layernorm)"


def test_not_a_number_in_the_graph_fails_as_such(
    exported: Callable[[str], Any], rows: list[Row], tmp_path: Path
) -> None:
    toy, bad = exported("llama"), tmp_path / "nan.onnx"
    model = onnx.load(toy.onnx)
    (tensor,) = [t for t in model.graph.initializer if t.name == "model.norm.weight"]
    tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(64, np.nan, np.float32), tensor.name))
    onnx.save(model, bad)
    report = measured(toy, rows, onnx=bad)
    assert (report.failures[0].reason, report.failures[0].where) == ("nan", "logits")


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_a_missing_or_an_extra_output_fails_by_itself(
    exported: Callable[[str], Any], rows: list[Row], tmp_path: Path, change: str
) -> None:
    toy, odd = exported("llama"), tmp_path / "odd.onnx"
    model = onnx.load(toy.onnx)
    if change == "missing":
        del model.graph.output[-1]
    else:
        model.graph.output.append(onnx.ValueInfoProto(name="hidden"))
    onnx.save(model, odd)
    report = measured(toy, rows, onnx=odd)
    assert [result.reason for result in report.results] == ["not run"]
    name = "present.1.value" if change == "missing" else "hidden"
    assert f"output {name}: {change}" in report.results[0].detail


def test_ids_outside_the_vocabulary_are_refused(exported: Callable[[str], Any]) -> None:
    with pytest.raises(StageError, match="outside the vocabulary"):
        measured(exported("llama"), [{"ids": [1, 424]}])


def test_a_recorded_fixture_passes_on_its_graph_and_fails_on_another(
    exported: Callable[[str], Any], rows: list[Row], swap_heads: Callable[..., None], tmp_path: Path
) -> None:
    toy = exported("llama")
    measured(toy, rows, fixtures_to=tmp_path / "fixtures")
    fixture = tmp_path / "fixtures" / "row-40.npz"
    assert measure_fixture(toy.onnx, fixture, 100.0).passed
    swap_heads(toy.onnx, tmp_path / "bug.onnx", "model.layers.0.self_attn.k_proj.weight")
    report = measure_fixture(tmp_path / "bug.onnx", fixture, 100.0)
    assert {result.where for result in report.failures} >= {"layer 0 (present.0.key)", "logits"}
    report = measure_fixture(exported("gemma3_text").onnx, fixture, 100.0)
    assert ("missing", "input sliding_attention_mask") in {(r.reason, r.where) for r in report.failures}


def test_error_by_layer_takes_the_worst_of_each_depth_in_order() -> None:
    def result(where: str, db: float | None) -> GateResult:
        return GateResult(f"off / x / {where}", True, "within budget", psnr_db=db, where=where)

    places = [("logits", 90.0), ("layer 10 (present.10.key)", 100.0), ("layer 2 (present.2.key)", 120.0)]
    places += [("layer 2 (present.2.value)", 110.0), ("layer 0 (present.0.key)", None)]
    found = error_by_layer([result(*place) for place in places], "off / ")
    assert list(found.items()) == [("layer 0", None), ("layer 2", 110.0), ("layer 10", 100.0), ("logits", 90.0)]


def test_a_next_token_in_the_graph_is_measured_like_every_output(
    exported: Callable[..., Any], rows: list[Row], tmp_path: Path
) -> None:
    made = exported("llama", argmax=True)
    report = measured(made, rows)
    tokens = [result for result in report.results if result.tensor.endswith("next_token")]
    assert report.passed and tokens and all(result.reason == "exact" for result in tokens)
    model = onnx.load(str(made.onnx))
    next(node for node in model.graph.node if node.op_type == "ArgMax").op_type = "ArgMin"
    onnx.save(model, tmp_path / "least.onnx")
    wrong = [result.tensor for result in measured(made, rows, onnx=tmp_path / "least.onnx").failures]
    assert any(name.endswith("next_token") for name in wrong)
