"""The stage `prepare`: from a user's rows to `data/` and the prompt contract, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_sentis.prepare.contract import make_contract, sample_row
from mlx_sentis.prepare.masks import Prepared, prepared_rows
from mlx_sentis.prepare.report import dataset_facts, report_text
from mlx_sentis.prepare.rows import Row
from mlx_sentis.prepare.sources import SPLITS, Loaded, load_source
from mlx_sentis.prepare.splits import check_no_leak, cut, shares_of
from mlx_sentis.templates import load_tokenizer
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.files import folder_written_whole, sha256_of, write_json, write_jsonl, write_text
from weights_bridge.settings import DataSettings

ROW_HINT = "mend the rows, or raise data.max_tokens where they are only long; nothing is cut off in silence"


def prepare_data(
    source: str | Path, model: Path, out: Path, recipe: dict[str, Any], settings: DataSettings
) -> dict[str, Any]:
    """Read, split, render, mask and check every row; write `data/` and `prompt_contract.json`.

    Args:
        source: a file, a folder with one file per split, or a shipped set's name.
        model: a Hugging Face model directory.
        out: the run folder that gets `data/` and the contract.
        recipe: the model's recipe.
        settings: shares, seed and the longest row.

    Returns:
        `data/dataset.json`.

    Raises:
        StageError: bad rows (all at once), a text in two splits, too few rows to cut; nothing is written then.
    """
    tokenizer = tokenizer_of(model, recipe)
    loaded = load_source(source, recipe["tools"])
    splits, notes = split_rows(loaded, settings)
    check_no_leak(splits)
    prepared = prepare_splits(splits, tokenizer, recipe, settings.max_tokens)
    contract = make_contract(sample_row(splits["train"]), tokenizer, recipe)
    with folder_written_whole(out / "data") as folder:
        for split, rows in prepared.items():
            named = [row.as_json(f"{split}-{number:04d}") for number, row in enumerate(rows, 1)]
            write_jsonl(folder / f"{split}.jsonl", named)
        files = {split: sha256_of(folder / f"{split}.jsonl") for split in prepared}
        facts = dataset_facts(
            prepared, files, source=_name(source), seed=settings.seed, blank_lines=loaded.blank_lines, notes=notes
        )
        write_json(folder / "dataset.json", facts)
        write_text(folder / "report.md", report_text(facts))
        write_json(out / "prompt_contract.json", contract)
    return facts


def tokenizer_of(model: Path, recipe: Mapping[str, Any]) -> Any:
    """Return a model's tokenizer with the template that the recipe was made with.

    Raises:
        StageError: the directory, its tokenizer or the given template cannot be read.
    """
    given = recipe["template"]["source"] == "--template"
    return load_tokenizer(model, template=Path(recipe["template"]["file"]) if given else None)


def _name(source: str | Path) -> str:
    return Path(source).name if Path(source).exists() else str(source)


def split_rows(loaded: Loaded, settings: DataSettings) -> tuple[dict[str, list[Row]], list[str]]:
    """Return split to rows, in the fixed order, and notes on what was cut from the training rows.

    Raises:
        StageError: impossible shares, or too few rows.
    """
    missing = {split: share for split, share in shares_of(settings).items() if split not in loaded.splits}
    if not missing:
        return loaded.splits, []
    splits = loaded.splits | cut(loaded.splits["train"], missing, settings.seed)
    how = ", ".join(f"{split} {share:g}" for split, share in missing.items())
    notes = [f"cut from the training rows by seed {settings.seed}, class by class: {how}"]
    return {split: splits[split] for split in SPLITS}, notes


def prepare_splits(
    splits: Mapping[str, Sequence[Row]], tokenizer: Any, recipe: dict[str, Any], max_tokens: int
) -> dict[str, list[Prepared]]:
    """Render and mask every row of every split.

    Raises:
        StageError: rows that cannot be trained or are longer than `max_tokens`, all at once.
    """
    prepared: dict[str, list[Prepared]] = {}
    faults: list[str] = []
    for split, rows in splits.items():
        prepared[split] = []
        for row in _not_too_long(prepared_rows(rows, tokenizer, recipe), max_tokens):
            if isinstance(row, str):
                faults.append(row)
            else:
                prepared[split].append(row)
    if faults:
        raise all_at_once(
            f"{counted(len(faults), 'row')} cannot be trained, nothing was written:", faults, hint=ROW_HINT
        )
    return prepared


def _not_too_long(rows: Iterator[Prepared | str], max_tokens: int) -> Iterator[Prepared | str]:
    for row in rows:
        if isinstance(row, str) or len(row.ids) <= max_tokens:
            yield row
        else:
            yield f"{row.row.source}: {len(row.ids)} tokens, wanted at most {max_tokens} (data.max_tokens)"


def data_folder(folder: Path) -> Path:
    """Return the folder with the split files: a run's `data/`, or the folder itself.

    Raises:
        StageError: neither has a train.jsonl.
    """
    for candidate in (folder / "data", folder):
        if (candidate / "train.jsonl").is_file():
            return candidate
    raise StageError(f"{folder}: no prepared data in it", hint="run `mlx-sentis prepare DATA --model MODEL --out DIR`")
