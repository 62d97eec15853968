"""The KV loop in MLX: the same answers as the exported graph, and a prefix that changes nothing but the work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.runners.mlx_decoder import MlxDecoder
from parity.runners.onnx_decoder import OnnxDecoder
from weights_bridge.errors import StageError

PROMPT = list(range(10, 50))  # longer than the toy Gemma's window of 32


@pytest.fixture(params=["llama", "gemma3_text"])
def toy(request: pytest.FixtureRequest, exported: Callable[[str], Any]) -> Any:
    return exported(request.param)


def test_the_graph_and_the_directory_choose_the_same_tokens_with_and_without_a_prefix(toy: Any) -> None:
    mlx, onnx = MlxDecoder(toy.model), OnnxDecoder(toy.onnx, toy.contract)
    for prefix in (0, 25, 39):
        mlx.set_prefix(PROMPT[:prefix])
        onnx.set_prefix(PROMPT[:prefix])
        found, wanted = (one.greedy(PROMPT, 24, keep_logits=True) for one in (mlx, onnx))
        assert found.ids == wanted.ids and len(found.ids) == 24
        assert np.allclose(found.logits, wanted.logits, atol=2e-4)


def test_a_prefix_is_not_used_up_and_can_be_taken_away(toy: Any) -> None:
    decoder = MlxDecoder(toy.model)
    plain = decoder.greedy(PROMPT, 12).ids
    decoder.set_prefix(PROMPT[:35])
    other = decoder.greedy([*PROMPT[:35], 7, 8], 300).ids  # beyond the cache's steps of 256
    assert decoder.greedy(PROMPT, 12).ids == plain
    assert decoder.greedy([*PROMPT[:35], 7, 8], 300).ids == other
    decoder.set_prefix([])
    assert decoder.greedy([3, 4], 2).ids and decoder.greedy(PROMPT, 12).ids == plain


def test_an_answer_ends_before_the_stop_token(toy: Any) -> None:
    decoder = MlxDecoder(toy.model)
    free = decoder.greedy(PROMPT, 8).ids
    stop = free[3]
    assert decoder.greedy(PROMPT, 8, [stop]).ids == free[: free.index(stop)]
    assert decoder.greedy(PROMPT, 8).logits == []


def test_bad_prompts_are_refused_as_the_graphs_runner_does(toy: Any) -> None:
    decoder = MlxDecoder(toy.model)
    with pytest.raises(StageError, match="position 00001: found 100000"):
        decoder.greedy([1, 100000], 1)
    decoder.set_prefix(PROMPT[:5])
    for prompt in (PROMPT[:5], [1, *PROMPT]):
        with pytest.raises(StageError, match="does not go on from the prefix"):
            decoder.greedy(prompt, 1)


def test_a_directory_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"config\.json"):
        MlxDecoder(tmp_path)
