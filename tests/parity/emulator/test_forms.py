"""Forms of the CPU backend against references of their own: known tables, documented figures, other implementations."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from parity.emulator import Prediction, predict
from parity.emulator.emulation import Emulation
from parity.emulator.operators.shapes import padded
from parity.emulator.operators.sorting import select
from parity.runners.sentis import onnx_outputs

One = Callable[..., Prediction]
Made = Callable[..., Path]
node = helper.make_node
INF, NAN = np.inf, np.nan


def f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def rules(found: Prediction) -> set[str]:
    return {one.rule for one in found.deviations}


def test_erf_is_off_by_what_abramowitz_and_stegun_state(one: One):
    x = np.linspace(-4, 4, 2001, dtype=np.float32)
    exact = np.array([math.erf(float(value)) for value in x])
    apart = np.abs(one("Erf", x).outputs["y"] - exact).max()
    assert 5e-8 < apart < 6e-7  # 1.5e-7 of the polynomial and float32 rounding
    assert one("Erf", f(0.0)).outputs["y"][0] == 0


def test_tanh_of_nan_is_one(one: One):
    found = one("Tanh", f(NAN, 20, -20, 0.5))
    np.testing.assert_allclose(found.outputs["y"], f(1, 1, -1, math.tanh(0.5)), rtol=1e-6)
    assert rules(found) == {"TANH.NAN"}


def test_leaky_relu_of_both_infinities(one: One):
    found = one("LeakyRelu", f(-INF, INF, -2, 3), alpha=0.1)
    np.testing.assert_allclose(found.outputs["y"], f(NAN, INF, -0.2, 3), rtol=1e-6)
    assert rules(found) == {"LEAKYRELU.INF"}


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_a_nan_gives_way_to_the_other_operand(one: One, op: str):
    found = one(op, f(NAN, 1, 5), f(2, NAN, 4))
    np.testing.assert_array_equal(found.outputs["y"], f(2, 1, 5 if op == "Max" else 4))
    assert rules(found) == {f"{op.upper()}.NAN"}


def test_clip_turns_nan_into_the_lower_bound(one: One):
    found = one("Clip", f(NAN, 9), np.float32(-1), np.float32(2))
    np.testing.assert_array_equal(found.outputs["y"], f(-1, 2))


def test_asinh_loses_its_digits_and_ends_at_minus_infinity(one: One):
    found = one("Asinh", f(-5000, -1, 2))
    np.testing.assert_allclose(found.outputs["y"][1:], np.arcsinh(f(-1, 2)), rtol=1e-5)
    assert found.outputs["y"][0] == -INF and "ASINH.NEGATIVE" in rules(found)


def test_a_float_beyond_int32_is_not_predicted(one: One):
    assert one("Cast", f(3e9), to=6).verdict == "not predicted"
    np.testing.assert_array_equal(one("Cast", f(-2.9, 2.9), to=6).outputs["y"], [-2, 2])


def test_a_division_of_integers_by_zero_is_not_predicted(one: One):
    assert one("Div", np.array([4], np.int32), np.array([0], np.int32)).verdict == "not predicted"
    np.testing.assert_array_equal(one("Div", np.array([-7], np.int32), np.array([2], np.int32)).outputs["y"], [-3])


def test_a_quotient_by_a_constant_is_a_product_with_its_inverse(one: One):
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    found = one("Div", x, np.float32(3.0), constants=(1,)).outputs["y"]
    np.testing.assert_array_equal(found, x * (np.float32(1) / np.float32(3)))
    assert (found != x / np.float32(3)).any()


# TopK


def as_written(row: np.ndarray, k: int) -> list[int]:
    """Select the smallest as the facts say it, on a list of pairs: another implementation of the same words."""
    kept: list[tuple[float, int]] = []
    threshold = -float(row[0])
    for index, value in enumerate(map(float, row)):
        if index and len(kept) == k and -value <= threshold:
            continue
        if len(kept) == k:
            kept.pop()
        kept.append((value, index))
        kept.sort(key=lambda pair: pair[0])  # stable: the lower index first among equals
        if index:
            threshold = min(-kept[-1][0], value)
    return [index for _, index in kept]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_smallest_are_selected_as_the_kernel_does(k: int):
    rng = np.random.default_rng(k)
    for _ in range(50):
        row = rng.integers(-6, 7, size=9).astype(np.float32)
        _, at = select(row[None], k, -1, largest=False)
        assert list(at[0]) == as_written(row, k)


def test_the_documented_example_of_topk(one: One):
    found = one("TopK", f(-2, -3, -1), np.array([1]), constants=(1,), largest=0)
    assert found.outputs["y"][0] == -1 and "TOPK.SMALLEST_NEGATIVE" in rules(found)
    positive = one("TopK", f(2, 3, 1), np.array([1]), constants=(1,), largest=0)
    assert positive.outputs["y"][0] == 1 and not rules(positive)


# Resize


def test_columns_that_nearest_takes_from_another_pixel_are_as_many_as_documented(made: Made):
    """64 to 96 columns with half_pixel and round_prefer_floor: 11 of 96 differ from ONNX Runtime."""
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 1, 64)
    nodes = [node("Resize", ["x", "", "s"], ["y"], mode="nearest")]
    model = made(nodes, {"x": (1, [1, 1, 1, 64])}, ["y"], {"s": f(1, 1, 1, 1.5)})
    found = predict(model, {"x": x})
    assert int((found.outputs["y"] != onnx_outputs(model, {"x": x})["y"]).sum()) == 11
    assert "RESIZE.NEAREST_TIES" in rules(found)


def test_a_size_that_float32_does_not_reach_is_one_smaller(made: Made):
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], mode="linear")]
    x = np.zeros((1, 1, 7, 1), np.float32)
    model = made(nodes, {"x": (1, list(x.shape))}, ["y"], {"s": np.array([1, 1, 31, 1])})
    assert predict(model, {"x": x}).outputs["y"].shape == (1, 1, 30, 1)


def test_a_size_that_depends_on_the_precision_of_the_run_time_is_not_predicted(made: Made):
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], mode="linear")]
    x = np.zeros((1, 1, 3, 1), np.float32)
    found = predict(made(nodes, {"x": (1, list(x.shape))}, ["y"], {"s": np.array([1, 1, 5, 1])}), {"x": x})
    assert found.verdict == "not predicted" and "double" in found.reason


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_linear_of_power_of_two_sizes_is_onnx_runtimes(made: Made, mode: str):
    x = np.random.default_rng(1).normal(size=(1, 2, 8, 4)).astype(np.float32)
    nodes = [node("Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode=mode)]
    model = made(nodes, {"x": (1, list(x.shape))}, ["y"], {"s": f(1, 1, 2, 0.5)})
    np.testing.assert_allclose(
        predict(model, {"x": x}).outputs["y"], onnx_outputs(model, {"x": x})["y"], rtol=1e-5, atol=1e-6
    )


# spectra


def test_the_angles_of_a_dft_are_off_by_about_a_thousandth_at_1024(made: Made):
    x = np.zeros((1, 1024, 1), np.float32)
    x[0, 1000] = 1
    nodes = [node("DFT", ["x", "", "axis"], ["y"])]
    found = predict(made(nodes, {"x": (1, [1, 1024, 1])}, ["y"], {"axis": np.array(1)}, 20), {"x": x})
    exact = np.fft.fft(x[0, :, 0].astype(np.float64))
    apart = np.abs(found.outputs["y"][0, :, 0] + 1j * found.outputs["y"][0, :, 1] - exact).max()
    assert 1e-5 < apart < 2e-3 and "DFT.TWIDDLES" in rules(found)


def test_a_window_is_right_only_where_its_size_is_the_first_input(made: Made):
    size = np.array(8, np.int64)
    model = made([node("HannWindow", ["n"], ["y"])], {"n": (7, [])}, ["y"])
    np.testing.assert_allclose(predict(model, {"n": size}).outputs["y"], np.hanning(9)[:8], atol=1e-6)
    nodes = [node("HannWindow", ["n"], ["w"]), node("Mul", ["x", "w"], ["y"])]
    model = made(nodes, {"x": (1, [8]), "n": (7, [])}, ["y"])
    found = predict(model, {"x": np.ones(8, np.float32), "n": size})
    assert found.verdict == "not predicted" and "first tensor" in found.reason
    nodes = [node("HannWindow", ["n"], ["w"]), node("Cast", ["m"], ["f"], to=1), node("Mul", ["w", "f"], ["y"])]
    model = made(nodes, {"m": (6, [1]), "n": (7, [])}, ["y"])
    other = predict(model, {"m": np.array([4], np.int32), "n": size})
    np.testing.assert_allclose(other.outputs["y"], 4 * np.hanning(5)[:4], atol=1e-6)
    assert "HANNWINDOW.INDEX" in rules(other)


@pytest.mark.parametrize(("length", "verdict"), [(4, "predicted"), (5, "predicted"), (7, "not predicted")])
def test_half_a_size_is_predicted_where_rounding_to_even_and_cutting_off_agree(made: Made, length: int, verdict: str):
    half = [node("Cast", ["n"], ["f"], to=1), node("Mul", ["f", "c"], ["g"]), node("Cast", ["g"], ["i"], to=7)]
    nodes = [node("Shape", ["x"], ["n"]), *half, node("Expand", ["one", "i"], ["y"])]
    held = {"c": np.array([0.5], np.float32), "one": np.array([1], np.float32)}
    found = predict(made(nodes, {"x": (1, [length])}, ["y"], held), {"x": np.ones(length, np.float32)})
    assert found.verdict == verdict
    if verdict == "predicted":
        assert found.outputs["y"].shape == (2,)
    else:
        assert "rounds to even" in found.reason


def test_stft_of_a_signal_with_channels_is_numpys(made: Made):
    x = np.random.default_rng(2).normal(size=(1, 64, 1)).astype(np.float32)
    held = {"step": np.array(8), "window": np.hanning(16).astype(np.float32), "length": np.array(16)}
    nodes = [node("STFT", ["x", "step", "window", "length"], ["y"], onesided=0)]
    found = predict(made(nodes, {"x": (1, [1, 64, 1])}, ["y"], held, 17), {"x": x}).outputs["y"]
    frames = np.stack([x[0, at : at + 16, 0] * held["window"] for at in range(0, 49, 8)])
    exact = np.fft.fft(frames)
    np.testing.assert_allclose(found[0, ..., 0], exact.real, atol=1e-4)
    np.testing.assert_allclose(found[0, ..., 1], exact.imag, atol=1e-4)


# shapes


def test_a_reflection_stops_at_the_end_of_the_axis():
    x = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(padded(x, np.array([0, 2, 0, 2]), 0, None, "reflect"), [[3, 2, 1, 2, 3, 2, 1]])
    np.testing.assert_array_equal(padded(x, np.array([0, 4, 0, 0]), 0, None, "reflect"), [[3, 3, 3, 2, 1, 2, 3]])
    np.testing.assert_array_equal(padded(x, np.array([0, 0, 0, 4]), 0, None, "reflect"), [[1, 2, 3, 2, 1, 1, 1]])


@pytest.mark.parametrize(("op", "given"), [("DepthToSpace", {"mode": "DCR"}), ("DepthToSpace", {"mode": "CRD"}),
                                           ("SpaceToDepth", {})])  # fmt: skip
def test_integers_move_between_depth_and_space_as_floats_do(one: One, op: str, given: dict[str, str]):
    x = np.arange(8 * 4 * 6, dtype=np.int32).reshape(1, 8, 4, 6)
    floats = one(op, x.astype(np.float32), blocksize=2, **given).outputs["y"]
    found = one(op, x + 2**25, blocksize=2, **given).outputs["y"]
    np.testing.assert_array_equal(found, floats.astype(np.int32) + 2**25)


def test_an_unknown_mode_is_replaced_as_the_importer_does(one: One):
    x = np.arange(8 * 2 * 2, dtype=np.float32).reshape(1, 8, 2, 2)
    found = one("DepthToSpace", x, blocksize=2, mode="XYZ")
    np.testing.assert_array_equal(found.outputs["y"], one("DepthToSpace", x, blocksize=2, mode="CRD").outputs["y"])
    assert "ATTRIBUTE.MODE" in rules(found)


def test_sizes_that_the_model_leaves_open_are_decided_by_the_inputs(made: Made):
    nodes = [node("AveragePool", ["x"], ["y"], kernel_shape=[3], strides=[2], ceil_mode=1)]
    model = made(nodes, {"x": (1, [1, 1, "n"])}, ["y"])
    assert rules(predict(model, {"x": np.ones((1, 1, 8), np.float32)})) == {"AVGPOOL.CEIL"}
    assert not rules(predict(model, {"x": np.ones((1, 1, 9), np.float32)}))


def test_an_uneven_split_has_a_smaller_last_part(made: Made):
    model = made([node("Split", ["x"], ["a", "y"], axis=0)], {"x": (1, [5])}, ["y"], opset=13)
    np.testing.assert_array_equal(predict(model, {"x": f(1, 2, 3, 4, 5)}).outputs["y"], f(4, 5))


def test_a_mask_that_only_the_caller_would_read_is_dropped_and_one_that_a_node_reads_fails(made: Made):
    nodes = [node("Dropout", ["x"], ["y", "mask"], "drop")]
    found = predict(made(nodes, {"x": (1, [2])}, ["y", "mask"], opset=13), {"x": f(1, 2)})
    assert found.verdict == "predicted" and set(found.outputs) == {"y"} and "dropped" in found.unpredicted["mask"]
    found = predict(made(nodes[:1], {"x": (1, [2])}, ["y", "nobody"], opset=13), {"x": f(1, 2)})
    assert found.verdict == "predicted" and "dropped" in found.unpredicted["nobody"]
    nodes += [node("Cast", ["mask"], ["z"], to=1)]
    found = predict(made(nodes, {"x": (1, [2])}, ["y", "z"], opset=13), {"x": f(1, 2)})
    assert found.verdict == "import fails" and "DROPOUT.MASK" in found.reason


# layers that the optimiser makes


def test_truncated_division_has_no_pass_through_int32(made: Made):
    nodes = [
        node("Div", ["a", "b"], ["q"]),
        node("Cast", ["q"], ["i"], to=6),
        node("Cast", ["i"], ["y"], to=1),
    ]
    model = made(nodes, {"a": (1, [2]), "b": (1, [2])}, ["y"])
    found = predict(model, {"a": f(-7e9, 7), "b": f(2, -2)})
    np.testing.assert_array_equal(found.outputs["y"], f(-3.5e9, -3))
    assert "FUSION.TRUNCDIV" in rules(found)


FUSED = {
    "Swish": [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])],
    "Rsqrt": [node("Sqrt", ["x"], ["s"]), node("Reciprocal", ["s"], ["y"])],
    "FloorDiv": [node("Div", ["x", "two"], ["s"]), node("Floor", ["s"], ["y"])],
    "Gelu": [
        node("Div", ["x", "root"], ["a"]),
        node("Erf", ["a"], ["b"]),
        node("Add", ["b", "one"], ["c"]),
        node("Mul", ["x", "c"], ["d"]),
        node("Mul", ["d", "half"], ["y"]),
    ],
    "RMSNormalization": [
        node("Pow", ["x", "exponent"], ["a"]),
        node("ReduceMean", ["a", "last"], ["b"]),
        node("Add", ["b", "eps"], ["c"]),
        node("Sqrt", ["c"], ["d"]),
        node("Div", ["one", "d"], ["e"]),
        node("Mul", ["x", "e"], ["g"]),
        node("Mul", ["scale", "g"], ["y"]),
    ],
}
HELD = {
    "two": f(2.5, 2.5, 2.5, 2.5),
    "root": np.array(math.sqrt(2), np.float32),
    "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
    "exponent": np.array(2, np.float32),
    "eps": np.array(1e-5, np.float32),
    "last": np.array([-1]),
    "scale": f(1, 2, 3, 4),
}


@pytest.mark.parametrize("layer", sorted(FUSED))
def test_a_fused_chain_computes_what_the_chain_does_up_to_rounding(made: Made, layer: str):
    from converters import onnx_file
    from converters.facts import facts
    from parity.emulator.importer import fused_layers

    nodes = FUSED[layer]
    read = {name for one in nodes for name in one.input}
    model = made(nodes, {"x": (1, [3, 4])}, ["y"], {name: array for name, array in HELD.items() if name in read})
    x = np.abs(np.random.default_rng(3).normal(size=(3, 4))).astype(np.float32) + 0.1
    fused = fused_layers(onnx_file.read_skeleton(model).model, facts("2.6"))
    assert fused["y"][0].op == layer
    case = Emulation(model).declared
    assert case.made is not None
    assert not {name for one in nodes[:-1] for name in one.output} & set(case.made.graph.kinds)  # they are no layers
    np.testing.assert_allclose(
        predict(model, {"x": x}).outputs["y"], onnx_outputs(model, {"x": x})["y"], rtol=2e-6, atol=1e-6
    )


def test_a_pattern_that_throws_fails_the_import(made: Made):
    nodes = FUSED["RMSNormalization"]
    held = {name: array for name, array in HELD.items() if name in {n for one in nodes for n in one.input} - {"eps"}}
    model = made(nodes, {"x": (1, [3, 4]), "eps": (1, [1])}, ["y"], held)
    found = predict(model, {"x": np.ones((3, 4), np.float32), "eps": f(1e-5)})
    assert found.verdict == "import fails" and "throws" in found.reason


# what planted faults had got past


@pytest.mark.parametrize(("op", "wanted"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
def test_a_reduction_over_nothing_is_infinite_where_one_over_infinities_only_is_not(op: str, wanted: float, one: One):
    empty = one(op, np.zeros((2, 0), np.float32), np.array([1]), constants=(1,), keepdims=0)
    np.testing.assert_array_equal(empty.outputs["y"], np.full(2, wanted, np.float32))
    assert f"{op.upper()}.INF" not in rules(empty)
    full = one(op, np.full((2, 3), wanted, np.float32), np.array([1]), constants=(1,), keepdims=0)
    np.testing.assert_array_equal(full.outputs["y"], np.full(2, np.sign(wanted) * np.finfo(np.float32).max))


def test_a_fraction_below_one_that_becomes_a_bool_is_told(made: Made):
    nodes = [node("Cast", ["x"], ["b"], to=9), node("Cast", ["b"], ["y"], to=1)]
    model = made(nodes, {"x": (1, [2])}, ["y"])
    assert "CAST.TO_BOOL" in rules(predict(model, {"x": f(0.7, 1)}))  # cut off to 0, where ONNX has true
    assert "CAST.TO_BOOL" not in rules(predict(model, {"x": f(0, 1)}))


PLANE = (np.arange(16, dtype=np.float32) * 7 % 5).reshape(1, 1, 4, 4)
MODES: list[tuple[str, dict[str, Any], str, str, list[np.ndarray]]] = [
    # operator, attributes, the one whose mode nobody knows, what Sentis takes instead, arrays
    ("GridSample", {}, "padding_mode", "zeros", [PLANE, np.full((1, 2, 2, 2), 1.5, np.float32)]),
    ("GridSample", {}, "mode", "linear", [PLANE, np.full((1, 2, 2, 2), 0.3, np.float32)]),
    ("Pad", {}, "mode", "constant", [PLANE, np.array([0, 0, 1, 1, 0, 0, 1, 1])]),
    ("DepthToSpace", {"blocksize": 2}, "mode", "CRD", [np.concatenate([PLANE + at for at in range(8)], 1)]),
    ("AveragePool", {"kernel_shape": [3, 3]}, "auto_pad", "NOTSET", [PLANE]),
    ("Resize", {}, "nearest_mode", "round_prefer_floor", [PLANE, f(), f(1, 1, 1.5, 1.5)]),
    (
        "ScatterElements",
        {"axis": 3},
        "reduction",
        "none",
        [PLANE, np.zeros((1, 1, 4, 1), np.int64), PLANE[..., :1] + 9],
    ),
]


@pytest.mark.parametrize(("op", "given", "attribute", "instead", "arrays"), MODES)
def test_a_mode_that_nobody_knows_is_the_one_that_the_facts_name(
    op: str, given: dict[str, Any], attribute: str, instead: str, arrays: list[np.ndarray], one: One
):
    held = tuple(range(1, len(arrays))) if op in ("Pad", "Resize", "ScatterElements") else ()
    known, unknown = (
        one(op, *arrays, constants=held, **given, **{attribute: mode}) for mode in (instead, "nobody's mode")
    )
    assert known.verdict == unknown.verdict == "predicted", unknown.reason
    np.testing.assert_array_equal(unknown.outputs["y"], known.outputs["y"])
