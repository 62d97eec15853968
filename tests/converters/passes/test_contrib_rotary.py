from __future__ import annotations

import numpy as np
import pytest
from scan_cases import graph

OP = "com.microsoft.RotaryEmbedding"
CACHE = "float[9,4] c, float[9,4] s"


def fed(shape, positions) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    angles = rng.standard_normal((9, 4))
    x = rng.standard_normal(shape).astype(np.float32)
    return {"x": x, "p": positions, "c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}


@pytest.mark.parametrize("given", ["interleaved=0", "interleaved=1"])
@pytest.mark.parametrize("shape", [(2, 3, 24), (2, 3, 5, 8)])
def test_rows_are_turned_by_the_angles_of_their_positions(mended, given, shape):
    sizes, length = ",".join(map(str, shape)), shape[1] if len(shape) == 3 else shape[2]
    body = f"y = {OP}<{given}>(x, p, c, s)"
    positions = np.random.default_rng(1).integers(0, 9, (2, length))
    tried = mended("contrib_rotary", graph(body, f"float[{sizes}] x, int64[2,{length}] p, {CACHE}"),
                   inputs=fed(shape, positions))  # fmt: skip
    assert {"Split", "Sub", "Add"} <= set(tried.operators)


def test_one_offset_for_all_rows(mended):
    body, inputs = f"y = {OP}(x, p, c, s)", f"float[2,3,16] x, int64[1] p, {CACHE}"
    mended("contrib_rotary", graph(body, inputs), inputs=fed((2, 3, 16), np.array([4])))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_only_the_first_part_of_a_head_is_turned(mended, interleaved):
    body = f"y = {OP}<rotary_embedding_dim=8, num_heads=2, interleaved={interleaved}>(x, p, c, s)"
    inputs = f"float[2,3,24] x, int64[2,3] p, {CACHE}"
    mended("contrib_rotary", graph(body, inputs), inputs=fed((2, 3, 24), np.array([[0, 5, 8]] * 2)))


@pytest.mark.parametrize(
    "given, inputs, reason",
    [
        ("is_packed_batching=1", f"float[2,3,16] x, int64[2,3] p, {CACHE}", "packed"),
        ("interleaved=0", 'float[2,3,16] x, int64[2,3] p, float[9,"n"] c, float[9,"n"] s', "cosines"),
        ("interleaved=0", f'float[2,"s",16] x, int64[1] p, {CACHE}', "length is not known"),
    ],
)
def test_it_must_not_fire(left, given, inputs, reason):
    assert reason in left("contrib_rotary", graph(f"y = {OP}<{given}>(x, p, c, s)", inputs))
