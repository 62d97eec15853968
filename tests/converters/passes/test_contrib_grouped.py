from __future__ import annotations

import numpy as np
import onnx
import pytest
from scan_cases import graph

HEADS, GROUPS, SIZE = 4, 2, 16
WIDTH, NARROW = HEADS * SIZE, GROUPS * SIZE


def model(given: str = "", packed: bool = False, rotary: bool = False) -> onnx.ModelProto:
    attributes = f"num_heads={HEADS}, kv_num_heads={GROUPS}{given}" + ", do_rotary=1" * rotary
    parts = "x, none, none, " if packed else "x, k, v, "
    body = f"y, p, q = com.microsoft.GroupQueryAttention<{attributes}>({parts}pk, pv, n, t{', c, s' * rotary})"
    inputs = f'float["b","s",{WIDTH + 2 * NARROW if packed else WIDTH}] x'
    if not packed:
        inputs += f', float["b","s",{NARROW}] k, float["b","s",{NARROW}] v'
    inputs += f', float["b",{GROUPS},"p",{SIZE}] pk, float["b",{GROUPS},"p",{SIZE}] pv, int32["b"] n, int32 t'
    made = graph(body, inputs, 17)
    node = made.graph.node[0]
    node.input[:] = ["" if name == "none" else name for name in node.input]
    for name in ("p", "q"):
        made.graph.output.add(name=name).type.tensor_type.elem_type = 1
    if rotary:
        angles = np.outer(np.arange(64), 1 / 100 ** (np.arange(SIZE // 2) / (SIZE // 2)))
        for name, wave in (("c", np.cos), ("s", np.sin)):
            made.graph.initializer.append(onnx.numpy_helper.from_array(wave(angles).astype(np.float32), name))
    return made


def inputs(queries: int, past: int, rows: int = 2, packed: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    width = WIDTH + 2 * NARROW if packed else WIDTH

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    made = {"x": drawn(rows, queries, width)}
    if not packed:
        made |= {"k": drawn(rows, queries, NARROW), "v": drawn(rows, queries, NARROW)}
    made |= {"pk": drawn(rows, GROUPS, past, SIZE), "pv": drawn(rows, GROUPS, past, SIZE)}
    total = queries + past
    return made | {"n": np.full(rows, total - 1, np.int32), "t": np.array(total, np.int32)}


@pytest.mark.parametrize("queries, past", [(5, 0), (1, 7), (3, 4)])
@pytest.mark.parametrize("given, packed, rotary", [
    ("", False, False), ("", True, True), (", rotary_interleaved=1", False, True), (", softcap=5.0", False, False),
    (", scale=0.2", True, False), (", local_window_size=3", False, True),
])  # fmt: skip
def test_grouped_attention_is_written_with_its_cache(mended, queries, past, given, packed, rotary):
    made = model(given, packed, rotary)
    rows = 1 if queries > 1 and past else 2  # ONNX Runtime takes no more behind a cache
    tried = mended("contrib_grouped", made, inputs=inputs(queries, past, rows, packed))
    assert tried.before == ["OPERATOR.CONTRIB"] and tried.after == []


def test_rows_that_are_padded_do_not_pass_the_proof(mended):
    fed = inputs(1, 4)
    fed["n"][1] -= 2
    with pytest.raises(AssertionError, match="dB"):
        mended("contrib_grouped", model(), inputs=fed)


def test_it_must_not_fire_on_smooth_softmax(left):
    assert "smooth softmax" in left("contrib_grouped", model(", smooth_softmax=1"))
