"""The phase itself: prompts in, files in their layout, a block that says where they are. No verdict is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_sentis.validation.layout import move_into_place, require_ours, scratch_beside
from mlx_sentis.validation.prompts import CATEGORIES, HELD_OUT, Category, Prompt, Renderer
from weights_bridge.errors import StageError

# The words of both are fixed by the procedure (see ARCHITECTURE.md): other programs look for them.
SKIPPED = "(skipped — no holdout set)"
SKIP_NOTE = (
    "Held-out evaluation skipped: no holdout set was reserved for this run. "
    "The post-train eval only covers Categories 1 and 2."
)


@dataclass(frozen=True)
class Rendered:
    """What a phase left.

    Attributes:
        folder: `outputs/eval`.
        files: file below it to its prompt, in order.
        notes: what the block has to add.
    """

    folder: Path
    files: dict[str, Prompt]
    notes: tuple[str, ...] = ()

    def count(self, category: Category) -> int:
        """Return how many renders a category has."""
        return sum(prompt.category == category for prompt in self.files.values())

    @property
    def has_held_out(self) -> bool:
        return self.count(HELD_OUT) > 0

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` says."""
        return {
            "folder": str(self.folder),
            "counts": {category.folder: self.count(category) for category in CATEGORIES},
            "held_out_skipped": not self.has_held_out,
            "files": {
                name: {"prompt": prompt.text, "category": prompt.category.folder} for name, prompt in self.files.items()
            },
            "notes": [*([] if self.has_held_out else [SKIP_NOTE]), *self.notes],
        }


def render_phase(prompts: Sequence[Prompt], renderer: Renderer, folder: Path) -> dict[str, Prompt]:
    """Render all prompts and put the files into their layout.

    Args:
        prompts: of all categories, in the order of `CATEGORIES`.
        renderer: the tuned model.
        folder: `outputs/eval`; it is replaced when every render is there, and stays as it was until then.

    Returns:
        File below the folder to its prompt.

    Raises:
        StageError: a prompt cannot be rendered, files are missing, or the folder holds something else.
    """
    require_ours(folder)
    with scratch_beside(folder) as scratch:
        files = renderer.render(prompts, scratch)
        if len(files) != len(prompts):
            raise StageError(f"the renderer gave {len(files)} files for {len(prompts)} prompts", hint="render again")
        return move_into_place(prompts, files, folder)


def block(rendered: Rendered) -> str:
    """Return the block that ends the phase: counts and paths, no judgement and no question."""
    lines = ["Post-train evaluation complete."]
    for category in CATEGORIES:
        where = f"{rendered.folder / category.folder}/"
        if category == HELD_OUT and not rendered.has_held_out:
            where = SKIPPED
        lines += ["", f"{category.title} renders ({rendered.count(category)} samples):", f"  {where}"]
    notes = [*([] if rendered.has_held_out else [SKIP_NOTE]), *rendered.notes]
    lines += [line for note in notes for line in ("", note)]
    lines += ["", "Open the files and decide for yourself: no check list takes the place of your own eyes and ears."]
    return "\n".join(lines)
