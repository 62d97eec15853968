"""Shared segments: the same gradients as the plain step, on all four architectures, and planted errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from training_rows import PREFIX, nested_rows, rendered_rows

from mlx_sentis.demo.toy import MODEL_TYPES
from mlx_sentis.training import prefix
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.prefix import SegmentCache
from mlx_sentis.training.sharing import Sharing
from mlx_sentis.training.step import arrays_of, loss_of_batch

Make = Callable[..., Any]


def gradients(model: Any, rows: list[dict[str, Any]], sharing: Sharing | int) -> tuple[float, dict[str, np.ndarray]]:
    import mlx.nn as nn

    arrays = arrays_of(make_batch(rows, sharing, 0))
    loss, tree = nn.value_and_grad(model.network, lambda batch: loss_of_batch(model, batch))(arrays)
    return loss.item(), {name: np.array(array, np.float64) for name, array in tree_flatten(tree)}


def worst(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """Return the largest relative L2 difference of any tensor."""
    assert got.keys() == wanted.keys()
    assert all(np.linalg.norm(array) > 1e-6 for array in wanted.values())
    return max(np.linalg.norm(got[name] - wanted[name]) / np.linalg.norm(wanted[name]) for name in wanted)


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_gradients_equal_the_plain_steps_with_one_prefix_and_with_nested_segments(
    decoder: Make, model_type: str, kind: str
) -> None:
    model, rows = decoder(model_type, kind), nested_rows()
    loss, wanted = gradients(model, rows, 0)
    for sharing in (PREFIX, Sharing(PREFIX), Sharing(PREFIX, streams=2), Sharing(0, nested=False, streams=3)):
        shared_loss, got = gradients(model, rows, sharing)
        assert shared_loss == pytest.approx(loss, rel=2e-6)
        assert worst(got, wanted) <= 1e-5
    assert len(make_batch(rows, Sharing(PREFIX), 0).passes) > 4


def test_an_offset_off_by_one_shows_in_the_gradients(decoder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = decoder("qwen3"), rendered_rows(30, 12, 21)
    wanted = gradients(model, rows, 0)[1]
    made = SegmentCache.__init__

    def off_by_one(self: Any, parent: Any = None) -> None:
        made(self, parent)
        self.offset += parent is not None

    monkeypatch.setattr(SegmentCache, "__init__", off_by_one)
    # the mask keeps its alignment: only the rotary positions are wrong
    monkeypatch.setattr(prefix, "create_causal_mask", lambda n, offset=0, **kw: causal(n, min(offset, PREFIX), **kw))
    assert worst(gradients(model, rows, PREFIX)[1], wanted) > 1e-3


causal = prefix.create_causal_mask


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_mask_off_by_one_shows_in_the_gradients(
    decoder: Make, model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows = decoder(model_type), rendered_rows(30, 12, 21)
    wanted = gradients(model, rows, 0)[1]

    def blind(length: int, offset: int = 0, **words: Any) -> mx.array:
        mask = causal(length, offset=offset, **words)
        return (
            mx.concatenate([mx.zeros_like(mask[:, :1]), mask[:, 1:]], axis=1)
            if model_type == "llama"
            else (causal(length, offset=offset, **{**words, "window_size": words.get("window_size") and 31}))
        )

    monkeypatch.setattr(prefix, "create_causal_mask", blind)
    assert worst(gradients(model, rows, PREFIX)[1], wanted) > 1e-3


def test_any_shorter_prefix_gives_the_same_gradients(decoder: Make) -> None:
    model, rows = decoder("gemma3_text"), rendered_rows(30, 12)
    wanted = gradients(model, rows, 0)[1]
    for shared in (1, 31, 32, 33, 40):
        assert worst(gradients(model, rows, shared)[1], wanted) <= 1e-5, shared


@pytest.mark.parametrize("streams", [1, 2])
def test_rows_of_very_different_length_give_the_plain_steps_gradients(decoder: Make, streams: int) -> None:
    model, rows = decoder("gemma3_text"), rendered_rows(20, 300, 25, 310, 90)
    wanted = gradients(model, rows, 0)[1]
    sharing = Sharing(PREFIX, streams=streams)
    assert len(make_batch(rows, sharing, 0).passes) >= 3
    assert worst(gradients(model, rows, sharing)[1], wanted) <= 1e-5
