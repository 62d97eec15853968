"""The loop: schedules, what is saved, one seed, and a loss that is not finite."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from helpers import FULL
from training_rows import rendered_rows

from mlx_sentis.training import adapters, events, loop, step
from mlx_sentis.training.plan import leftovers, plan_updates, require_trainable
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
    chosen: dict[str, Any] = {"epochs": 2, "batch_rows": 4, "warmup_updates": 1} | train
    settings = Settings(adapter=AdapterSettings("dora", rank, 2.0 * rank), train=TrainSettings(**chosen))
    facts = adapters.facts_of(settings.adapter, adapters.target_modules(model, ["all-linear"]))
    return loop.Trainer(model, facts, settings, folder, sinks, pad_id=0)


# --- what cannot be trained on


def test_rows_that_cannot_be_trained_on_are_refused() -> None:
    settings = TrainSettings(batch_rows=4)
    with pytest.raises(StageError, match="no rows"):
        require_trainable([], settings)
    with pytest.raises(StageError, match="no trained token in train-0001"):
        require_trainable([ROWS[0], ROWS[1] | {"trained": []}, *ROWS[2:]], settings)
    with pytest.raises(StageError, match="the first token is trained in train-0002"):
        require_trainable([*ROWS[:2], ROWS[2] | {"trained": [[0, 3]]}, *ROWS[3:]], settings)
    with pytest.raises(StageError) as caught:
        require_trainable(ROWS[:3], settings)
    assert caught.value.message == "split train: 3 rows cannot fill one batch of 4"
    assert caught.value.hint == "--set train.batch_rows=3, or add rows"
    require_trainable(ROWS[:4], settings)


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
    state = read_json(tmp_path / "6" / "state.json")
    assert (state["schema"], state["step"], state["valid_loss"]) == (
        "mlx-sentis/checkpoint/2",
        6,
        trained.valid_losses[1],
    )
    assert {p.name for p in (tmp_path / "6").iterdir()} == {"adapter.safetensors", "state.safetensors", "state.json"}


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
    assert 0.9 * runs[1].tokens_plain < runs[1].tokens_computed <= runs[1].tokens_plain  # dealt out to streams


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


def test_four_micro_batches_an_update_are_the_update_of_one_large_batch(decoder: Make, tmp_path: Path) -> None:
    rows = rendered_rows(*[12] * 18)  # of one length, so that both runs deal them out alike
    runs = []
    for name, settings in (("large", {"batch_rows": 8}), ("small", {"batch_rows": 2, "accumulate": 4})):
        heard = Heard()
        trainer(decoder("llama"), tmp_path / name, heard, buckets=False, warmup_updates=4, **settings).run(rows, [])
        runs.append(heard.of(events.StepDone))
    # 18 rows: two full updates and one of the two rows that are left, in both epochs; warm-up counts updates
    assert [e.step for e in runs[1]] == [1, 2, 3, 4, 5, 6]
    assert [e.trained_tokens for e in runs[1]] == [32, 32, 8, 32, 32, 8]
    np.testing.assert_allclose([e.loss for e in runs[0]], [e.loss for e in runs[1]], rtol=1e-5)
    np.testing.assert_allclose([e.grad_norm for e in runs[0]], [e.grad_norm for e in runs[1]], rtol=1e-4)
    assert [e.lr for e in runs[0]] == [e.lr for e in runs[1]]
    assert [e.lr for e in runs[1]][:4] == pytest.approx([2e-3 * k / 5 for k in (2, 3, 4, 5)])
    saved = [read_adapter(tmp_path / name / "last" / "adapter.safetensors").flat() for name in ("large", "small")]
    for key in saved[0]:
        np.testing.assert_allclose(saved[0][key], saved[1][key], atol=2e-5, err_msg=key)


def test_each_update_tells_its_tokens_time_and_memory(decoder: Make, tmp_path: Path) -> None:
    heard = Heard()
    trained = trainer(decoder("llama"), tmp_path, heard).run(ROWS, VALID)
    steps = heard.of(events.StepDone)
    assert sum(e.computed_tokens for e in steps) == trained.tokens_computed
    for event in steps:
        assert event.trained_tokens < event.real_tokens
        assert event.trained_per_second < event.real_per_second
        assert event.computed_tokens < event.real_tokens  # shared tokens count once here and in every row there
        assert event.computed_per_second == pytest.approx(event.computed_tokens / event.seconds, rel=0.02)
        assert 0 < event.peak_memory_gib < 0.5
    left = [e.seconds_left for e in steps]
    assert left[-1] == 0
    assert left[0] > 0


def test_the_largest_update_comes_first_and_every_row_still_once() -> None:
    rows = rendered_rows(*[10] * 9, 90)
    plan = plan_updates(rows, TrainSettings(batch_rows=2, accumulate=2), 0)
    assert 9 in [i for chosen in plan[0] for i in chosen]
    assert sorted(i for group in plan for chosen in group for i in chosen) == list(range(10))
    assert [len(group) for group in plan if group is not plan[0]].count(2) + len(plan[0]) >= 3


# --- which checkpoints are kept


def overfitting(heard: Heard, folder: Path, decoder: Make, **settings: Any) -> Any:
    """Train so hard on few rows that other rows get worse."""
    chosen = {"epochs": 8, "batch_rows": 4, "learning_rate": 3e-2, "schedule": "constant", **settings}
    return trainer(decoder("llama", moved=False), folder, heard, **chosen).run(ROWS[:4], VALID)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_rows": 5}, ""),
        ({"batch_rows": 4}, "a batch of 2 rows instead of 4"),
        ({"batch_rows": 1, "accumulate": 4}, "an update of 2 micro-batches instead of 4"),
        (
            {"batch_rows": 3, "accumulate": 3},
            "a batch of 1 row instead of 3 and an update of 1 micro-batch instead of 3",
        ),
    ],
)
def test_what_is_left_over_at_an_epochs_end_is_told(settings: dict[str, int], words: str) -> None:
    found = leftovers(rendered_rows(*range(10, 20)), TrainSettings(**settings))  # type: ignore[arg-type]
    assert found == (words and f"each epoch has {words}: what is left over is trained too")


def test_best_is_the_lowest_validation_loss_and_the_last_is_kept_too(decoder: Make, tmp_path: Path) -> None:
    heard = Heard()
    trained = overfitting(heard, tmp_path, decoder)
    lowest = 1 + int(np.argmin(trained.valid_losses))
    assert lowest < 8, trained.valid_losses  # it overfits: the last is not the best
    assert (tmp_path / "best").resolve().name == str(lowest)
    assert (tmp_path / "last").resolve().name == "8"
    best = read_adapter(tmp_path / "best" / "adapter.safetensors").flat()
    last = read_adapter(tmp_path / "last" / "adapter.safetensors").flat()
    assert any((best[name] != last[name]).any() for name in best)


def test_patience_ends_training_and_says_so(decoder: Make, tmp_path: Path) -> None:
    heard = Heard()
    trained = overfitting(heard, tmp_path, decoder, patience=2)
    lowest = 1 + int(np.argmin(trained.valid_losses))
    assert len(trained.valid_losses) == lowest + 2 < 8
    assert heard.events[-1].reason == "No better validation loss for 2 epochs: ended by train.patience"  # type: ignore
    assert heard.of(events.Saved)[-1].final


def test_patience_without_validation_rows_is_refused() -> None:
    with pytest.raises(StageError, match=r"train\.patience=2: there are no validation rows"):
        require_trainable(ROWS, TrainSettings(batch_rows=4, patience=2), [])


def test_keep_last_keeps_the_newest_and_the_best(decoder: Make, tmp_path: Path) -> None:
    trained = overfitting(Heard(), tmp_path, decoder, keep_last=2)
    assert trained.best_step < 6
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([str(trained.best_step), "7", "8", "best", "last"])


def test_save_every_saves_between_epochs_and_once_at_their_ends(decoder: Make, tmp_path: Path) -> None:
    heard = Heard()
    trainer(decoder("llama"), tmp_path, heard, save_every=2, batch_rows=2).run(ROWS, VALID)
    assert [e.step for e in heard.of(events.Saved)] == [2, 4, 5, 6, 8, 10]
    assert read_json(tmp_path / "4" / "state.json")["cursor"] == {
        "epoch": 0,
        "position": 4,
        "micro_batches_of_next_update": 0,
    }


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
    batch = [ROWS[i]["id"] for i in plan_updates(ROWS, TrainSettings(batch_rows=2), 0)[2][0]]
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
    with pytest.raises(StageError, match=r"update 1, epoch 0: size of the weights is inf; .*nothing trained"):
        trainer(decoder("llama"), tmp_path, epochs=5, learning_rate=1e30, schedule="constant").run(ROWS, VALID)
    assert not (tmp_path / "last").exists()  # weights that are lost are no state to keep
    with pytest.raises(StageError, match=r"update \d+, epoch \d: .* is (nan|inf); .*kept in checkpoints"):
        trainer(decoder("llama"), tmp_path, epochs=9, learning_rate=1e15, schedule="constant").run(ROWS, VALID)
    read_adapter(tmp_path / "last" / "adapter.safetensors")  # refuses what is not finite


def test_an_update_above_the_memory_limit_names_the_longest_row_and_saves_nothing(
    decoder: Make, tmp_path: Path
) -> None:
    heard, rows = Heard(), rendered_rows(*[10] * 9, 300)
    with pytest.raises(StageError) as caught:
        trainer(decoder("llama"), tmp_path, heard, memory_limit_gib=0.005, batch_rows=2).run(rows, VALID)
    assert re.fullmatch(
        r"update 1: row train-0009 \(348 tokens, in a batch of 2 rows\) needs 0\.\d+ GiB, the limit is 0\.005 GiB; "
        r"nothing trained",
        caught.value.message,
    )
    assert "--set train.batch_rows=1, --set train.checkpoint_activations=true" in caught.value.hint
    assert not list(tmp_path.iterdir())
    assert "OutOfMemoryError" in heard.events[-1].reason  # type: ignore[union-attr]


def test_memory_that_runs_out_later_leaves_the_state_before(
    decoder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, calls = step.loss_of_batch, [0]

    def planted(*words: Any) -> mx.array:
        calls[0] += 1
        if calls[0] == 4:
            raise MemoryError("std::bad_alloc")
        return sound(*words)

    monkeypatch.setattr(step, "loss_of_batch", planted)
    model = decoder("llama")
    with pytest.raises(StageError, match=r"update 4: row .* does not fit into memory \(std::bad_alloc\); the state of"):
        trainer(model, tmp_path, batch_rows=2).run(ROWS, VALID)
    saved = read_adapter(tmp_path / "last" / "adapter.safetensors").flat()
    assert (tmp_path / "last").resolve().name == "3"
    for name, array in adapters.adapter_tensors(model).items():
        np.testing.assert_array_equal(saved[name], np.array(array))


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
