"""The resume certificate: real processes, real kills; and it fails when a part of the state is gone."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, edit_json

from mlx_sentis.training.certificate import Certificate, choose_kills, prove_resume
from mlx_sentis.training.equality import Compared, compare_values
from weights_bridge.files import read_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings, resolve

SMALL = ("train.epochs=2", "train.batch_rows=2", "train.accumulate=3", "adapter.rank=2", "adapter.dropout=0.2")


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "run"))


def settings() -> Settings:
    return resolve(overrides=SMALL).settings


def test_a_run_killed_three_times_equals_the_one_that_never_stopped(run: Path) -> None:
    flags = [word for setting in SMALL for word in ("--set", setting)]
    words = ("--resume", "--prove", "--prove-updates", "8", "--json", *flags)
    result = call("train", "--data", run, "--out", run, *words)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["passed"]
    assert [kill["place"] for kill in answer["kills"]] == ["inside", "between micro-batches", "while saving"]
    assert all(0 < kill["resumed_after"] <= kill["update"] for kill in answer["kills"])
    assert {one["what"]: one["count"] for one in answer["compared"]} == {
        "figures in the log": 32,
        "trained tensors": 42,
        "optimiser arrays": 85,
        "random key": 1,
        "place in the data": 2,
        "schedule, best": 5,
    }
    assert all(one["differing"] == 0 for one in answer["compared"])
    assert read_json(run / "parity" / "resume.json") == answer
    assert not list(run.glob(".prove-*"))
    assert not (run / "checkpoints").exists()  # the run itself was not touched
    assert not (run / "config.toml").exists()


@pytest.mark.parametrize("part", ["rng", "cursor"])
def test_a_state_without_its_random_key_or_place_in_the_data_fails_the_certificate(run: Path, part: str) -> None:
    def meddle(folder: Path) -> None:
        edit_json(folder / "state.json", lambda state: state.pop(part))

    found = prove_resume(RunFolder(run), settings(), updates=6, seed=1, meddle=meddle)
    assert not found.passed
    assert f"state.json: {part}" in found.refused


def test_a_random_key_that_starts_anew_is_seen_in_losses_and_weights(run: Path) -> None:
    def meddle(folder: Path) -> None:
        edit_json(folder / "state.json", lambda state: state.update(rng=[0, 42]))

    found = prove_resume(RunFolder(run), settings(), updates=6, seed=1, meddle=meddle)
    assert not found.passed
    differing = {one.what for one in found.compared if one.differing}
    assert {"figures in the log", "trained tensors", "optimiser arrays", "random key"} <= differing
    assert "NOT equal" in found.text()
    assert found.repeatable is True  # the machine is not to blame


def test_prove_without_resume_is_used_wrongly(run: Path) -> None:
    assert call("train", "--data", run, "--out", run, "--prove").exit_code == 2


@pytest.mark.parametrize("seed", range(20))
def test_kills_fall_behind_the_first_state_and_inside_epochs_in_order(seed: int) -> None:
    epochs = [epoch for epoch in range(4) for _ in range(5)]
    kills = choose_kills(random.Random(seed), epochs, 3, 2)
    updates = [update for _, update in kills]
    assert updates == sorted(updates)
    assert all(3 < update < 20 for update in updates)
    assert all(epochs[update - 1] == epochs[update - 2] for update in updates)


def test_nothing_compared_is_no_pass() -> None:
    kill: Any = object()
    assert not Certificate(8, 0, [kill], []).passed
    assert not Certificate(8, 0, [kill], [Compared("losses", 0, 0)]).passed
    assert not Certificate(8, 0, [], [Compared("losses", 3, 0)]).passed
    assert Certificate(8, 0, [kill], [Compared("losses", 3, 0)]).passed


def test_no_best_score_before_the_first_epoch_has_ended_is_equal_and_a_lost_one_is_not() -> None:
    """The demo's 20 proven updates are half an epoch: the certificate failed there, and blamed the machine."""
    state = {"best_score": None, "best_step": 0}
    assert compare_values("best", [state, dict(state)], list(state)) == Compared("best", 2, 0)
    for other in ({"best_step": 0}, {"best_score": 0.5, "best_step": 0}):
        for sides in ([state, other], [other, state]):
            assert compare_values("best", sides, list(state)) == Compared("best", 2, 1, 0.0, "best_score")
    assert compare_values("best", [{}, {}], list(state)).differing == 2  # neither has what is wanted
    arrays = [
        {"a": np.zeros(2, np.float32)},
        {"a": np.array([0, -0.0], np.float32)},
        {"a": np.zeros((1, 2), np.float32)},
    ]
    assert [compare_values("a", [arrays[0], other]).differing for other in arrays] == [0, 1, 1]
