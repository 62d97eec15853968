"""`prepare` as a stage of a run folder: recipe, data, contract, and the entry in the manifest."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlx_sentis.catalogue import resolve_model
from mlx_sentis.prepare.sources import shipped_sets
from mlx_sentis.prepare.stage import prepare_data
from mlx_sentis.prepare.survey import silent, surveyed
from mlx_sentis.recipe import make_recipe
from weights_bridge.files import write_json
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import DataSettings


def look_at_data(source: str, recipe: dict[str, Any], settings: DataSettings, *, bar: bool = False) -> dict[str, int]:
    """Read and split the rows without rendering one, so that a faulty file is told before any work.

    Args:
        source: a file, a folder, or a shipped set's name.
        recipe: the model's recipe.
        settings: how the data is shaped.
        bar: show a progress bar on stderr.

    Returns:
        Split to its number of rows.

    Raises:
        StageError: what `prepare` would say of the file: no such source, bad rows, a text in two splits, too few rows,
            conversations for a model without a chat template.
    """
    with surveyed(source, recipe["tools"], settings, Path(tempfile.gettempdir()), bar=bar) as survey:
        survey.require_template(recipe)
        return survey.counts()


def run_prepare(
    source: str,
    model: str,
    out: Path,
    settings: DataSettings,
    *,
    template: Path | None = None,
    say: Callable[[str], None] = silent,
    bar: bool = False,
) -> dict[str, Any]:
    """Prepare data into a run folder with the model's recipe, and record it.

    Args:
        source: a file, a folder, or a shipped set's name.
        model: a catalogue name, a directory or a hub id.
        out: the run folder.
        settings: how the data is shaped.
        template: a Jinja file in place of the model's own template.
        say: hears what is happening.
        bar: show a progress bar on stderr.

    Returns:
        `data/dataset.json`.

    Raises:
        StageError: no such model or data, or bad rows; the run folder is then as it was.
    """
    folder = resolve_model(model, say)
    recipe = make_recipe(folder, template=template)
    recipe["model"]["name"] = model
    place = Path(source) if Path(source).exists() else shipped_sets().get(source, Path(source))
    run = RunFolder(out)
    with run.stage("prepare", inputs=[place] if place.exists() else [], seed=settings.seed) as stage:
        facts = prepare_data(source, folder, out, recipe, settings, say=say, bar=bar)
        write_json(run.path("recipe.json"), recipe)
        stage.wrote(run.path("data"), run.path("prompt_contract.json"), run.path("recipe.json"))
        stage.facts = {split: one["rows"] for split, one in facts["splits"].items()}
    return facts
