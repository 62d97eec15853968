from __future__ import annotations

import itertools

import numpy as np
import pytest
from scan_cases import graph

PADDINGS = ("zeros", "border", "reflection")


def points(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Grid points inside and outside of the picture, corners and centres of pixels among them."""
    grid = np.random.default_rng(seed).uniform(-2.2, 2.2, shape).astype(np.float32)
    grid[0, 0] = [[-1, -1], [1, 1], [0, 0], [1, -1], [-1.5, 0.25]][: shape[2]]
    return grid


@pytest.mark.parametrize("padding, align", list(itertools.product(PADDINGS, (0, 1))))
def test_cubic_sampling_is_a_weighted_sum(mended, padding, align):
    body = f'y = GridSample<mode="cubic", padding_mode="{padding}", align_corners={align}>(x, g)'
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((2, 3, 6, 5)).astype(np.float32), "g": points((2, 4, 5, 2))}
    tried = mended("grid_sample", graph(body, "float[2,3,6,5] x, float[2,4,5,2] g", 20), inputs=inputs)
    assert tried.before == ["GRIDSAMPLE.CUBIC_CPU"] and tried.operators.count("GatherND") == 1


def test_sizes_of_the_grid_need_not_be_known(mended):
    body = 'y = GridSample<mode="bicubic">(x, g)'
    inputs = {"x": np.ones((2, 3, 6, 5), np.float32), "g": points((2, 4, 5, 2))}
    mended("grid_sample", graph(body, 'float["n",3,6,5] x, float["n","h","w",2] g', 16), inputs=inputs)


@pytest.mark.parametrize(
    "mode, padding, align", list(itertools.product(("bilinear", "nearest", "bicubic"), PADDINGS, (0, 1)))
)
def test_opset_15_has_it_written_out(mended, mode, padding, align):
    body = f'y = GridSample<mode="{mode}", padding_mode="{padding}", align_corners={align}>(x, g)'
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((2, 3, 6, 5)).astype(np.float32), "g": points((2, 4, 5, 2))}
    made = graph(body, "float[2,3,6,5] x, float[2,4,5,2] g", 16)
    tried = mended("opset", made, sentis="2.4", inputs=inputs)
    assert "GridSample" not in tried.operators and tried.after == []


@pytest.mark.parametrize("inputs, reason", [
    ('float[2,3,"h",5] x, float[2,4,5,2] g', "size is not known"),
    ("float[2,3,4,6,5] x, float[2,4,5,6,3] g", "volumes"),
])  # fmt: skip
def test_it_must_not_fire(left, inputs, reason):
    assert reason in left("grid_sample", graph('y = GridSample<mode="cubic">(x, g)', inputs, 20))
