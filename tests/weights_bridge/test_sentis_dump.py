"""The hash of a fixture: what it covers, and what must not change it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from weights_bridge.compare import Array
from weights_bridge.sentis_dump import fixture_sha256

INPUTS: dict[str, Array] = {
    "mask": np.array([[0.5, -1.0]], np.float32),
    "ids": np.array([[1, -2]], np.int64),
    "past": np.zeros((1, 3, 0, 4), np.float32),
    "flag": np.array(True),
}


def test_the_hash_is_of_the_bytes_that_the_page_describes() -> None:
    wanted = hashlib.sha256(
        b"flag bool \n\x01"
        b"ids int64 1,2\n\x01\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff"
        b"mask float32 1,2\n\0\0\0\x3f\0\0\x80\xbf"
        b"past float32 1,3,0,4\n"
    )
    assert fixture_sha256(INPUTS) == wanted.hexdigest()


def test_order_memory_layout_and_byte_order_are_no_part_of_it() -> None:
    wanted = fixture_sha256(INPUTS)
    assert fixture_sha256(dict(reversed(INPUTS.items()))) == wanted
    assert fixture_sha256(INPUTS | {"ids": INPUTS["ids"].astype(">i8")}) == wanted
    square = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert fixture_sha256({"x": square}) == fixture_sha256({"x": np.asfortranarray(square)})


@pytest.mark.parametrize(
    "change",
    [
        {"ids": INPUTS["ids"].astype(np.int32)},
        {"ids": INPUTS["ids"].reshape(2, 1)},
        {"past": np.zeros((1, 3, 0, 5), np.float32)},
        {"mask": np.array([[0.5, -1.0000001]], np.float32)},
        {"other": np.zeros(0, np.float32)},
    ],
)
def test_another_type_shape_value_or_tensor_is_another_fixture(change: dict[str, Array]) -> None:
    assert fixture_sha256(INPUTS | change) != fixture_sha256(INPUTS)
