"""The loss against float64 and torch, and what it does not depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from training_rows import rendered_rows

from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.loss import cross_entropy_sum, logsumexp_in_blocks
from mlx_sentis.training.step import arrays_of, loss_of_batch


def logsumexp_64(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    peak = wide.max(axis=-1, keepdims=True)
    return np.log(np.exp(wide - peak).sum(axis=-1)) + peak[:, 0]


def test_block_sums_beat_one_sum_over_a_real_vocabulary() -> None:
    logits = np.random.default_rng(0).standard_normal((8, 49152)).astype(np.float32)
    wanted = logsumexp_64(logits)
    blocks = np.abs(np.array(logsumexp_in_blocks(mx.array(logits)), np.float64) - wanted).max()
    assert blocks < 2e-6  # two units in the last place of 11.3
    with mx.stream(mx.cpu):  # the backend whose sums are naive
        array = mx.array(logits)
        peak = mx.max(array, axis=-1, keepdims=True)
        naive = mx.log(mx.exp(array - peak).sum(axis=-1)) + peak[:, 0]
        assert np.abs(np.array(naive, np.float64) - wanted).max() > 5 * blocks


@pytest.mark.parametrize("vocabulary", [1, 255, 256, 257, 480, 1000])
def test_any_vocabulary_is_cut_into_blocks(vocabulary: int) -> None:
    logits = (10 * np.random.default_rng(1).standard_normal((3, vocabulary))).astype(np.float32)
    np.testing.assert_allclose(np.array(logsumexp_in_blocks(mx.array(logits))), logsumexp_64(logits), rtol=3e-7)


def test_large_logits_do_not_overflow() -> None:
    logits = mx.array([[1000.0, 999.0], [-1000.0, -1000.0]])
    np.testing.assert_allclose(np.array(logsumexp_in_blocks(logits)), [1000.3133, -999.3069], rtol=1e-6)


def test_loss_and_gradient_equal_torchs() -> None:
    import torch

    rng = np.random.default_rng(2)
    logits, labels = rng.standard_normal((6, 480)).astype(np.float32) * 3, rng.integers(0, 480, 6)
    weights = np.array([1, 1, 1, 1, 0, 0], np.float32)
    loss, gradient = mx.value_and_grad(cross_entropy_sum)(mx.array(logits), mx.array(labels), mx.array(weights))
    theirs = torch.tensor(logits[:4], dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(theirs, torch.tensor(labels[:4]), reduction="sum")
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert theirs.grad is not None
    np.testing.assert_allclose(np.array(gradient)[:4], theirs.grad.numpy(), atol=1e-6)
    assert not np.array(gradient)[4:].any()


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_batchs_loss_is_torchs_over_the_labelled_tokens_only(decoder: Callable[..., Any], model_type: str) -> None:
    import torch

    from parity.runners.torch_gate import load

    model = decoder(model_type, None)
    rows = rendered_rows(9, 25, 14)
    rows[1]["trained"] = [[60, 63], [70, 73]]  # two spans
    ours = loss_of_batch(model, arrays_of(make_batch(rows, 0, 0))).item()
    reference = load(str(model.folder.path), torch.float32)
    losses = []
    for row in rows:  # one by one, unpadded
        logits = reference(input_ids=torch.tensor([row["ids"]]), use_cache=False).logits[0]
        targets = [t for start, end in row["trained"] for t in range(start, end)]
        labels = torch.tensor([row["ids"][t] for t in targets])
        losses.append(torch.nn.functional.cross_entropy(logits[[t - 1 for t in targets]], labels, reduction="none"))
    assert ours == pytest.approx(torch.cat(losses).mean().item(), rel=1e-5)


def test_padding_is_never_trained_whatever_its_id(decoder: Callable[..., Any]) -> None:
    model, rows = decoder("llama"), rendered_rows(9, 25, 14)
    losses = {loss_of_batch(model, arrays_of(make_batch(rows, 20, pad))).item() for pad in (0, 2, 300)}
    assert len(losses) == 1


def test_an_end_token_that_is_also_the_padding_is_still_trained() -> None:
    rows = rendered_rows(9, 25)
    end = rows[0]["ids"][-1] = 2
    batch = make_batch(rows, 0, pad_id=end)
    assert batch.trained_tokens == 3 + 8
    labels = [label for label, weight in zip(batch.labels, batch.weights, strict=True) if weight]
    assert labels == rows[0]["ids"][-3:] + rows[1]["ids"][-8:]
