"""The whole phase against the stand-in trainer, as a user would start it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from helpers import call

from mlx_sentis.validation.phase import SKIP_NOTE

Make = Callable[..., Path]
Trainer = Callable[..., str]
ROOT = Path(__file__).resolve().parents[4]
OOD = ["--ood", "A dragon sings.", "--ood", "A bell is heard in the fog."]


def validate(root: Path, command: str, *flags: object) -> Result:
    return call("validate", "--trainer", "ltx", "--workspace", root, "--command", command, *flags)


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def renders(root: Path) -> dict[str, dict[str, Any]]:
    folder = root / "outputs" / "eval"
    return {name: json.loads((folder / name).read_text()) for name in tree(folder) if name != "prompts.json"}


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def test_three_categories_lie_in_a_clean_layout_with_one_manifest(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    before = state(root / "outputs" / "checkpoints")
    result = validate(root, trainer(), *OOD)
    assert result.exit_code == 0, result.output
    folder = root / "outputs" / "eval"
    assert tree(folder) == [
        *(f"held-out/{n:02d}_{slug}.mp4" for n, slug in enumerate(slugs(root, "holdout.jsonl", 5), 1)),
        *(f"in-distribution/{n:02d}_{slug}.mp4" for n, slug in enumerate(slugs(root, "dataset.json", 3), 1)),
        "out-of-distribution/01_a-dragon-sings.mp4",
        "out-of-distribution/02_a-bell-is-heard-in-the-fog.mp4",
        "prompts.json",
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        "held-out",
        "in-distribution",
        "out-of-distribution",
        "prompts.json",
    ]
    assert not (root / "eval-config.yaml").exists()
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    assert sorted(path.name for path in (root / "outputs").iterdir()) == ["checkpoints", "eval"]
    assert state(root / "outputs" / "checkpoints") == before
    lines = result.stdout.splitlines()
    assert lines[:9] == [
        "Post-train evaluation complete.",
        "",
        "In-distribution renders (3 samples):",
        f"  {folder}/in-distribution/",
        "",
        "Out-of-distribution renders (2 samples):",
        f"  {folder}/out-of-distribution/",
        "",
        "Held-out renders (5 samples):",
    ]
    assert lines[9] == f"  {folder}/held-out/"
    assert "packages/ltx-pipelines/" in result.stdout and "?" not in result.stdout


def slugs(root: Path, file: str, count: int) -> list[str]:
    text = (root / "dataset" / file).read_text(encoding="utf-8")
    rows = json.loads(text) if file.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    drawn = random.Random(42).sample([row["caption"] for row in rows], count)
    return [caption.lower().replace(".", "").replace(" ", "-") for caption in drawn]


def test_each_file_is_the_render_of_its_own_prompt_at_step_0(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    assert validate(root, trainer(), *OOD).exit_code == 0
    manifest = json.loads((root / "outputs" / "eval" / "prompts.json").read_text(encoding="utf-8"))
    tags = {"in-distribution": "[CAT1-IND]", "out-of-distribution": "[CAT2-OOD]", "held-out": "[CAT3-HELDOUT]"}
    found = renders(root)
    assert manifest.keys() == found.keys() and len(found) == 10
    for name, made in found.items():
        assert manifest[name]["category"] == name.partition("/")[0]
        assert made["prompt"] == f"{tags[manifest[name]['category']]} {manifest[name]['prompt']}"
        assert made["step"] == 0  # not what the thrown-away step made of it
        assert "conditions" not in made
    kept = [entry["prompt"] for entry in manifest.values() if entry["category"] == "held-out"]
    assert all("of kept" in prompt for prompt in kept)


def test_without_held_out_samples_a_note_says_so_and_none_are_made_up(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace(held_out=0)
    result = validate(root, trainer(), *OOD)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[lines.index("Held-out renders (0 samples):") + 1] == "  (skipped — no holdout set)"
    assert SKIP_NOTE in lines
    assert SKIP_NOTE == (
        "Held-out evaluation skipped: no holdout set was reserved for this run. "
        "The post-train eval only covers Categories 1 and 2."
    )
    assert not (root / "outputs" / "eval" / "held-out").exists()
    answer = json.loads(validate(root, trainer(), *OOD, "--json").stdout)
    assert (answer["schema"], answer["held_out_skipped"]) == ("mlx-sentis/validate/1", True)
    assert answer["counts"] == {"in-distribution": 3, "out-of-distribution": 2, "held-out": 0}


def test_up_to_five_held_out_samples_are_all_rendered_in_their_order(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace(held_out=4, trained=2)
    assert validate(root, trainer(), *OOD).exit_code == 0
    names = [name for name in renders(root) if name.startswith("held-out/")]
    assert [name.split("_take-")[1][0] for name in names] == ["0", "1", "2", "3"]
    assert sum(name.startswith("in-distribution/") for name in renders(root)) == 2


@pytest.mark.parametrize("steps", [(1750,), ()])
def test_without_the_final_checkpoint_it_stops_and_takes_no_other(
    make_workspace: Make, trainer: Trainer, steps: tuple[int, ...]
) -> None:
    root = make_workspace(steps=steps)
    result = validate(root, trainer(), *OOD)
    assert result.exit_code == 1
    assert "the final checkpoint (step 2000) is not there" in result.stderr
    assert f"checkpoints there: {', '.join(map(str, steps)) or 'none'}" in result.stderr
    assert not (root / "outputs" / "eval").exists()


def test_an_earlier_checkpoint_is_rendered_when_it_is_asked_for(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace(steps=(1750,))
    result = validate(root, trainer(), *OOD, "--checkpoint", 1750)
    assert result.exit_code == 0 and "lora_weights_step_01750.safetensors" in result.stderr
    assert "checkpoint 9 is not there" in validate(root, trainer(), *OOD, "--checkpoint", 9).stderr


def test_when_memory_runs_out_it_renders_once_more_and_smaller(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    result = validate(root, trainer("--memory", 480 * 256), *OOD)
    assert result.exit_code == 0, result.output
    assert {tuple(made["dims"]) for made in renders(root).values()} == {(480, 256, 89)}
    assert "Rendered at 480×256, 89 frames: memory ran out at 960×544, 89 frames." in result.stdout
    assert result.stderr.count("CUDA out of memory") == 1


def test_when_memory_runs_out_twice_it_stops_and_says_how_to_render_by_hand(
    make_workspace: Make, trainer: Trainer
) -> None:
    root = make_workspace()
    before = state(root / "outputs" / "checkpoints")
    result = validate(root, trainer("--memory", 1000), *OOD)
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.count("step 0: 10 samples") == 2
    assert "packages/ltx-pipelines/" in result.stderr and "eval-config.yaml" in result.stderr
    assert (root / "eval-config.yaml").is_file()
    assert state(root / "outputs" / "checkpoints") == before


def test_a_trainer_that_fails_is_not_started_again_and_is_quoted(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    result = validate(root, trainer("--fail"), *OOD)
    assert result.exit_code == 1
    assert "the trainer ended with exit code 1: ValueError: the text encoder is missing" in result.stderr
    assert result.stderr.count("step 0: 10 samples") == 1
    assert (root / "eval-config.yaml").is_file()


def test_renders_of_before_stay_when_the_trainer_fails_and_go_when_it_does_not(
    make_workspace: Make, trainer: Trainer
) -> None:
    root = make_workspace()
    assert validate(root, trainer(), "--ood", "An older prompt, spoken.").exit_code == 0
    before = tree(root / "outputs" / "eval")
    assert validate(root, trainer("--fail"), *OOD).exit_code == 1
    assert [name for name in tree(root / "outputs" / "eval") if name != "training_config.yaml"] == before
    assert validate(root, trainer(), *OOD).exit_code == 0  # what the failed one left is no obstacle
    names = tree(root / "outputs" / "eval")
    assert not any("an-older-prompt" in name for name in names) and len(names) == 11


@pytest.mark.parametrize(
    ("flags", "fault"),
    [(("--leave-out", 3), "sample 3: missing"), (("--empty", 4), "sample 4: step_000000_4.mp4 is empty")],
)
def test_a_wrong_number_of_renders_moves_nothing(
    make_workspace: Make, trainer: Trainer, flags: tuple[object, ...], fault: str
) -> None:
    root = make_workspace()
    result = validate(root, trainer(*flags), *OOD)
    assert result.exit_code == 1 and fault in result.stderr
    assert not (root / "outputs" / "eval" / "in-distribution").exists()
    assert (root / "outputs" / "eval" / "samples" / "step_000000_1.mp4").is_file()


def test_left_over_samples_of_another_run_are_never_taken_for_renders(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    samples = root / "outputs" / "eval" / "samples"
    samples.mkdir(parents=True)
    for number in range(1, 20):
        (samples / f"step_000000_{number}.mp4").write_text("old")
    result = validate(root, trainer("--leave-out", 3), *OOD)
    assert result.exit_code == 1 and "sample 3: missing" in result.stderr


def test_what_no_render_left_in_the_folder_is_not_replaced(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    notes = root / "outputs" / "eval" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    result = validate(root, trainer(), *OOD)
    assert result.exit_code == 1 and "notes.txt" in result.stderr and notes.read_text() == "mine"
    assert "step 0:" not in result.stderr  # told before the trainer starts


def test_a_link_to_the_training_checkpoints_is_taken_away_and_they_stay(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    before = state(root / "outputs" / "checkpoints")
    (root / "outputs" / "eval").mkdir()
    (root / "outputs" / "eval" / "checkpoints").symlink_to(root / "outputs" / "checkpoints")
    assert validate(root, trainer(), *OOD).exit_code == 0
    assert state(root / "outputs" / "checkpoints") == before


def test_generic_prompts_have_the_trigger_word_and_describe_the_sound_as_the_captions_do(
    make_workspace: Make, trainer: Trainer
) -> None:
    root = make_workspace()
    (root / "plan.md").write_text("| LoRA rank / alpha | 32 |\n| LoRA trigger word | `zorblax` |\n", encoding="utf-8")
    result = validate(root, trainer(), "--ood", "default")
    assert "generic prompts" in result.stderr
    manifest = json.loads((root / "outputs" / "eval" / "prompts.json").read_text(encoding="utf-8"))
    prompts = [entry["prompt"] for entry in manifest.values() if entry["category"] == "out-of-distribution"]
    assert len(prompts) == 3
    assert all(prompt.startswith("zorblax ") and "A soft voice says the number" in prompt for prompt in prompts)
    assert validate(root, trainer(), "--yes", "--trigger", "quux").exit_code == 0  # nobody is asked
    assert all("quux" in name for name in renders(root) if name.startswith("out-of"))


def test_own_prompts_that_say_nothing_of_the_sound_are_named_where_sound_is_made(
    make_workspace: Make, trainer: Trainer
) -> None:
    root = make_workspace()
    result = validate(root, trainer(), "--ood", "A dragon in the fog", "--ood", "A bell is heard.")
    assert "1 of 2 prompts say nothing about sound" in result.stderr
    prompts = [made["prompt"] for name, made in renders(root).items() if name.startswith("out-of")]
    assert prompts == ["[CAT2-OOD] A dragon in the fog", "[CAT2-OOD] A bell is heard."]  # verbatim all the same


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trainer", "ltx", "--workspace", "w"], "--trainer ltx needs --workspace and --command"),
        (["run", "--workspace", "w"], "--workspace: only with --trainer ltx"),
        ([], "give a run folder"),
        (["run", "--trainer", "ltx", "--workspace", "w", "--command", "x"], "not both"),
        (["--trainer", "ltx", "--workspace", "w", "--command", "'x"], "No closing quotation"),
        (["--trainer", "ltx", "--workspace", "w", "--command", " "], "--command: found nothing"),
    ],
)
def test_half_a_command_line_is_wrong_use(words: list[str], said: str) -> None:
    result = call("validate", *words)
    assert result.exit_code == 2 and said in result.stderr


def test_a_program_that_is_not_there_is_wrong_use_in_one_line(make_workspace: Make) -> None:
    result = validate(make_workspace(), "no-such-program --flag", *OOD)
    assert result.exit_code == 2 and "--command: no-such-program: No such file" in result.stderr


def test_a_person_at_a_terminal_is_asked_once(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace()
    words = [sys.executable, "-m", "cli", "validate", "--trainer", "ltx", "--workspace", str(root)]
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*words, "--command", trainer()], cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"A gong, very loud.\nA whisper.\n\n")
    said = b""
    with contextlib.suppress(OSError):  # a terminal whose other side is gone ends with an error
        while piece := os.read(ours, 4096):
            said += piece
    assert child.stdout is not None
    block = child.stdout.read().decode()
    child.stdout.close()
    assert child.wait() == 0
    os.close(ours)
    assert said.decode().count("Which 2 or 3 prompts") == 1
    assert "Out-of-distribution renders (2 samples):" in block
    assert (root / "outputs" / "eval" / "out-of-distribution" / "02_a-whisper.mp4").is_file()


def test_a_relative_workspace_gives_the_trainer_absolute_paths(
    make_workspace: Make, trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_workspace()
    monkeypatch.chdir(root.parent)
    words = ["--trainer", "ltx", "--workspace", root.name, "--command", trainer(), "--trainer-dir", tmp_path, *OOD]
    assert call("validate", *words).exit_code == 0  # the stand-in refuses weights by a relative path
    assert len(renders(root)) == 10


def test_audio_alone_is_rendered_to_audio_files(make_workspace: Make, trainer: Trainer) -> None:
    def audio_only(config: dict[str, Any]) -> None:
        config["training_strategy"] = {"name": "flexible", "audio": {"is_generated": True, "latents_dir": "a"}}
        config["validation"]["generate_video"] = False

    root = make_workspace(audio_only)
    result = validate(root, trainer(), "--ood", "default", "--trigger", "zorb")
    assert result.exit_code == 0 and {Path(name).suffix for name in renders(root)} == {".wav"}
    new = [made["prompt"] for name, made in renders(root).items() if name.startswith("out-of")]
    assert all(prompt.startswith("[CAT2-OOD] zorb, ") and "A soft voice says" in prompt for prompt in new)


def test_nothing_is_sent_away_and_that_is_said(make_workspace: Make, trainer: Trainer) -> None:
    root = make_workspace(lambda config: config.update(hub={"push_to_hub": True, "hub_model_id": "me/mine"}))
    result = validate(root, trainer("--fail"), *OOD)
    assert "hub.push_to_hub is switched off for this phase" in result.stderr
    kept = yaml.safe_load((root / "eval-config.yaml").read_text(encoding="utf-8"))
    assert kept["hub"] == {"push_to_hub": False, "hub_model_id": "me/mine"}


def test_the_command_starts_where_it_is_told_to(make_workspace: Make, tmp_path: Path) -> None:
    from_there = Path(__file__).parent
    command = f"{sys.executable} stand_in_trainer.py"
    root = make_workspace()
    assert validate(root, command, *OOD, "--trainer-dir", from_there).exit_code == 0
    assert validate(root, command, *OOD, "--trainer-dir", tmp_path / "nowhere").exit_code == 2


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("config.yaml", "model: [", "config.yaml: not YAML"),
        ("config.yaml", "- 1", "found no mapping"),
        ("dataset/dataset.json", "[]", "holds no sample"),
        ("dataset/dataset.json", '[{"caption": ""}, {"video": "x"}]', "dataset.json:2: no caption"),
        ("dataset/holdout.jsonl", '{"caption": "a"}\n{broken\n', "holdout.jsonl:2:"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(
    make_workspace: Make, trainer: Trainer, file: str, text: str, said: str
) -> None:
    root = make_workspace()
    (root / file).write_text(text, encoding="utf-8")
    result = validate(root, trainer(), *OOD)
    assert result.exit_code == 1 and said in result.stderr and "Traceback" not in result.output
