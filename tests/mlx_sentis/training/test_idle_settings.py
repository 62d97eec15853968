"""Settings that contradict each other are refused; those that do nothing beside the others are told, and no others."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from mlx_sentis.training.idle_settings import READS, require_agreeing, without_effect
from mlx_sentis.training.optimisers import OPTIMISERS
from weights_bridge.errors import StageError
from weights_bridge.settings import TrainSettings, resolve


def told(*overrides: str) -> list[str]:
    return without_effect(resolve(overrides=overrides).settings)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["train.full=true", "adapter.quantise=4"],
            "train.full=true and adapter.quantise=4: quantised weights have no",
        ),
        (["train.final_learning_rate=0.1"], "train.final_learning_rate=0.1 is above train.learning_rate=0.002"),
        (["train.schedule=linear", "train.final_learning_rate=0.1"], "where a linear schedule begins to fall"),
    ],
)
def test_contradictions_are_refused_in_words(overrides: list[str], words: str) -> None:
    with pytest.raises(StageError, match=re.escape(words)):
        require_agreeing(resolve(overrides=tuple(overrides)).settings)


def test_all_contradictions_are_told_at_once_and_defaults_have_none() -> None:
    require_agreeing(resolve().settings)
    require_agreeing(resolve(overrides=("train.schedule=constant", "train.final_learning_rate=0.1")).settings)
    both = ("train.full=true", "adapter.quantise=4", "train.final_learning_rate=0.1")
    with pytest.raises(StageError) as caught:
        require_agreeing(resolve(overrides=both).settings)
    assert len(caught.value.message.splitlines()) == 3


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (["train.momentum=0.5"], "train.momentum=0.5 has no effect: adamw has none"),
        (["train.optimizer=sgd", "train.beta1=0.5"], "train.beta1=0.5 has no effect: sgd has none"),
        (["train.optimizer=lion", "train.epsilon=0.5"], "train.epsilon=0.5 has no effect: lion has none"),
        (["train.inverse_gamma=5"], "train.inverse_gamma=5.0 has no effect: the schedule is cosine"),
        (["train.schedule=inverse", "train.warmup_updates=3"], "train.warmup_updates=3 has no effect: inverse has"),
        (["train.schedule=constant", "train.final_learning_rate=0.001"], "has no effect: the schedule is constant"),
        (["train.batch_tokens=64", "train.batch_rows=2"], "train.batch_rows=2 has no effect: train.batch_tokens=64"),
        (["train.full=true", "adapter.rank=4"], "adapter.rank=4 has no effect: train.full=true trains all weights"),
        (["adapter.type=lora", "adapter.norm=attached"], "adapter.norm=attached has no effect: lora has no norms"),
    ],
)
def test_what_has_no_effect_is_told_with_the_reason(overrides: list[str], wanted: str) -> None:
    (line,) = told(*overrides)
    assert wanted in line


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["train.beta1=0.5", "train.epsilon=1e-6", "train.warmup_updates=3", "train.final_learning_rate=0.001"],
        ["train.optimizer=sgd", "train.momentum=0.5"],
        ["train.optimizer=muon", "train.momentum=0.5", "train.beta2=0.9"],
        ["train.schedule=inverse", "train.inverse_gamma=5", "train.final_learning_rate=0.001"],
        ["adapter.type=dora-cols", "adapter.norm=attached", "adapter.rank=4"],
        ["train.batch_tokens=64"],
        ["train.full=true"],
    ],
)
def test_what_has_an_effect_is_not_told(overrides: list[str]) -> None:
    assert told(*overrides) == []


def test_every_optimiser_has_its_row_and_every_name_is_a_setting() -> None:
    assert READS.keys() == OPTIMISERS.keys()
    assert set().union(*READS.values()) <= {one.name for one in fields(TrainSettings)}
