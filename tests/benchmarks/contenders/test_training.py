"""What makes contenders comparable: one batch, one loss, a cut model that is the beginning of the whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders.reduced_model import write_reduced
from benchmarks.contenders.train_ours import with_head_everywhere
from benchmarks.contenders.training import Task
from mlx_sentis.training.batches import make_batch
from weights_bridge.model_folder import open_model_folder

ROWS = [
    {"id": "a", "ids": [7, 8, 9, 10, 11, 12], "trained": [[3, 6]]},
    {"id": "b", "ids": [7, 8, 9, 20, 21, 22, 23, 24], "trained": [[6, 8]]},
]


def test_the_plain_batch_asks_everywhere_and_weighs_the_same_labels() -> None:
    batch = make_batch(ROWS, 0, pad_id=0)
    plain = with_head_everywhere(batch)
    assert plain.positions.tolist() == list(range(batch.rows.size))
    labelled = np.flatnonzero(plain.weights)
    pairs = list(zip(batch.positions, batch.labels, batch.weights, strict=True))
    assert {at: plain.labels[at] for at in labelled} == {at: label for at, label, weight in pairs if weight}
    assert plain.trained_tokens == batch.trained_tokens == 5
    assert np.array_equal(plain.rows, batch.rows)


def test_torch_and_mlx_lm_get_the_batch_that_the_trainer_makes(toy_model: Callable[[str], Path]) -> None:
    from benchmarks.contenders.train_mlx_lm import same_batch
    from benchmarks.contenders.train_torch import batch_of

    task = Task(open_model_folder(toy_model("llama")), ROWS, ROWS, pad_id=0)
    batch = make_batch(ROWS, 0, pad_id=0)
    count = batch.trained_tokens
    ids, at, labels = batch_of(task)
    assert np.array_equal(ids.numpy(), batch.rows)
    assert (at.tolist(), labels.tolist()) == (batch.positions[:count].tolist(), batch.labels[:count].tolist())
    theirs, spans = next(same_batch(task))
    assert np.array_equal(np.array(theirs)[:, :-1], batch.rows)
    assert spans.tolist() == [[3, 5], [6, 7]]
    assert task.trained_tokens() == count


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_cut_model_is_the_beginning_of_the_whole_one(
    toy_model: Callable[[str], Path], tmp_path: Path, model_type: str
) -> None:
    whole = open_model_folder(toy_model(model_type))
    cut = open_model_folder(write_reduced(whole, 1, tmp_path / "cut"))
    cut.check_tensors()
    kept = dict(cut.tensors())
    left_out = {name for name, _ in whole.tensors()} - kept.keys()
    assert cut.config["num_hidden_layers"] == 1
    assert all(np.array_equal(array, kept[name]) for name, array in whole.tensors() if name in kept)
    assert left_out
    assert all(name.startswith("model.layers.1.") for name in left_out)
