"""Settings: where a value comes from, what is refused, and the file that keeps them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from weights_bridge.errors import StageError, UsedWronglyError
from weights_bridge.settings import Settings, resolve


def toml(tmp_path: Path, text: str) -> Path:
    (tmp_path / "npc.toml").write_text(text, encoding="utf-8")
    return tmp_path / "npc.toml"


def refusal(**sources: Any) -> StageError:
    with pytest.raises(StageError) as caught:
        resolve(**sources)
    return caught.value


def test_without_sources_everything_is_a_default() -> None:
    resolved = resolve()
    assert (resolved.settings, resolved.origins) == (Settings(), {})


def test_later_sources_win_and_each_value_knows_its_origin(tmp_path: Path) -> None:
    file = toml(tmp_path, "[train]\nepochs = 5\nbatch_rows = 4\n[adapter]\nrank = 8\n")
    recipe = {"train": {"epochs": 9, "seed": 7}}
    resolved = resolve(recipe=recipe, file=file, overrides=("train.batch_rows=2", "train.batch_rows=3"))
    train = resolved.settings.train
    assert (train.epochs, train.batch_rows, train.seed, resolved.settings.adapter.rank) == (5, 3, 7, 8)
    assert resolved.origins == {
        "train.epochs": "file npc.toml",
        "train.batch_rows": "flag",
        "train.seed": "recipe",
        "adapter.rank": "file npc.toml",
    }


def test_two_resolutions_do_not_share_their_lists() -> None:
    resolve().settings.adapter.targets.append("q_proj")
    assert resolve().settings.adapter.targets == ["all-linear"]


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.epochs=2", "train", "epochs", 2),
        ("train.learning_rate=1e-4", "train", "learning_rate", 1e-4),
        ("train.learning_rate=1", "train", "learning_rate", 1.0),
        ("train.share_prefix=false", "train", "share_prefix", False),
        ("train.schedule=linear", "train", "schedule", "linear"),
        ("adapter.type='lora'", "adapter", "type", "lora"),
        ("adapter.targets=q_proj,v_proj", "adapter", "targets", ["q_proj", "v_proj"]),
        ('adapter.targets=["q_proj"]', "adapter", "targets", ["q_proj"]),
        ("export.batch=1", "export", "batch", "1"),
        ("export.sentis=2.5", "export", "sentis", "2.5"),
        ("model.name=./my model", "model", "name", "./my model"),
        ("model.name=42", "model", "name", "42"),
        ("model.name='a b'", "model", "name", "a b"),
        ("data.source=a=b.jsonl", "data", "source", "a=b.jsonl"),
        ("data.source=2024-01-01", "data", "source", "2024-01-01"),
        ("data.map=user=question,assistant=reply", "data", "map", ["user=question", "assistant=reply"]),
        ("data.map=[]", "data", "map", []),
        ("data.too_long=left", "data", "too_long", "left"),
        ("data.near_duplicate=1", "data", "near_duplicate", 1.0),
    ],
)
def test_a_flag_sets_one_value_of_the_declared_type(override: str, section: str, key: str, value: object) -> None:
    found = getattr(getattr(resolve(overrides=(override,)).settings, section), key)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["train.epochs", "epochs=2", "=2", "train epochs 2"])
def test_a_flag_of_another_form_is_shown_the_right_one(text: str) -> None:
    error = refusal(overrides=(text,))
    assert error.message == f"--set {text!r}: not of the form section.key=value"
    assert "--set train.epochs=2" in error.hint


def test_an_unknown_section_or_key_is_refused_with_the_nearest() -> None:
    assert "unknown section 'trian'; did you mean train?" in str(refusal(overrides=("trian.epochs=2",)))
    assert "unknown key 'train.epoch'; did you mean train.epochs?" in str(refusal(overrides=("train.epoch=2",)))
    assert "unknown key 'train.a.b'" in str(refusal(overrides=("train.a.b=2",)))


def test_all_faults_of_a_source_are_told_at_once(tmp_path: Path) -> None:
    file = toml(
        tmp_path,
        """
        adapter = 3
        [train]
        epochs = 2.5
        batch_rows = true
        learning_rate = "fast"
        share_prefix = 1
        schedule = "step"
        [data]
        source = 7
        [export]
        batch = 2
        [eval]
        qqq = "red"
        """,
    )
    assert refusal(file=file).message.splitlines() == [
        "configuration (file npc.toml):",
        "  adapter: found 3, wanted a table",
        "  data.source: found 7, wanted a text",
        "  export.batch: found 2, wanted one of 1, dynamic",
        "  train.batch_rows: found True, wanted a whole number",
        "  train.epochs: found 2.5, wanted a whole number",
        "  train.learning_rate: found 'fast', wanted a number",
        "  train.schedule: found 'step', wanted one of constant, linear, cosine, inverse",
        "  train.share_prefix: found 1, wanted true or false",
        "  unknown key 'eval.qqq'; known: eval.max_new_tokens, eval.rows",
    ]


def test_several_flags_are_told_at_once() -> None:
    assert len(refusal(overrides=("train.epochs=x", "adapter.rank=y")).message.splitlines()) == 3


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("train.epochs=0", "1 or more"),
        ("train.batch_rows=0", "1 or more"),
        ("adapter.rank=0", "1 or more"),
        ("eval.max_new_tokens=0", "1 or more"),
        ("train.seed=-1", "0 or more"),
        ("train.weight_decay=-0.1", "0 or more"),
        ("train.learning_rate=0", "a number above 0"),
        ("adapter.alpha=0", "a number above 0"),
        ("train.learning_rate=nan", "a finite number"),
        ("train.gradient_clip=inf", "a finite number"),
        ("data.near_duplicate=0", "a number above 0, at most 1"),
        ("data.near_duplicate=1.1", "a number above 0, at most 1"),
        ("data.too_long=cut", "one of refuse, drop, left"),
        ("adapter.targets=[]", "a list of texts"),
        ("adapter.targets=[1]", "a list of texts"),
    ],
)
def test_a_value_that_cannot_work_is_refused(override: str, wanted: str) -> None:
    key, _, _ = override.partition("=")
    assert f"{key}: found " in str(refusal(overrides=(override,)))
    assert f"wanted {wanted}" in str(refusal(overrides=(override,)))


def test_the_written_file_gives_the_same_settings_and_names_each_origin(tmp_path: Path) -> None:
    file = toml(tmp_path, '[data]\nsource = "C:\\\\a \\"b\\" ñ.jsonl"\n[adapter]\ntargets = ["q_proj", "v_proj"]\n')
    resolved = resolve(file=file, overrides=("train.learning_rate=3e-05", "train.share_prefix=false"))
    resolved.write(tmp_path / "config.toml")
    assert resolve(file=tmp_path / "config.toml").settings == resolved.settings
    lines = (tmp_path / "config.toml").read_text(encoding="utf-8").splitlines()
    assert "learning_rate = 3e-05 # flag" in lines
    assert 'targets = ["q_proj", "v_proj"] # file npc.toml' in lines
    assert f"epochs = {Settings().train.epochs} # default" in lines


def test_the_written_file_lists_every_key(tmp_path: Path) -> None:
    resolve().write(tmp_path / "config.toml")
    written = tomllib.loads((tmp_path / "config.toml").read_text(encoding="utf-8"))
    wanted = {section: set(vars(values)) for section, values in vars(Settings()).items()}
    assert {section: set(values) for section, values in written.items()} == wanted


def test_an_unreadable_file_is_one_line(tmp_path: Path) -> None:
    assert "npc.toml: no such file" in refusal(file=tmp_path / "npc.toml").message
    error = refusal(file=toml(tmp_path, "[train\nepochs = 2"))
    assert "npc.toml: not TOML: " in error.message
    assert "line 1" in error.message
    (tmp_path / "npc.toml").write_bytes(b"\xff")
    assert "not TOML" in refusal(file=tmp_path / "npc.toml").message


def test_a_table_of_patterns_is_read_from_a_file_and_a_flag_and_survives_config_toml(tmp_path: Path) -> None:
    text = '[adapter.rank_pattern]\n"layers.[0-3].*" = 8\nmlp.up_proj = 4\n'
    resolved = resolve(file=toml(tmp_path, text), overrides=("adapter.alpha_pattern={q_proj = 8}",))
    adapter = resolved.settings.adapter
    assert adapter.rank_pattern == {"layers.[0-3].*": 8, "mlp.up_proj": 4}
    assert adapter.alpha_pattern == {"q_proj": 8.0} and isinstance(adapter.alpha_pattern["q_proj"], float)
    resolved.write(tmp_path / "config.toml")
    assert resolve(file=tmp_path / "config.toml").settings == resolved.settings
    assert "alpha_pattern = {q_proj = 8.0} # flag" in (tmp_path / "config.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "value", ["8", "{q_proj = 'x'}", "{q_proj = 0}", "{q_proj = -2}", "{q_proj = true}", "{q_proj = 1.5}"]
)
def test_a_table_of_ranks_takes_whole_numbers_above_0_only(value: str) -> None:
    assert "a table of pattern to a whole number above 0" in str(refusal(overrides=(f"adapter.rank_pattern={value}",)))


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("train.seed=18446744073709551616", "0 or more, at most"),
        ("data.seed=9223372036854775808", "0 or more, at most"),
        ("train.epochs=1000000000", "1 or more, at most 100000"),
        ("train.memory_limit_gib=1e300", "0 or more, at most"),
        ("train.cache_limit_gib=1e300", "0 or more, at most"),
    ],
)
def test_numbers_that_no_machine_takes_are_refused(override: str, wanted: str) -> None:
    with pytest.raises(UsedWronglyError, match=wanted):
        resolve(overrides=(override,))
