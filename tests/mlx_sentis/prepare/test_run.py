"""Looking at data before any work, and the stage in its run folder."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_sentis.prepare.run import look_at_data
from mlx_sentis.training.batches import require_batch
from weights_bridge.errors import StageError
from weights_bridge.settings import DataSettings, TrainSettings


def pairs(count: int, what: str = "gate") -> list[dict[str, Any]]:
    return [{"prompt": f"Open {what} number {index}", "completion": "Sure."} for index in range(count)]


def test_rows_are_counted_split_by_split_without_rendering_one(llama: Any, jsonl: Any) -> None:
    found = look_at_data(str(jsonl(pairs(20))), llama.recipe, DataSettings())
    assert found == {"train": 12, "valid": 2, "calibration": 2, "holdout": 4}


def test_fewer_training_rows_than_a_batch_are_refused_before_any_work_and_few_validation_rows_are_not(
    llama: Any, jsonl: Any
) -> None:
    folder = jsonl(pairs(3), "set/train.jsonl").parent
    for split, count in (("valid", 2), ("calibration", 1), ("holdout", 1)):
        jsonl(pairs(count, split), f"set/{split}.jsonl")
    found = look_at_data(str(folder), llama.recipe, DataSettings())
    assert found == {"train": 3, "valid": 2, "calibration": 1, "holdout": 1}
    with pytest.raises(StageError, match="split train: 3 rows cannot fill one batch of 4"):
        require_batch(found["train"], TrainSettings(batch_rows=4))
    require_batch(found["train"], TrainSettings(batch_rows=3))  # two validation rows do not matter


def test_what_prepare_would_refuse_is_refused_by_the_look(llama: Any, jsonl: Any) -> None:
    with pytest.raises(StageError, match=r"rows\.jsonl:21: prompt: the text is empty"):
        look_at_data(str(jsonl([*pairs(20), {"prompt": "", "completion": "x"}])), llama.recipe, DataSettings())
    folder = jsonl(pairs(20), "set/train.jsonl").parent
    jsonl(pairs(1), "set/holdout.jsonl")
    with pytest.raises(StageError, match="1 text in two splits"):
        look_at_data(str(folder), llama.recipe, DataSettings())


def test_bad_rows_are_not_counted_where_they_may_be_left_out(llama: Any, jsonl: Any) -> None:
    rows = [*pairs(20), {"prompt": "", "completion": "x"}]
    found = look_at_data(str(jsonl(rows)), llama.recipe, DataSettings(skip_bad=True))
    assert sum(found.values()) == 20
