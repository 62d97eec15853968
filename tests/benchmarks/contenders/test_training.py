"""What makes contenders comparable: one batch, one loss, a cut model that is the beginning of the whole one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders.reduced_model import write_reduced
from benchmarks.contenders.train_ours import attention_pairs
from benchmarks.contenders.training import Task
from benchmarks.train_cases import cases, made_rows
from benchmarks.turns import Turn
from mlx_sentis.training.batches import make_batch
from mlx_sentis.training.sharing import shared_prefix_tokens
from weights_bridge.model_folder import open_model_folder

ROWS = [
    {"id": "a", "ids": [7, 8, 9, 10, 11, 12], "trained": [[3, 6]]},
    {"id": "b", "ids": [7, 8, 9, 20, 21, 22, 23, 24], "trained": [[6, 8]]},
]


def test_torch_and_mlx_lm_train_the_labels_that_we_train(toy_model: Callable[[str], Path]) -> None:
    from benchmarks.contenders.train_mlx_lm import Heard, same_batch
    from benchmarks.contenders.train_torch import batch_of

    task = Task(open_model_folder(toy_model("llama")), ROWS, pad_id=0)
    batch = make_batch(ROWS, 0, pad_id=0)
    ids, at, labels = batch_of(task.rows, task.padded_width(), task.pad_id)
    assert ids.shape == (2, 32)  # mlx-lm's padding
    assert labels.tolist() == batch.labels[: batch.trained_tokens].tolist()
    flat = ids.reshape(-1)
    assert [int(flat[i + 1]) for i in at] == labels.tolist()
    theirs, spans = next(same_batch(task, Turn(None), Heard()))
    assert np.array_equal(np.array(theirs)[:, :-1], ids.numpy())
    assert spans.tolist() == [[3, 5], [6, 7]]
    assert task.trained_tokens() == batch.trained_tokens


def test_pairs_are_those_of_queries_and_all_keys_before_them() -> None:
    whole, shared = make_batch(ROWS, 0, pad_id=0), make_batch(ROWS, 3, pad_id=0)
    assert attention_pairs(whole) == 2 * 16 * 16
    assert attention_pairs(shared) == 3 * 3 + 2 * 16 * (16 + 3)


@pytest.mark.parametrize("gemma", [False, True])
def test_made_rows_have_the_cases_shape(gemma: bool) -> None:
    shared, mixed, everything = (made_rows(case, 8, 49152) for case in cases(gemma))
    prefix = 300 if gemma else 400
    assert {len(row["ids"]) for row in shared} == {prefix + 65}
    assert shared_prefix_tokens(shared) == prefix
    trained = sum(end - start for row in mixed for start, end in row["trained"])
    assert trained / sum(len(row["ids"]) for row in mixed) == pytest.approx(0.15, abs=0.01)
    assert shared_prefix_tokens(mixed) == 0
    assert len({len(row["ids"]) for row in mixed}) == 8
    assert all(row["trained"] == [[1, len(row["ids"])]] for row in everything)
    assert made_rows(cases(gemma)[0], 8, 49152) == shared


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


def test_elementwise_is_what_torch_spends_outside_of_products() -> None:
    import torch

    from benchmarks.contenders.train_torch import elementwise_share

    matrix = torch.ones(200, 200)
    assert elementwise_share(lambda: (matrix.exp(), None)[1]) == 1.0
    assert 0 < elementwise_share(lambda: (matrix @ matrix, matrix.exp(), None)[2]) < 1
