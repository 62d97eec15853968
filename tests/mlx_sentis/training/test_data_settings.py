"""Settings of the data in a training: nothing is silently ignored, and config.toml says what the data was made with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import call

from mlx_sentis.training.data_settings import prepared_with, take_data_settings
from weights_bridge.adapter_kinds import KINDS
from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.files import write_jsonl
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import resolve


@pytest.fixture(scope="module")
def last(toy_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Conversations of which only the last turn is trained."""
    folder = tmp_path_factory.mktemp("last")
    pair = [{"role": "user", "content": "Open gate {}"}, {"role": "assistant", "content": "Gate {} is open."}]
    rows = [
        {"messages": [one | {"content": one["content"].format(n)} for one in (*pair, *pair)]} for n in range(100, 130)
    ]
    write_jsonl(folder / "rows.jsonl", rows)
    words = ("--set", "data.train_turns=last", "--set", "data.max_tokens=200", "--set", "data.near_duplicate=1")
    result = call("prepare", folder / "rows.jsonl", "--model", toy_model("llama"), "--out", folder / "run", *words)
    assert result.exit_code == 0, result.output
    return RunFolder(folder / "run")


def test_a_flag_that_contradicts_the_data_is_refused_with_both_values(last: RunFolder, tmp_path: Path) -> None:
    run = Path(shutil.copytree(last.root, tmp_path / "run"))
    result = call("train", "--data", run, "--out", run, "--set", "data.train_turns=all", "--progress", "off")
    assert result.exit_code == 2, result.output
    assert "data.train_turns: found 'all' (flag), the data was prepared with 'last'" in result.stderr
    assert not (run / "checkpoints").exists() and not (run / "config.toml").exists()


def test_flags_that_nothing_records_or_that_say_the_same(last: RunFolder) -> None:
    take_data_settings(last, resolve(overrides=("data.train_turns=last", "data.max_tokens=200")), from_run=False)
    with pytest.raises(UsedWronglyError, match=r"data\.holdout_share: found 0\.3 \(flag\), a training shapes no data"):
        take_data_settings(last, resolve(overrides=("data.holdout_share=0.3",)), from_run=False)


def test_a_file_that_asks_for_other_data_is_refused_and_one_that_lists_defaults_is_not(
    last: RunFolder, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    resolve(overrides=("train.epochs=2",)).write(file)  # lists every setting
    settings = resolve(file=file)
    take_data_settings(last, settings, from_run=False)
    assert (settings.settings.data.train_turns, settings.settings.data.max_tokens) == ("last", 200)
    file.write_text("[data]\nmax_tokens = 300\n")
    with pytest.raises(StageError, match=r"max_tokens: found 300 \(file mine\.toml\), the data was prepared with 200"):
        take_data_settings(last, resolve(file=file), from_run=False)
    settings = resolve(file=file)
    take_data_settings(last, settings, from_run=True)  # an earlier training's own file
    settings.write(file)
    assert 'train_turns = "last" # prepared data' in file.read_text()


def test_what_the_data_was_prepared_with_is_read_from_its_files(last: RunFolder) -> None:
    assert prepared_with(last) == {
        "train_turns": "last",
        "max_tokens": 200,
        "too_long": "refuse",
        "near_duplicate": 1.0,
        "seed": 42,
    }


def test_a_contract_whose_train_turns_was_turned_does_not_hold_even_without_a_manifest(
    last: RunFolder, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(last.root, tmp_path / "run"))
    (run / "manifest.json").unlink()
    contract = (run / "prompt_contract.json").read_text(encoding="utf-8")
    assert '"train_turns": "last"' in contract
    turned = contract.replace('"train_turns": "last"', '"train_turns": "all"')
    (run / "prompt_contract.json").write_text(turned, encoding="utf-8")
    result = call("train", "--data", run, "--out", run, "--set", "train.batch_rows=4", "--progress", "off")
    assert result.exit_code == 1, result.output
    assert "FAIL contract train_turns: –, altered · train_turns · row train-" in result.stderr
    assert "trains 1 of 2 turns, train_turns = all wants 2" in result.stderr


def test_the_help_names_the_kinds_that_can_be_trained() -> None:
    text = " ".join(call("train", "--help").output.split())
    plain = [kind for kind in KINDS if not kind.endswith("-xs")]
    assert all(kind in text for kind in [*plain, "-xs forms", "all weights"])
