"""Masks, names and checks of the decoder contract."""

from __future__ import annotations

import numpy as np
import pytest

from parity.runners.decoder_io import MASKED, additive_mask, check_ids, check_signature, empty_cache, prefill_inputs
from weights_bridge.errors import StageError

CONTRACT = {
    "constants": {"layers": 1, "kv_heads": 1, "head_dim": 2, "vocab": 10, "sliding_window": 2},
    "masks": {"attention_mask": "full_attention", "sliding_attention_mask": "sliding_attention"},
}


def visible(mask: np.ndarray) -> list[str]:
    return ["".join("x" if value == 0 else "." for value in row) for row in mask[0, 0]]


def test_a_token_sees_itself_and_everything_before_it() -> None:
    assert visible(additive_mask(3, 0, None)) == ["x..", "xx.", "xxx"]
    assert visible(additive_mask(2, 2, None)) == ["xxx.", "xxxx"]


def test_a_window_of_two_is_the_token_and_the_one_before() -> None:
    assert visible(additive_mask(4, 0, 2)) == ["x...", "xx..", ".xx.", "..xx"]
    assert visible(additive_mask(1, 4, 2)) == ["...xx"]


@pytest.mark.parametrize(("tokens", "past", "window"), [(1, 0, None), (5, 3, None), (5, 0, 1), (4, 9, 2)])
def test_no_token_of_a_mask_sees_nothing(tokens: int, past: int, window: int | None) -> None:
    """A row without anything to attend to is NaN to one framework and some number to another."""
    assert all("x" in row for row in visible(additive_mask(tokens, past, window)))


def test_a_cache_begins_without_a_token_so_that_nothing_unwritten_is_read() -> None:
    cache = empty_cache(CONTRACT)
    assert cache.keys() == {"past_key_values.0.key", "past_key_values.0.value"}
    assert {(array.shape, array.dtype.name) for array in cache.values()} == {((1, 1, 0, 2), "float32")}


def test_masks_are_finite_float32() -> None:
    mask = additive_mask(2, 0, None)
    assert mask.dtype == np.float32 and mask.min() == np.float32(MASKED)


def test_each_attention_kind_gets_its_own_mask_and_positions_go_on_from_the_cache() -> None:
    feed = prefill_inputs([4, 5], 3, CONTRACT)
    assert feed["position_ids"].tolist() == [[3, 4]]
    assert visible(feed["attention_mask"]) == ["xxxx.", "xxxxx"]
    assert visible(feed["sliding_attention_mask"]) == ["..xx.", "...xx"]


@pytest.mark.parametrize("bad", [-1, 10, 49152])
def test_ids_outside_the_vocabulary_are_refused_with_their_position(bad: int) -> None:
    with pytest.raises(StageError, match=rf"position 00001: found {bad}, wanted 0 … 9"):
        check_ids([0, bad], 10)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(StageError, match="found none"):
        check_ids([], 10)


def test_missing_and_extra_inputs_and_outputs_are_all_named() -> None:
    inputs = ["input_ids", "position_ids", "attention_mask", "token_type_ids", "past_key_values.0.key"]
    faults = check_signature(inputs, ["logits", "present.0.key", "hidden"], CONTRACT)
    assert faults == [
        "input past_key_values.0.value: missing",
        "input sliding_attention_mask: missing",
        "input token_type_ids: extra",
        "output hidden: extra",
        "output present.0.value: missing",
    ]
