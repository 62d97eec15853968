"""File names, and what may lie in the folder of the renders."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlx_sentis.validation.layout import clear_leftovers, move_into_place, names_of, require_ours, slug
from mlx_sentis.validation.prompts import HELD_OUT, IN_DISTRIBUTION, Prompt
from weights_bridge.errors import StageError
from weights_bridge.files import read_json


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("Open the gate, please!", "open-the-gate-please"),
        ("  Über das Café_No. 7\n", "uber-das-cafe-no-7"),
        ("橋の上で会おう", "橋の上で会おう"),
        ("... !?", "prompt"),
        ("../../etc/passwd", "etc-passwd"),
        ("word " * 40, "-".join(["word"] * 9)),
        ("x" * 200, "x" * 48),
    ],
)
def test_a_prompt_becomes_part_of_a_file_name(prompt: str, wanted: str) -> None:
    assert slug(prompt) == wanted


def test_renders_are_numbered_within_their_category_and_equal_prompts_do_not_collide() -> None:
    prompts = [Prompt("Go.", IN_DISTRIBUTION), Prompt("Go!", IN_DISTRIBUTION), Prompt("Go.", HELD_OUT)]
    files = [Path("1.MP4"), Path("2.mp4"), Path("3.wav")]
    assert names_of(prompts, files) == ["in-distribution/01_go.mp4", "in-distribution/02_go.mp4", "held-out/01_go.wav"]


def test_renders_are_moved_and_the_folder_holds_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "eval"
    (folder / "samples").mkdir(parents=True)
    files = [folder / "samples" / "a.txt", folder / "samples" / "b.txt"]
    for file in files:
        file.write_text(file.stem)
    placed = move_into_place([Prompt("Go.", IN_DISTRIBUTION), Prompt("Wait.", HELD_OUT)], files, folder)
    assert list(placed) == ["in-distribution/01_go.txt", "held-out/01_wait.txt"]
    assert {path.name for path in folder.iterdir()} == {"in-distribution", "held-out", "prompts.json"}
    assert (folder / "held-out" / "01_wait.txt").read_text() == "b"
    assert read_json(folder / "prompts.json")["held-out/01_wait.txt"] == {"prompt": "Wait.", "category": "held-out"}
    assert list(folder.parent.iterdir()) == [folder]
    require_ours(folder)


def test_a_stranger_in_the_folder_is_named_and_system_files_are_none(tmp_path: Path) -> None:
    require_ours(tmp_path / "not there")
    (tmp_path / "held-out").mkdir()
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "step_000000_1.mp4").touch()
    require_ours(tmp_path)
    (tmp_path / "held-out" / "my-favourite.mp4").touch()
    with pytest.raises(StageError, match=r"held-out/my-favourite\.mp4"):
        require_ours(tmp_path)
    (tmp_path / "prompts.json").write_text('{"held-out/my-favourite.mp4": {"prompt": "p", "category": "held-out"}}')
    require_ours(tmp_path)
    (tmp_path / "prompts.json").write_text("{")
    with pytest.raises(StageError, match="my-favourite"):
        require_ours(tmp_path)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "eval").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StageError, match="is a link"):
        require_ours(tmp_path / "eval")


def test_clearing_takes_links_away_and_leaves_what_they_point_at(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "weights").touch()
    folder = tmp_path / "eval"
    (folder / "samples").mkdir(parents=True)
    (folder / "checkpoints").symlink_to(precious)
    (folder / "training_config.yaml").touch()
    clear_leftovers(folder)
    assert list(folder.iterdir()) == [] and (precious / "weights").exists()
