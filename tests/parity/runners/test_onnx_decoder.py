"""The KV loop in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.errors import StageError

PROMPT = list(range(10, 50))


@pytest.fixture(params=["llama", "gemma3_text"])
def decoder(request: pytest.FixtureRequest, exported: Callable[[str], Any]) -> OnnxDecoder:
    toy = exported(request.param)
    return OnnxDecoder(toy.onnx, toy.contract)


def test_a_prefix_changes_nothing_but_the_work(decoder: OnnxDecoder) -> None:
    plain = decoder.greedy(PROMPT, 12, keep_logits=True)
    decoder.set_prefix(PROMPT[:35])
    cached = decoder.greedy(PROMPT, 12, keep_logits=True)
    again = decoder.greedy([*PROMPT[:35], 7, 8], 3)
    assert cached.ids == plain.ids
    assert np.allclose(cached.logits, plain.logits, atol=1e-4)
    assert decoder.greedy(PROMPT, 12).ids == plain.ids and len(again.ids) == 3  # the prefix was not used up


def test_steps_one_by_one_equal_one_prefill(decoder: OnnxDecoder) -> None:
    cache = decoder.empty()
    for token in PROMPT:
        outputs, cache = decoder.step([token], cache)
    whole = decoder.forward(PROMPT)
    assert np.allclose(outputs[0].numpy()[0, -1], whole["logits"][0, -1], atol=1e-4)
    assert cache.tokens == len(PROMPT)


def test_an_answer_ends_before_the_stop_token(decoder: OnnxDecoder) -> None:
    free = decoder.greedy(PROMPT, 8).ids
    stop = free[3]
    assert decoder.greedy(PROMPT, 8, [stop]).ids == free[: free.index(stop)]


def test_a_prompt_that_does_not_go_on_from_the_prefix_is_refused(decoder: OnnxDecoder) -> None:
    decoder.set_prefix(PROMPT[:5])
    for prompt in (PROMPT[:5], [1, *PROMPT]):
        with pytest.raises(StageError, match="does not go on from the prefix"):
            decoder.greedy(prompt, 1)


def test_a_graph_with_another_contract_is_refused(exported: Callable[[str], Any]) -> None:
    with pytest.raises(StageError, match="input sliding_attention_mask: extra"):
        OnnxDecoder(exported("gemma3_text").onnx, exported("llama").contract)


def test_a_missing_and_a_broken_file_are_one_line(tmp_path: Path, exported: Callable[[str], Any]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no graph")
    for path in (tmp_path / "none.onnx", broken):
        with pytest.raises(StageError, match=path.name):
            OnnxDecoder(path, exported("llama").contract)
