"""The three categories of prompts, and how many of each are drawn.

| category | drawn from | how many |
|---|---|---|
| in-distribution | what was trained | 3, `random.Random(42).sample` |
| out-of-distribution | the user, or generic ones | 2–3 |
| held-out | what was kept back before training | all up to 5, else 5, `random.Random(42).sample` |

Without held-out rows the third is left out and said to be: nothing is made up in its place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

SEED = 42
TRAINED_PROMPTS = 3
HELD_OUT_PROMPTS = 5
Item = TypeVar("Item")


@dataclass(frozen=True)
class Category:
    """One kind of prompt.

    Attributes:
        folder: its folder, and its name in `prompts.json`.
        tag: what stands before the prompt where only the prompt can carry the category.
        title: its name in the printed block.
    """

    folder: str
    tag: str
    title: str


IN_DISTRIBUTION = Category("in-distribution", "[CAT1-IND]", "In-distribution")
OUT_OF_DISTRIBUTION = Category("out-of-distribution", "[CAT2-OOD]", "Out-of-distribution")
HELD_OUT = Category("held-out", "[CAT3-HELDOUT]", "Held-out")
CATEGORIES = (IN_DISTRIBUTION, OUT_OF_DISTRIBUTION, HELD_OUT)


@dataclass(frozen=True)
class Prompt:
    """What is rendered once.

    Attributes:
        text: the full prompt, as people read it.
        category: its kind.
        conditions: what the renderer needs beside the text: token ids for text, media for video and audio.
    """

    text: str
    category: Category
    conditions: Any = None


class Renderer(Protocol):
    """A tuned model that turns prompts into files."""

    def render(self, prompts: Sequence[Prompt], folder: Path) -> list[Path]:
        """Render every prompt and return one file per prompt, in their order.

        Args:
            prompts: all of them at once, because some renderers load a model for minutes.
            folder: an empty folder for the files; they may lie elsewhere, and are moved away from where they are.

        Raises:
            StageError: a prompt cannot be rendered.
        """
        ...


def sampled(items: Sequence[Item], most: int) -> list[Item]:
    """Return all items when there are at most `most`, else that many drawn with seed 42, in the order drawn."""
    return list(items) if len(items) <= most else random.Random(SEED).sample(items, most)
