"""The loop: schedules, what is saved, one seed, and a loss that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import FULL
from training_rows import rendered_rows

from mlx_sentis.training import adapters, events, loop, step
from weights_bridge.adapter_file import read_adapter
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

Make = Callable[..., Any]
ROWS, VALID = rendered_rows(*range(9, 19)), rendered_rows(8, 11, seed=5)


class Heard:
    """A sink that keeps every event."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def receive(self, event: events.Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def trainer(model: Any, folder: Path, *sinks: events.Sink, rank: int = 4, **train: Any) -> loop.Trainer:
    settings = Settings(
        adapter=AdapterSettings("dora", rank, 2.0 * rank),
        train=TrainSettings(**({"epochs": 2, "batch_rows": 4, "warmup_updates": 1} | train)),
    )
    facts = adapters.facts_of(settings.adapter, adapters.target_modules(model, ["all-linear"]))
    return loop.Trainer(model, facts, settings, folder, sinks, pad_id=0)


def rates(updates: int, **settings: Any) -> list[float]:
    schedule = loop.learning_rate_schedule(TrainSettings(learning_rate=1.0, **settings), updates)
    return [float(schedule(mx.array(k)).item()) for k in range(updates)]


# --- schedules


def test_the_rate_rises_in_equal_parts_and_reaches_its_height_after_the_warm_up() -> None:
    np.testing.assert_allclose(rates(8, schedule="constant", warmup_updates=3), [0.25, 0.5, 0.75, *[1.0] * 5])


def test_a_linear_schedule_would_reach_zero_after_the_last_update() -> None:
    np.testing.assert_allclose(rates(6, schedule="linear", warmup_updates=2), [1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])


def test_a_cosine_schedule_is_half_a_cosine() -> None:
    wanted = [1 / 2, *(0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4))]
    np.testing.assert_allclose(rates(5, schedule="cosine", warmup_updates=1), wanted, atol=1e-6)


def test_without_warm_up_the_first_rate_is_the_height() -> None:
    assert rates(4, schedule="cosine", warmup_updates=0)[0] == 1.0


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("updates", [1, 2, 4])
def test_a_run_shorter_than_its_warm_up_still_reaches_the_height(schedule: str, updates: int) -> None:
    found = rates(updates, schedule=schedule, warmup_updates=4)
    assert found[-1] == pytest.approx(1.0)
    assert found == sorted(found)


# --- what cannot be trained on


def test_rows_that_cannot_be_trained_on_are_refused() -> None:
    settings = TrainSettings(batch_rows=4)
    with pytest.raises(StageError, match="no rows"):
        loop.require_trainable([], settings)
    with pytest.raises(StageError, match="no trained token in train-0001"):
        loop.require_trainable([ROWS[0], ROWS[1] | {"trained": []}, *ROWS[2:]], settings)
    with pytest.raises(StageError, match="the first token is trained in train-0002"):
        loop.require_trainable([*ROWS[:2], ROWS[2] | {"trained": [[0, 3]]}, *ROWS[3:]], settings)
    with pytest.raises(StageError) as caught:
        loop.require_trainable(ROWS[:3], settings)
    assert caught.value.message == "split train: 3 rows cannot fill one batch of 4"
    assert caught.value.hint == "--set train.batch_rows=3, or add rows"
    loop.require_trainable(ROWS[:4], settings)


# --- a run


def test_a_run_learns_tells_and_saves(decoder: Make, tmp_path: Path) -> None:
    model, heard = decoder("llama", moved=False), Heard()
    trained = trainer(model, tmp_path, heard, epochs=3, learning_rate=5e-3).run(ROWS, VALID)
    assert [type(event).__name__ for event in heard.events] == [
        "Started",
        *["EpochStarted", *["StepDone"] * 3, "EpochDone", "Saved"] * 3,
        "Finished",
    ]
    started = heard.of(events.Started)[0]
    assert (started.rows, started.updates, started.prefix_tokens, started.trained_modules) == (10, 9, 48, 14)
    assert started.trained_parameters == sum(a.size for a in adapters.adapter_tensors(model).values())
    steps = heard.of(events.StepDone)
    assert [e.step for e in steps] == list(range(1, 10))
    assert [e.loss for e in steps] == trained.losses
    assert np.mean(trained.losses[-3:]) < 0.8 * np.mean(trained.losses[:3])
    assert sum(e.trained_tokens for e in steps) == 3 * sum(end - start for r in ROWS for start, end in r["trained"])
    assert [e.valid_loss for e in heard.of(events.EpochDone)] == trained.valid_losses
    assert [(e.step, e.final) for e in heard.of(events.Saved)] == [(3, False), (6, False), (9, True)]
    best = 3 * (1 + int(np.argmin(trained.valid_losses)))
    assert (trained.best_step, heard.of(events.Finished)[0].best_step) == (best, best)
    assert (tmp_path / "best").resolve().name == str(best)
    assert (tmp_path / "last").resolve().name == "9"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["3", "6", "9", "best", "last"]
    assert read_json(tmp_path / "6" / "state.json") == {
        "schema": "mlx-sentis/checkpoint/1",
        "step": 6,
        "epoch": 1,
        "valid_loss": trained.valid_losses[1],
    }


def test_the_told_rate_is_the_next_updates(decoder: Make, tmp_path: Path) -> None:
    heard = Heard()
    trainer(decoder("llama"), tmp_path, heard, epochs=1, schedule="linear", learning_rate=1e-3).run(ROWS, VALID)
    # 3 updates, one of warm-up: rates 0.5, 1, 0.5 thousandths; each update tells of the next
    assert [e.lr for e in heard.of(events.StepDone)] == pytest.approx([1e-3, 5e-4, 0.0], abs=1e-9)


def test_the_first_update_moves_every_tensor_by_the_rate_as_torchs_adamw_does(decoder: Make, tmp_path: Path) -> None:
    # with bias correction the first step is rate · sign(gradient); without it, MLX's default, 3.2 times that
    model = decoder("llama")
    before = {name: np.array(array) for name, array in adapters.adapter_tensors(model).items()}
    settings = {"epochs": 1, "batch_rows": 10, "warmup_updates": 0, "learning_rate": 1e-3}
    assert len(trainer(model, tmp_path, **settings).run(ROWS, []).losses) == 1
    for name, array in adapters.adapter_tensors(model).items():
        moved = np.abs(np.array(array) - before[name])
        assert np.median(moved) == pytest.approx(1e-3, rel=1e-2), name
        assert moved.max() < 1.01e-3, name


def test_the_validation_loss_is_over_all_labelled_tokens(decoder: Make, tmp_path: Path) -> None:
    model = decoder("llama")
    trained = trainer(model, tmp_path, epochs=1, share_prefix=False).run(ROWS, VALID)
    batches = [loop.make_batch([row], 0, 0) for row in VALID]
    total = sum(loop.mean_loss(model, [b]) * b.trained_tokens for b in batches)
    assert trained.valid_losses[0] == pytest.approx(total / sum(b.trained_tokens for b in batches), rel=1e-5)


def test_sharing_the_prefix_gives_the_same_run_for_fewer_tokens(decoder: Make, tmp_path: Path) -> None:
    runs = [
        trainer(decoder("llama"), tmp_path / str(share), share_prefix=share).run(ROWS, VALID) for share in (True, False)
    ]
    np.testing.assert_allclose(runs[0].losses, runs[1].losses, rtol=1e-4)
    assert (runs[0].prefix_tokens, runs[1].prefix_tokens) == (48, 0)
    assert runs[0].tokens_computed < 0.6 * runs[0].tokens_plain
    assert runs[1].tokens_computed == runs[1].tokens_plain


def test_without_validation_rows_the_training_loss_decides(decoder: Make, tmp_path: Path) -> None:
    trained = trainer(decoder("llama"), tmp_path).run(ROWS, [])
    assert trained.valid_losses == []
    assert trained.best_step in (3, 6)


def test_one_seed_gives_bitwise_equal_adapters_and_another_does_not(decoder: Make, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        trainer(decoder("llama"), tmp_path / name, seed=seed).run(ROWS, VALID)
    files = [(tmp_path / name / "last" / "adapter.safetensors").read_bytes() for name in "abc"]
    assert files[0] == files[1]
    assert files[0] != files[2]


# --- what goes wrong


def test_a_loss_that_is_not_finite_stops_with_the_update_and_its_rows_and_keeps_the_state_before(
    decoder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, heard = decoder("llama"), Heard()
    sound, calls = step.loss_of_batch, [0]

    def planted(*words: Any) -> mx.array:
        calls[0] += 1
        return sound(*words) * (mx.nan if calls[0] == 3 else 1.0)

    monkeypatch.setattr(step, "loss_of_batch", planted)
    with pytest.raises(StageError) as caught:
        trainer(model, tmp_path, heard, batch_rows=2).run(ROWS, VALID)
    batch = [ROWS[i]["id"] for i in loop.plan_epoch(ROWS, TrainSettings(batch_rows=2), 0)[2]]
    assert caught.value.exit_code == 1
    assert caught.value.message == (
        f"update 3, epoch 0: loss is nan; rows {', '.join(batch)}; the state of update 2 is kept in checkpoints/2"
    )
    assert heard.events[-1] == events.Stopped(3, 0, "loss is nan")
    saved = read_adapter(tmp_path / "last" / "adapter.safetensors").flat()
    assert (tmp_path / "last").resolve().name == "2"
    for name, array in adapters.adapter_tensors(model).items():
        assert np.isfinite(saved[name]).all()
        np.testing.assert_array_equal(saved[name], np.array(array))


def test_a_rate_far_too_high_is_stopped_with_finite_adapters_saved(decoder: Make, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"update \d+, epoch \d: (loss|gradient norm) is (nan|inf)"):
        trainer(decoder("llama"), tmp_path, epochs=5, learning_rate=1e30, schedule="constant").run(ROWS, VALID)
    read_adapter(tmp_path / "last" / "adapter.safetensors")  # refuses what is not finite


def test_a_first_update_that_fails_keeps_an_earlier_runs_checkpoints(
    decoder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer(decoder("llama"), tmp_path).run(ROWS, VALID)
    before = sorted(path.name for path in tmp_path.iterdir())
    monkeypatch.setattr(step, "loss_of_batch", lambda *words: mx.array(mx.nan))
    with pytest.raises(StageError, match=r"update 1, epoch 0: loss is nan; .*; nothing trained"):
        trainer(decoder("llama"), tmp_path).run(ROWS, VALID)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_new_runs_checkpoints_replace_an_earlier_runs(decoder: Make, tmp_path: Path) -> None:
    trainer(decoder("llama"), tmp_path, epochs=3).run(ROWS, VALID)
    trainer(decoder("llama"), tmp_path, epochs=1, batch_rows=5).run(ROWS, VALID)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "best", "last"]


def test_a_full_disk_stops_in_one_line_and_keeps_the_checkpoint_before(decoder: Make, small_disk: Path) -> None:
    model = decoder("llama", rank=16)
    (small_disk / "last").symlink_to("1")
    (small_disk / "1").mkdir()
    (small_disk / "1" / "adapter.safetensors").write_bytes(b"old")
    with pytest.raises(StageError, match=FULL) as caught:
        trainer(model, small_disk, rank=16).run(ROWS, VALID)
    assert f"{small_disk}/3: cannot be written" in caught.value.message
    assert sorted(path.name for path in small_disk.iterdir()) == ["1", "last"]
    assert (small_disk / "last" / "adapter.safetensors").read_bytes() == b"old"
