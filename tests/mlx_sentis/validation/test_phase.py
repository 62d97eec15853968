"""The phase through the one interface: any renderer that turns prompts into files, sound among them."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlx_sentis.validation.phase import SKIP_NOTE, SKIPPED, Rendered, block, render_phase
from mlx_sentis.validation.prompts import HELD_OUT, IN_DISTRIBUTION, OUT_OF_DISTRIBUTION, Prompt
from weights_bridge.errors import StageError

PROMPTS = [
    Prompt("a slow melody", IN_DISTRIBUTION, {"seconds": 1}),
    Prompt("rain on a roof", OUT_OF_DISTRIBUTION, {"seconds": 2}),
]


class Sounds:
    """Writes silence as long as a prompt's condition says."""

    def __init__(self, left_out: int = 0, fails: bool = False) -> None:
        self.left_out, self.fails = left_out, fails

    def render(self, prompts: Sequence[Prompt], folder: Path) -> list[Path]:
        files = []
        for number, prompt in enumerate(prompts):
            with wave.open(str(folder / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(b"\0\0" * 8000 * prompt.conditions["seconds"])
            files.append(folder / f"{number}.wav")
        if self.fails:
            raise StageError("no sound came")
        return files[self.left_out :]


def test_a_renderer_of_sounds_fills_the_same_layout(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "outputs" / "eval"
    files = render_phase(PROMPTS, Sounds(), folder)
    assert list(files) == ["in-distribution/01_a-slow-melody.wav", "out-of-distribution/01_rain-on-a-roof.wav"]
    with wave.open(str(folder / "out-of-distribution" / "01_rain-on-a-roof.wav")) as file:
        assert file.getnframes() == 16000
    assert [path.name for path in folder.parent.iterdir()] == ["eval"]


@pytest.mark.parametrize("renderer", [Sounds(left_out=1), Sounds(fails=True)])
def test_a_renderer_that_falls_short_leaves_the_folder_as_it_was(tmp_path: Path, renderer: Sounds) -> None:
    folder = tmp_path / "eval"
    before = {name: (folder / name).read_bytes() for name in render_phase(PROMPTS, Sounds(), folder)}
    with pytest.raises(StageError, match=r"1 files for 2 prompts|no sound came"):
        render_phase(PROMPTS[::-1], renderer, folder)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert [path.name for path in tmp_path.iterdir()] == ["eval"]


def test_the_block_has_counts_and_paths_and_neither_verdict_nor_question() -> None:
    files = dict(zip("abc", [*PROMPTS, Prompt("wind", HELD_OUT)], strict=True))
    text = block(Rendered(Path("runs/x/outputs/eval"), files, ("One more thing.",)))
    assert text.splitlines()[:12] == [
        "Post-train evaluation complete.",
        "",
        "In-distribution renders (1 samples):",
        "  runs/x/outputs/eval/in-distribution/",
        "",
        "Out-of-distribution renders (1 samples):",
        "  runs/x/outputs/eval/out-of-distribution/",
        "",
        "Held-out renders (1 samples):",
        "  runs/x/outputs/eval/held-out/",
        "",
        "One more thing.",
    ]
    assert SKIPPED not in text and SKIP_NOTE not in text and "?" not in text
    words = set(text.lower().replace(".", "").split())
    assert not words & {"good", "bad", "pass", "passed", "fail", "failed", "improved", "better", "worse"}
