"""The answer of `predict`: verdicts, kinds, constants, deviations with where they come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from parity.emulator import Prediction, predict
from weights_bridge.errors import StageError

Made = Callable[..., Path]
One = Callable[..., Prediction]
node = helper.make_node


def test_a_plain_graph_gives_what_onnx_runtime_gives(made: Made) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "b"], ["y"])]
    model = made(nodes, {"x": (1, ["n", 4])}, ["y"], {"w": weight, "b": np.ones(3, np.float32)})
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    found = predict(model, {"x": x})
    assert found.verdict == "predicted" and not found.deviations
    np.testing.assert_allclose(found.outputs["y"], x @ weight + 1, rtol=1e-6)


def test_relu_of_minus_infinity_is_nan_and_says_where_that_was_read(one: One) -> None:
    found = one("Relu", np.array([-np.inf, -1.0, 2.0], np.float32))
    np.testing.assert_array_equal(found.outputs["y"], np.array([np.nan, 0.0, 2.0], np.float32))
    (deviation,) = found.deviations
    assert (deviation.rule, deviation.node, deviation.output) == ("RELU.INF", "node", "y")
    assert deviation.confidence == "read in 2.4, not verified for 2.6" and "12c709b" in deviation.source


def test_a_version_that_was_read_is_sure_of_its_kernels(one: One) -> None:
    found = one("Relu", np.array([-np.inf], np.float32), opset=15, version="2.4")
    assert [deviation.confidence for deviation in found.deviations] == ["read in 2.4"]
    assert one("Relu", np.ones(1, np.float32), opset=18, version="2.4").verdict == "not predicted"  # 7 to 15


def test_relu_of_finite_numbers_deviates_nowhere(one: One) -> None:
    found = one("Relu", np.array([-3.0, 2.0], np.float32))
    np.testing.assert_array_equal(found.outputs["y"], np.array([0.0, 2.0], np.float32))
    assert not found.deviations


def test_what_the_scanner_calls_an_error_fails_to_import(one: One) -> None:
    found = one("Relu", np.array([1, 2], np.int32))
    assert found.verdict == "import fails" and "RELU.INT_INPUT" in found.reason and not found.outputs


def test_integers_are_int32_saturated_and_wrap(made: Made) -> None:
    nodes = [node("Add", ["x", "c"], ["y"]), node("Identity", ["c"], ["z"])]
    model = made(nodes, {"x": (TensorProto.INT64, [2])}, ["y", "z"], {"c": np.array([2**40, 1], np.int64)})
    found = predict(model, {"x": np.array([1, 2**31 - 1], np.int64)})
    assert found.outputs["y"].dtype == np.int32
    np.testing.assert_array_equal(found.outputs["z"], [2**31 - 1, 1])
    np.testing.assert_array_equal(found.outputs["y"], [-(2**31), -(2**31)])
    assert {"INT64.RANGE", "INT64.WRAP"} <= {one.rule for one in found.deviations}


def test_a_bool_input_is_an_int_and_and_works_on_all_its_bits(made: Made) -> None:
    model = made([node("And", ["a", "b"], ["y"])], {"a": (9, [3]), "b": (9, [3])}, ["y"])
    given = {"a": np.array([2, 1, 1], np.int32), "b": np.array([1, 1, 0], np.int32)}
    found = predict(model, given)
    np.testing.assert_array_equal(found.outputs["y"], [0, 1, 0])
    assert [one.rule for one in found.deviations] == ["AND.NONBOOL"]


def test_what_is_not_known_is_not_predicted(one: One) -> None:
    found = one("Gather", np.arange(3, dtype=np.float32), np.array([7], np.int64))
    assert found.verdict == "not predicted" and "garbage" in found.reason and not found.outputs


def test_an_output_that_is_not_known_leaves_the_others_predicted(made: Made) -> None:
    nodes = [node("RandomNormalLike", ["x"], ["r"]), node("Abs", ["x"], ["y"]), node("Neg", ["r"], ["z"])]
    found = predict(made(nodes, {"x": (1, [2])}, ["y", "z"]), {"x": np.array([-1, 1], np.float32)})
    assert found.verdict == "predicted" and set(found.outputs) == {"y"}
    assert "RandomNormalLike" in found.unpredicted["z"]


def test_only_the_wanted_outputs_are_computed(made: Made) -> None:
    nodes = [node("Abs", ["x"], ["y"]), node("Gather", ["x", "i"], ["z"])]
    model = made(nodes, {"x": (1, [2]), "i": (7, [1])}, ["y", "z"])
    given = {"x": np.array([-1, 1], np.float32), "i": np.array([9], np.int64)}
    assert predict(model, given, outputs=["y"]).verdict == "predicted"
    assert predict(model, given).verdict == "not predicted"


def test_wrong_names_are_the_users_mistake(made: Made) -> None:
    model = made([node("Abs", ["x"], ["y"])], {"x": (1, [2])}, ["y"])
    with pytest.raises(StageError, match="missing: x"):
        predict(model, {"z": np.zeros(2, np.float32)})
    with pytest.raises(StageError, match=r"x: found \(3\), wanted \(2\)"):
        predict(model, {"x": np.zeros(3, np.float32)})
    with pytest.raises(StageError, match="unknown output"):
        predict(model, {"x": np.zeros(2, np.float32)}, outputs=["q"])
    with pytest.raises(StageError, match="not predicted"):
        predict(model, {"x": np.zeros(2, np.float32)}, "3.0")


def test_a_scalar_input_stays_of_rank_0(made: Made) -> None:
    model = made([node("Shape", ["x"], ["y"]), node("Identity", ["x"], ["z"])], {"x": (1, [])}, ["y", "z"])
    found = predict(model, {"x": np.array(3, np.float32)})
    assert found.outputs["y"].shape == (0,) and found.outputs["z"].shape == ()


def test_a_negative_index_counts_from_the_end_and_one_before_the_start_is_not_predicted(one: One) -> None:
    x = np.arange(3, dtype=np.float32)
    assert one("Gather", x, np.array([-3], np.int64)).outputs["y"][0] == 0
    assert one("Gather", x, np.array([-4], np.int64)).verdict == "not predicted"
