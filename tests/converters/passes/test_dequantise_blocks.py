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


def test_it_must_not_fire_on_weights_that_are_fed(left):
    body = "y = com.microsoft.MatMulNBits<K=32, N=6, bits=4, block_size=32>(x, b, s)"
    assert "no constants" in left("dequantise_blocks", graph(body, "float[2,32] x, uint8[6,1,16] b, float[6] s"))
