"""Which rows are measured, and the files that carry them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.fixtures import choose_fixtures, greedy_prompts, read_fixture, read_inputs, write_fixtures
from weights_bridge.errors import StageError
from weights_bridge.files import read_json, sha256_of

PLAIN = {
    "constants": {"layers": 1, "kv_heads": 1, "head_dim": 2, "vocab": 50, "sliding_window": None},
    "masks": {"attention_mask": "full_attention"},
}
SLIDING = {**PLAIN, "constants": {**PLAIN["constants"], "sliding_window": 200}}


def rows_of(*lengths: int) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "ids": [n % 50] * n, "prompt_tokens": n - 2} for n in lengths]


def test_the_longest_row_comes_first_and_typical_ones_follow() -> None:
    found = choose_fixtures(rows_of(10, 150, 30, 20, 40, 25), 3, PLAIN)
    assert [len(f.ids) for f in found] == [150, 30, 25]
    assert found[0].prompt == [0] * 148


def test_rows_that_are_all_short_are_concatenated_and_it_is_said() -> None:
    found = choose_fixtures(rows_of(30, 40), 2, PLAIN)
    assert len(found[0].ids) > 100
    assert found[0].source == "3 rows concatenated: no single row has 101 tokens"


def test_a_sliding_model_is_measured_beyond_its_window_and_a_loop_crosses_it() -> None:
    found = choose_fixtures(rows_of(120, 30), 2, SLIDING)
    assert len(found[0].ids) > 200
    prompts = greedy_prompts(found, 32, 200)
    assert any(len(ids) < 200 < len(ids) + 32 for ids in prompts.values())


def test_there_are_always_two_prompts_for_the_loop() -> None:
    prompts = greedy_prompts(choose_fixtures(rows_of(120), 3, PLAIN), 32, None)
    assert [len(ids) for ids in prompts.values()] == [118, 59]


def test_ids_outside_the_vocabulary_are_refused_with_their_row() -> None:
    with pytest.raises(StageError, match="r7: token ids outside the vocabulary"):
        choose_fixtures([*rows_of(120), {"id": "r7", "ids": [3, 50]}], 1, PLAIN)


def test_no_rows_make_no_fixtures() -> None:
    with pytest.raises(StageError, match="no rows"):
        choose_fixtures([], 3, PLAIN)


def test_raw_bytes_npz_and_index_tell_the_same(tmp_path: Path, exported: Callable[[str], Any]) -> None:
    contract = exported("gemma3_text").contract
    fixtures = choose_fixtures(rows_of(120), 1, contract)
    logits = np.arange(240, dtype=np.float32).reshape(1, 120, 2)
    write_fixtures(tmp_path / "fixtures", fixtures, [{"logits": logits}], contract)
    (entry,) = read_json(tmp_path / "fixtures" / "index.json")["fixtures"]
    inputs, outputs = read_fixture(tmp_path / "fixtures" / entry["npz"])
    assert set(inputs) == {item["name"] for item in contract["inputs"]}
    assert inputs["past_key_values.1.value"].shape == (1, 2, 0, 16)
    assert np.array_equal(outputs["logits"], logits)
    assert entry["sha256"] == sha256_of(tmp_path / "fixtures" / entry["npz"])
    by_key = {tensor["key"]: tensor for tensor in entry["tensors"]}
    raw = tmp_path / "fixtures" / by_key["out::logits"]["file"]
    assert np.array_equal(np.frombuffer(raw.read_bytes(), "<f4").reshape(1, 120, 2), logits)
    assert by_key["out::logits"]["sha256"] == sha256_of(raw)
    assert by_key["in::past_key_values.0.key"]["file"] is None


def test_what_is_no_fixture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", logits=np.zeros(3))
    for name, words in (("none.npz", "no such fixture"), ("text.npz", "not a whole npz"), ("other.npz", "wanted in::")):
        with pytest.raises(StageError, match=words):
            read_fixture(tmp_path / name)
        with pytest.raises(StageError, match=words):
            read_inputs(tmp_path / name)
    np.savez(tmp_path / "stray.npz", **{"in::x": np.zeros(3), "y": np.zeros(3)})
    with pytest.raises(StageError, match="wanted in::"):
        read_inputs(tmp_path / "stray.npz")
