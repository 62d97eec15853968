"""The stage `prepare`: from a user's rows to `data/` and the prompt contract, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.contract import make_contract
from mlx_sentis.prepare.facts import dataset_facts, lengths_by_split, unscored_rows
from mlx_sentis.prepare.plots import plot_lengths
from mlx_sentis.prepare.report import report_text
from mlx_sentis.prepare.survey import Survey, silent, surveyed
from mlx_sentis.prepare.workers import Preparer, prepared_batches, workers_for
from mlx_sentis.prepare.writing import Tally, write_splits
from mlx_sentis.recipe import CLOCK_NOTE
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError, counted
from weights_bridge.files import folder_written_whole, write_json, write_text
from weights_bridge.settings import DataSettings


def prepare_data(
    source: str | Path,
    model: Path,
    out: Path,
    recipe: dict[str, Any],
    settings: DataSettings,
    *,
    say: Callable[[str], None] = silent,
    bar: bool = False,
) -> dict[str, Any]:
    """Read, split, render, mask and check every row; write `data/` and `prompt_contract.json`.

    Rows are read twice and never all in memory: the first reading cuts the splits, the second writes them.

    Args:
        source: a file, a folder with one file per split, or a shipped set's name.
        model: a Hugging Face model directory.
        out: the run folder that gets `data/` and the contract.
        recipe: the model's recipe.
        settings: how the data is shaped.
        say: hears about rows that are left out and texts in two splits.
        bar: show a progress bar on stderr.

    Returns:
        `data/dataset.json`.

    Raises:
        StageError: bad rows (all at once), a text in two splits, too few rows to cut; nothing is written then.
    """
    preparer = Preparer(tokenizer_of(model, recipe), recipe, settings)
    scratch = next(folder for folder in (out, *out.absolute().parents) if folder.is_dir())
    with (
        surveyed(source, recipe["tools"], settings, scratch, say=say, bar=bar) as survey,
        _no_empty_folders(out),
        folder_written_whole(out / "data") as folder,
    ):
        return _write(survey, preparer, model, folder, out / "prompt_contract.json", _name(source), bar, say)


def _write(
    survey: Survey,
    preparer: Preparer,
    model: Path,
    folder: Path,
    contract_file: Path,
    name: str,
    bar: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    recipe, settings = preparer.recipe, preparer.settings
    survey.require_template(recipe)
    workers = workers_for(len(survey.index))
    with closing(prepared_batches(survey.rows(bar=bar), preparer, model, _template_file(recipe), workers)) as batches:
        tally = write_splits(batches, survey, folder, skip_bad=settings.skip_bad)
    clock = [note for note in recipe.get("notes", ()) if note == CLOCK_NOTE]
    facts = dataset_facts(survey, tally, settings, name, recipe.get("constants", {}).get("max_positions"), clock)
    _tell(tally, [*unscored_rows(tally), *clock], settings, say)
    contract = make_contract(tally.samples.rows, preparer.tokenizer, recipe, train_turns=settings.train_turns)
    write_json(folder / "dataset.json", facts)
    plot_lengths(lengths_by_split(survey, tally), settings.max_tokens, folder / "lengths.png")
    write_text(folder / "report.md", report_text(facts))
    write_json(contract_file, contract)
    return facts


def _tell(tally: Tally, notes: Sequence[str], settings: DataSettings, say: Callable[[str], None]) -> None:
    """Say what was left out or cut in the second reading, and what else nobody should miss."""
    over = f"of more than {settings.max_tokens} tokens (data.max_tokens)"
    if tally.bad.total:
        say(f"{counted(tally.bad.total, 'row')} that cannot be trained left out, the first: {tally.bad.listed[0]}")
    if tally.dropped.total:
        say(f"{counted(tally.dropped.total, 'row')} {over} left out, the first: {tally.dropped.listed[0]}")
    if tally.cut_rows:
        prompts = "its prompt was" if tally.cut_rows == 1 else "their prompts were"
        say(f"{counted(tally.cut_rows, 'row')} {over}: {prompts} cut on the left")
    for note in notes:
        say(note)


def tokenizer_of(model: Path, recipe: Mapping[str, Any]) -> Any:
    """Return a model's tokenizer with the template that the recipe was made with.

    Raises:
        StageError: the directory, its tokenizer or the given template cannot be read.
    """
    return load_tokenizer(model, template=_template_file(recipe))


def _template_file(recipe: Mapping[str, Any]) -> Path | None:
    return Path(recipe["template"]["file"]) if recipe["template"]["source"] == "--template" else None


def _name(source: str | Path) -> str:
    return Path(source).name if Path(source).exists() else str(source)


@contextmanager
def _no_empty_folders(out: Path) -> Iterator[None]:
    """Take away again what was made on the way to a folder when the block does not end well."""
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty, or never made
            for folder in made:
                folder.rmdir()
        raise


def data_folder(folder: Path) -> Path:
    """Return the folder with the split files: a run's `data/`, or the folder itself.

    Raises:
        StageError: neither has a train.jsonl.
    """
    for candidate in (folder / "data", folder):
        if (candidate / "train.jsonl").is_file():
            return candidate
    raise StageError(f"{folder}: no prepared data in it", hint="run `mlx-sentis prepare DATA --model MODEL --out DIR`")
