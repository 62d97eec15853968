from __future__ import annotations

import numpy as np
import onnx
import pytest
from scan_cases import graph

RNG = np.random.default_rng(0)


def model(bits: int, rows: int, columns: int, block: int, zero: str = "", bias: bool = False) -> onnx.ModelProto:
    blocks = -(-rows // block)
    arrays = {
        "b": RNG.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": RNG.random(columns * blocks).astype(np.float32) / 10,
    }
    if zero == "packed":
        arrays["z"] = RNG.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    elif zero:
        arrays["z"] = RNG.random((columns, blocks)).astype(np.float32)
    if bias:
        arrays["c"] = RNG.random(columns).astype(np.float32)
    names = f"x, b, s{', z' if zero else ''}{(', , c' if zero else ', , , c') if bias else ''}"
    body = f"y = com.microsoft.MatMulNBits<K={rows}, N={columns}, bits={bits}, block_size={block}>({names})"
    made = graph(body, f"float[2,{rows}] x")
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", ["", "packed", "float"])
@pytest.mark.parametrize("rows, block", [(64, 32), (40, 16)])
def test_blocks_become_the_weights_that_they_stand_for(mended, bits, zero, rows, block):
    if (bits, zero) == (8, "float"):
        zero = ""  # ONNX Runtime has no kernel for it
    tried = mended("dequantise_blocks", model(bits, rows, 6, block, zero))
    assert tried.operators == ["MatMul"] and len(tried.model.graph.initializer) == 1


def test_a_bias_is_added(mended):
    assert mended("dequantise_blocks", model(4, 32, 6, 32, bias=True)).operators == ["MatMul", "Add"]


def table(bits: int, kind: str, zero: bool) -> onnx.ModelProto:
    """A table of 10 rows of 64 numbers in blocks of 16."""
    import ml_dtypes

    dtype = {"uint8": np.uint8, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}[kind]
    width, blocks = (64 * bits // 8, 4 * bits // 8) if kind == "uint8" else (64, 4)
    low = -8 if kind == "int4" else 0
    high = 256 if kind == "uint8" else low + 16
    arrays = {"b": RNG.integers(low, high, (10, width)).astype(dtype), "s": RNG.random((10, 4)).astype(np.float32)}
    if zero:
        arrays["z"] = RNG.integers(low, high, (10, blocks)).astype(dtype)
    given = f"bits={bits}, block_size=16, gather_axis=0, quantize_axis=1"
    made = graph(f"y = com.microsoft.GatherBlockQuantized<{given}>(b, x, s{', z' if zero else ''})", "int64[2,3] x", 21)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


@pytest.mark.parametrize("bits, kind", [(4, "uint8"), (8, "uint8"), (4, "int4"), (4, "uint4")])
@pytest.mark.parametrize("zero", [False, True])
def test_a_table_in_blocks_becomes_whole(mended, bits, kind, zero):
    inputs = {"x": np.array([[0, 9, 3], [5, 5, 1]])}
    tried = mended("dequantise_blocks", table(bits, kind, zero), inputs=inputs)
    assert tried.operators == ["Gather"] and len(tried.model.graph.initializer) == 1


def test_it_must_not_fire_on_weights_that_are_fed(left):
    body = "y = com.microsoft.MatMulNBits<K=32, N=6, bits=4, block_size=32>(x, b, s)"
    assert "no constants" in left("dequantise_blocks", graph(body, "float[2,32] x, uint8[6,1,16] b, float[6] s"))
