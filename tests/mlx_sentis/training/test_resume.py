"""A resumed run is the run that never stopped: same losses, same weights to the bit, files that go on counting."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from helpers import edit_json
from safetensors.numpy import load_file, save_file
from training_rows import rendered_rows

from mlx_sentis.training import adapters, events, loop, resume, sharing, streams
from mlx_sentis.training.interrupts import InterruptedTrainingError
from weights_bridge.errors import StageError
from weights_bridge.files import read_json
from weights_bridge.settings import AdapterSettings, Settings, TrainSettings

Make = Callable[..., Any]
ROWS, VALID = rendered_rows(*range(9, 19)), rendered_rows(8, 11, seed=5)
HASHES = {"data/train.jsonl": "aa", "recipe.json": "bb"}


class SignalAfter:
    """A sink that sends this process a signal when an update has been told."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number
        self.told: list[events.Event] = []

    def receive(self, event: events.Event) -> None:
        self.told.append(event)
        if isinstance(event, events.StepDone) and event.step == self.step:
            os.kill(os.getpid(), self.number)


def a_run(decoder: Make, folder: Path, *sinks: events.Sink, going_on: bool = False, **train: Any) -> loop.Trainer:
    """A training of 20 updates in 4 epochs, with dropout, so that MLX's random key matters."""
    chosen: dict[str, Any] = {"epochs": 4, "batch_rows": 1, "accumulate": 2, "warmup_updates": 3} | train
    settings = Settings(adapter=AdapterSettings("dora", 4, 8.0, dropout=0.3), train=TrainSettings(**chosen))  # type: ignore
    model = decoder("llama", "dora", moved=False, dropout=0.3)
    facts = adapters.facts_of(settings.adapter, adapters.target_modules(model, ["all-linear"]))
    origin = resume.origin_of(settings, HASHES, model)
    state = resume.require_state(folder) if going_on else None
    if state:
        resume.require_same(state, origin)
    return loop.Trainer(model, facts, settings, folder, sinks, 0, origin=origin, resumed=state)


def files_of(folder: Path) -> dict[str, bytes]:
    """What the last checkpoint holds, times aside."""
    state = read_json(folder / "last" / "state.json")
    state.pop("seconds")
    state["made_from"]["settings"]["train"].pop("epochs")
    arrays = {name: (folder / "last" / name).read_bytes() for name in ("adapter.safetensors", "state.safetensors")}
    return arrays | {"state.json": json.dumps(state, sort_keys=True).encode()}


@pytest.fixture(scope="module")
def whole(decoder: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, loop.Trained]:
    """The run that never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, a_run(decoder, folder).run(ROWS, VALID)


@pytest.mark.parametrize("after", [10, 13])  # at the end of an epoch, and inside one
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_20_updates_are_bitwise_those_of_a_run_that_was_stopped_and_resumed(
    decoder: Make, tmp_path: Path, whole: tuple[Path, loop.Trained], name: str, after: int
) -> None:
    number = signal.Signals[name].value
    first = SignalAfter(after, number)
    with pytest.raises(InterruptedTrainingError) as caught:
        a_run(decoder, tmp_path, first).run(ROWS, VALID)
    assert caught.value.exit_code == 128 + number
    assert (
        caught.value.message
        == f"stopped by {name} after update {after} of 20; its state is saved in checkpoints/{after}"
    )
    assert isinstance(first.told[-1], events.Interrupted)
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)

    second = SignalAfter(-1, 0)
    trained = a_run(decoder, tmp_path, second, going_on=True).run(ROWS, VALID)
    told = [e for e in (*first.told, *second.told) if isinstance(e, events.StepDone)]
    assert [e.step for e in told] == list(range(1, 21))
    assert [e.loss for e in told] == whole[1].losses
    assert (trained.valid_losses, trained.best_step) == (whole[1].valid_losses, whole[1].best_step)
    assert trained.tokens_computed == whole[1].tokens_computed
    assert files_of(tmp_path) == files_of(whole[0])
    assert (tmp_path / "best").resolve().name == (whole[0] / "best").resolve().name


def test_sigusr1_saves_and_training_goes_on(decoder: Make, tmp_path: Path, whole: tuple[Path, loop.Trained]) -> None:
    sink = SignalAfter(7, signal.SIGUSR1)
    assert a_run(decoder, tmp_path, sink).run(ROWS, VALID).losses == whole[1].losses
    assert [e.step for e in sink.told if isinstance(e, events.Saved)] == [5, 7, 10, 15, 20]


def stopped(decoder: Make, folder: Path, **train: Any) -> Path:
    """A run that was stopped inside its second epoch."""
    with pytest.raises(InterruptedTrainingError):
        a_run(decoder, folder, SignalAfter(7, signal.SIGTERM), **train).run(ROWS, VALID)
    return folder


@pytest.fixture(scope="module")
def stopped_once(decoder: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(decoder, tmp_path_factory.mktemp("stopped"))


@pytest.fixture
def after_seven(stopped_once: Path, tmp_path: Path) -> Path:
    """A copy of a run that was stopped after update 7, for a test to change."""
    return Path(shutil.copytree(stopped_once, tmp_path / "checkpoints", symlinks=True))


@pytest.mark.parametrize("part", ["rng", "cursor", "optimizer", "best_score"])
def test_a_state_without_a_part_is_refused_by_its_name(decoder: Make, after_seven: Path, part: str) -> None:
    edit_json(after_seven / "7" / "state.json", lambda state: state.pop(part))
    with pytest.raises(StageError, match=rf"the state lacks:\n(.*\n)?  state\.json: {part}"):
        a_run(decoder, after_seven, going_on=True)


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Return what changes a state's document."""
    return lambda folder: edit_json(folder / "state.json", change)


def cut(folder: Path) -> None:
    """Keep half of the arrays, as a copy that was cut off has it."""
    arrays = folder / "state.safetensors"
    arrays.write_bytes(arrays.read_bytes()[: arrays.stat().st_size // 2])


def flipped(folder: Path) -> None:
    """Turn one bit of the last array."""
    content = bytearray((folder / "state.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "state.safetensors").write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no object": (lambda folder: (folder / "state.json").write_text("[1]"), "not a state"),
    "no json": (lambda folder: (folder / "state.json").write_text('{"schema": '), "not JSON"),
    "empty": (lambda folder: (folder / "state.json").write_bytes(b""), "not JSON"),
    "bytes": (lambda folder: (folder / "state.json").write_bytes(b"\xff\xfe\x00"), "not UTF-8"),
    "word for a number": (damaged(lambda s: s.update(step="seven")), "step: found 'seven'"),
    "number for a list": (damaged(lambda s: s.update(valid_losses=1)), "valid_losses: found '1'"),
    "short key": (damaged(lambda s: s.update(rng=[1])), "rng: wanted two words"),
    "large key": (damaged(lambda s: s.update(rng=[0, 2**40])), "rng: wanted two words"),
    "cursor of another kind": (damaged(lambda s: s.update(cursor=3)), r"cursor\.epoch"),
    "cursor of words": (damaged(lambda s: s["cursor"].update(position=None)), r"cursor\.position: found"),
    "origin": (damaged(lambda s: s["made_from"].pop("files")), r"made_from\.files"),
    "origin of another kind": (damaged(lambda s: s.update(made_from=[])), "made_from: found"),
    "optimiser of another kind": (damaged(lambda s: s.update(optimizer=[1])), "optimizer: found"),
    "cut arrays": (cut, r"state\.safetensors as it was written"),
    "a bit": (flipped, r"state\.safetensors as it was written"),
    "rule of another kind": (damaged(lambda s: s.update(sharing=[])), r"sharing\.least_ratio"),
    "rule without a part": (damaged(lambda s: s["sharing"].pop("streams")), r"sharing\.streams"),
    "rule of words": (damaged(lambda s: s["sharing"].update(least_ratio="1.3")), r"sharing\.least_ratio: found"),
    "no streams": (damaged(lambda s: s["sharing"].update(streams=0)), "sharing: wanted a ratio"),
    "no arrays": (lambda folder: (folder / "state.safetensors").unlink(), r"state\.safetensors"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_refused_in_words(decoder: Make, after_seven: Path, damage: str) -> None:
    change, words = DAMAGE[damage]
    change(after_seven / "7")
    with pytest.raises(StageError, match=words):
        a_run(decoder, after_seven, going_on=True)


@pytest.mark.parametrize("kind", ["trained", "optimizer"])
@pytest.mark.parametrize("how", ["gone", "another shape"])
def test_arrays_without_a_tensor_are_refused_by_its_name_even_without_a_recorded_hash(
    decoder: Make, after_seven: Path, kind: str, how: str
) -> None:
    path = after_seven / "7" / "state.safetensors"
    arrays = load_file(path)
    name = next(name for name, array in arrays.items() if name.startswith(f"{kind}.") and array.size > 1)
    array = arrays.pop(name)
    if how == "another shape":
        arrays[name] = array.reshape(-1)[1:]
    save_file(arrays, path)
    edit_json(after_seven / "7" / "state.json", lambda state: state.pop("arrays_sha256"))
    with pytest.raises(StageError, match=f"not there, or of another shape:\n  {re.escape(name)}"):
        a_run(decoder, after_seven, going_on=True).run(ROWS, VALID)


def test_arrays_that_are_none_are_refused_in_words_even_without_a_recorded_hash(
    decoder: Make, after_seven: Path
) -> None:
    cut(after_seven / "7")
    edit_json(after_seven / "7" / "state.json", lambda state: state.pop("arrays_sha256"))
    with pytest.raises(StageError, match=r"state\.safetensors: cannot be read"):
        a_run(decoder, after_seven, going_on=True).run(ROWS, VALID)


def test_a_copy_that_made_folders_of_the_links_goes_on(
    decoder: Make, stopped_once: Path, tmp_path: Path, whole: tuple[Path, loop.Trained]
) -> None:
    folder = Path(shutil.copytree(stopped_once, tmp_path / "copy"))  # links become folders
    assert not (folder / "last").is_symlink()
    a_run(decoder, folder, going_on=True).run(ROWS, VALID)
    assert files_of(folder) == files_of(whole[0])
    assert (folder / "last").is_symlink()


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("random key", lambda state: state.update(rng=[0, 42])),
        ("place in the data", lambda state: state["cursor"].update(position=1)),
        ("schedule's update", lambda state: state["optimizer"].update(step=0)),
    ],
)
def test_each_part_of_the_state_decides_the_outcome(
    decoder: Make, after_seven: Path, whole: tuple[Path, loop.Trained], part: str, change: Any
) -> None:
    edit_json(after_seven / "7" / "state.json", change)
    losses = a_run(decoder, after_seven, going_on=True).run(ROWS, VALID).losses
    assert losses[:10] != whole[1].losses[7:17], part


def test_a_resumed_run_shares_by_the_rule_of_its_state(
    decoder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version's ratio and another machine's cores change nothing."""
    pairs: dict[str, Any] = {"batch_rows": 2, "accumulate": 1}
    sharing_now = a_run(decoder, tmp_path / "now", **pairs).run(ROWS, VALID)
    with monkeypatch.context() as before:
        before.setattr(sharing, "LEAST_RATIO", 100.0)
        before.setattr(streams, "usable_cores", lambda: 1)
        whole_before = a_run(decoder, tmp_path / "whole", **pairs).run(ROWS, VALID)
        stopped(decoder, tmp_path / "stopped", **pairs)
    state = read_json(tmp_path / "stopped" / "last" / "state.json")
    assert state["sharing"] == {"least_ratio": 100.0, "streams": 1}
    a_run(decoder, tmp_path / "stopped", going_on=True, **pairs).run(ROWS, VALID)
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "whole")
    assert whole_before.tokens_computed > sharing_now.tokens_computed


def test_everything_that_differs_is_refused_at_once_by_name(
    decoder: Make, after_seven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HASHES, "data/train.jsonl", "cc")
    monkeypatch.setitem(HASHES, "recipe.json", "dd")
    with pytest.raises(StageError) as caught:
        a_run(decoder, after_seven, going_on=True, learning_rate=1e-4, accumulate=1, save_every=3, epochs=9)
    assert caught.value.message.splitlines()[1:] == [
        "  data/train.jsonl: sha256 found cc…, the state was made with aa…",
        "  recipe.json: sha256 found dd…, the state was made with bb…",
        "  train.accumulate: found 1, the state has 2",
        "  train.learning_rate: found 0.0001, the state has 0.002",
    ]
    assert "train.epochs" in caught.value.hint


def test_another_adapter_layout_is_refused_tensor_by_tensor() -> None:
    before = {"q.lora_A": [4, 64], "q.lora_B": [64, 4], "k.lora_A": [4, 64]}
    now = {"q.lora_A": [8, 64], "q.lora_B": [64, 4], "v.lora_A": [4, 64]}
    assert sorted(resume.layout_differences(before, now)) == [
        "trained tensor k.lora_A: only in the state",
        "trained tensor q.lora_A: found shape [8, 64], the state has [4, 64]",
        "trained tensor v.lora_A: the state does not have it",
    ]


def test_more_epochs_may_be_asked_for_after_the_end(decoder: Make, tmp_path: Path) -> None:
    a_run(decoder, tmp_path, epochs=1, schedule="constant").run(ROWS, VALID)
    trained = a_run(decoder, tmp_path, going_on=True, epochs=2, schedule="constant").run(ROWS, VALID)
    once = a_run(decoder, tmp_path / "once", epochs=2, schedule="constant").run(ROWS, VALID)
    assert trained.losses == once.losses[5:]  # a constant schedule does not stretch
    assert files_of(tmp_path) == files_of(tmp_path / "once")


def test_a_finished_run_has_nothing_left_to_resume(decoder: Make, tmp_path: Path, whole: tuple[Path, Any]) -> None:
    folder = Path(shutil.copytree(whole[0], tmp_path / "again", symlinks=True))
    assert a_run(decoder, folder, going_on=True).run(ROWS, VALID).losses == []
    assert files_of(folder) == files_of(whole[0])


def test_without_a_state_there_is_nothing_to_resume_from(decoder: Make, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="nothing to resume from"):
        a_run(decoder, tmp_path, going_on=True)


def test_a_random_key_comes_back_as_it_was() -> None:
    mx.random.seed(123456789012345)
    mx.random.uniform(shape=(3,))
    key = resume.random_key()
    drawn = mx.random.uniform(shape=(4,)).tolist()
    resume.set_random_key(key)
    assert mx.random.uniform(shape=(4,)).tolist() == drawn


@pytest.mark.parametrize("optimizer", ["sgd", "adafactor", "lion", "muon"])
def test_every_optimisers_state_comes_back(decoder: Make, tmp_path: Path, optimizer: str) -> None:
    whole = a_run(decoder, tmp_path / "whole", epochs=2, optimizer=optimizer).run(ROWS, VALID)
    stopped(decoder, tmp_path / "cut", epochs=2, optimizer=optimizer)
    rest = a_run(decoder, tmp_path / "cut", going_on=True, epochs=2, optimizer=optimizer).run(ROWS, VALID)
    assert rest.losses == whole.losses[7:]
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
