from __future__ import annotations

import numpy as np
import pytest
from scan_cases import IMAGE, graph

TWICE = "float[4] s = {1,1,2,2}"
UP, DOWN, SIZES = "float[4] s = {1,1,2,1.5}", "float[4] s = {1,1,0.5,0.75}", "int64[4] s = {1,3,13,5}"


@pytest.mark.parametrize("init, given", [(UP, "x, , s"), (DOWN, "x, , s"), (SIZES, "x, , , s")])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_cubic_becomes_products(mended, init, given, mode):
    body = f'y = Resize<mode="cubic", coordinate_transformation_mode="{mode}", cubic_coeff_a=-0.5>({given})'
    tried = mended("resize", graph(body, IMAGE, init=init))
    assert "RESIZE.CUBIC" in tried.before and tried.operators == ["MatMul", "MatMul"]


def test_coordinates_that_sentis_does_not_know(mended):
    body = 'y = Resize<mode="linear", coordinate_transformation_mode="half_pixel_symmetric">(x, , , s)'
    tried = mended("resize", graph(body, IMAGE, 19, init=SIZES))
    assert "RESIZE.COORD" in tried.before


def test_antialiasing_is_in_the_matrix(mended):
    tried = mended("resize", graph('y = Resize<mode="linear", antialias=1>(x, , s)', IMAGE, 18, init=DOWN))
    assert "RESIZE.DOWN_LINEAR" in tried.before


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("init, given", [(UP, "x, , s"), (SIZES, "x, , , s")])
def test_nearest_with_ties_becomes_exact_gathers(mended, rounding, init, given):
    body = f'y = Resize<mode="nearest", nearest_mode="{rounding}">({given})'
    tried = mended("resize", graph(body, IMAGE, init=init))
    assert set(tried.operators) == {"Gather"} and set(tried.levels.values()) == {None}


def test_axes_and_five_dimensions(mended):
    body = 'y = Resize<mode="linear", axes=[2,4]>(x, , s)'
    tried = mended("resize", graph(body, "float[1,2,5,3,4] x", 18, init="float[2] s = {2,2}"))
    assert "RESIZE.AXES_SCALES" in tried.before and tried.operators.count("Transpose") == 2


def test_sizes_that_float32_misses(mended):
    body = 'y = Resize<mode="linear">(x, , , s)'
    tried = mended("resize", graph(body, "float[1,3,7,7] x", init="int64[4] s = {1,3,31,31}"))
    assert "RESIZE.SIZES_ROUNDING" in tried.before


def test_scales_of_opset_10(mended):
    mended("resize", graph('y = Resize<mode="nearest">(x, s)', IMAGE, 10, init=UP))


@pytest.mark.parametrize(
    "body, inputs, init, reason",
    [
        ('y = Resize<mode="linear">(x, , s)', IMAGE, "float[4] s = {1,1,2,2}", ""),
        ('y = Resize<mode="cubic">(x, , s)', 'float[1,3,"h",8] x', UP, "size of axis 2 is not known"),
        ('y = Resize<mode="cubic">(x, , s)', 'float[1,"c","h",8] x', TWICE, "its channels are not known"),
        ('y = Resize<mode="cubic", exclude_outside=1>(x, , s)', 'float[1,3,"h",8] x', TWICE, "weights change"),
        (
            'y = Resize<mode="cubic", coordinate_transformation_mode="align_corners">(x, , s)',
            'float[1,3,"h",8] x', TWICE, "weights change with the size",
        ),
        ('y = Resize<mode="cubic">(x, , s)', f"{IMAGE}, float[4] s", "", "are not known"),
        ('y = Resize<mode="cubic">(x, , , s)', IMAGE, "int64[4] s = {1,3,9000,8}", "too large"),
        (
            'y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(x, r, , s)',
            f"{IMAGE}, float[8] r", "int64[4] s = {1,3,9,9}", "its region is not known",
        ),
    ],
)  # fmt: skip
def test_it_must_not_fire(left, body, inputs, init, reason):
    assert reason in left("resize", graph(body, inputs, init=init))


SKIP = """
    s = Shape(skip) h = Slice(s, two, end, zero) xs = Shape(x) n = Slice(xs, zero, two, zero)
    size = Concat<axis=0>(n, h) {more} y = Resize<mode="cubic">(x, e, e, {to})
"""
THROUGH_FLOATS = "f = Cast<to=1>(size) g = Mul(f, k) c = Floor(g) i = Cast<to=7>(c)"
BOUNDS = "int64[1] zero = {0}, int64[1] two = {2}, int64[1] end = {9223372036854775807}"


@pytest.mark.parametrize(
    "more, to, x, skip",
    [
        ("", "size", "float[1,3,5,4] x", "float[1,3,18,20] skip"),
        ("", "size", 'float["n",3,5,4] x', "float[1,3,18,20] skip"),  # the batch is handed on, whatever it is
        (
            "f = Cast<to=1>(size) g = Mul(f, k) c = Floor(g) i = Cast<to=7>(c)",
            "i",
            "float[2,2,5,4] x",
            "float[2,2,9,7] skip",
        ),
    ],
)
def test_sizes_that_are_computed_from_shapes(mended, more, to, x, skip):
    init = f"{BOUNDS}, float[1] k = {{1.0}}"
    body = "e = Constant<value = float[0] {}>()" + SKIP.format(more=more, to=to)
    tried = mended("resize", graph(body, f"{x}, {skip}", 13, init=init))
    assert "RESIZE.CUBIC" in tried.before and tried.operators.count("MatMul") == 2


def test_a_size_that_only_a_run_tells_is_left_with_the_way_out(left):
    body = "e = Constant<value = float[0] {}>()" + SKIP.format(more="", to="size")
    told = left("resize", graph(body, 'float[1,3,5,4] x, float[1,3,"h",20] skip', 13, init=BOUNDS))
    assert "new size of axis 2 is not known" in told and "graph fix-shape" in told


@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "asymmetric"])
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_cubic_growth_by_a_whole_number_of_a_picture_of_any_size_is_a_convolution(mended, mode, scale):
    body = f'y = Resize<mode="cubic", coordinate_transformation_mode="{mode}", cubic_coeff_a=-0.5>(x, , s)'
    inputs = {"x": np.random.default_rng(3).normal(size=(2, 3, 6, 5)).astype(np.float32)}
    init = f"float[4] s = {{1,1,{scale},{scale}}}"
    tried = mended("resize", graph(body, 'float["n",3,"h","w"] x', 13, init=init), inputs=inputs)
    assert "RESIZE.CUBIC" in tried.before and tried.operators == ["Pad", "Conv", "DepthToSpace"] and not tried.after


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 3)])
def test_the_convolution_meets_the_smallest_pictures(mended, size):
    inputs = {"x": np.arange(2 * size[0] * size[1], dtype=np.float32).reshape(1, 2, *size)}
    mended("resize", graph('y = Resize<mode="cubic">(x, , s)', 'float[1,2,"h","w"] x', 13, init=TWICE), inputs=inputs)


REGION = "float[8] r = {0,0,0.4,0.6,1,1,0.6,0.8}"
WIDE_REGION = "float[8] r = {0,0,0.6,-0.5,1,1,1.2,1.3}"


@pytest.mark.parametrize("region", [REGION, WIDE_REGION])
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("value", ["", ", extrapolation_value=10.0"])
def test_a_region_is_cut_out_and_what_lies_outside_is_a_constant(mended, region, mode, value):
    words = f'mode="{mode}", coordinate_transformation_mode="tf_crop_and_resize"{value}'
    model = graph(f"y = Resize<{words}>(x, r, , s)", IMAGE, 19, init=f"{SIZES}, {region}")
    tried = mended("resize", model)
    assert "RESIZE.COORD" in tried.before and ("Add" in tried.operators) == (region == WIDE_REGION and value != "")


def test_a_region_of_some_axes(mended):
    words = 'mode="linear", coordinate_transformation_mode="tf_crop_and_resize", axes=[3,2], extrapolation_value=2.0'
    init = "int64[2] s = {5,6}, float[4] r = {-0.2,0.25,0.7,1.5}"
    mended("resize", graph(f"y = Resize<{words}>(x, r, , s)", IMAGE, 19, init=init))


def test_a_region_that_keeps_the_sizes_moves_pixels_all_the_same(mended):
    words = 'mode="linear", coordinate_transformation_mode="tf_crop_and_resize"'
    init = "int64[4] s = {1,3,8,8}, float[8] r = {0,0,0.1,0.2,1,1,0.9,0.7}"
    mended("resize", graph(f"y = Resize<{words}>(x, r, , s)", "float[1,3,8,8] x", 19, init=init))
