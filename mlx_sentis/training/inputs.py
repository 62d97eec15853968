"""What a training reads from its run folder: brought there whole, and looked at before the first update."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weights_bridge.errors import StageError, all_at_once
from weights_bridge.files import folder_written_whole, read_object, sha256_of
from weights_bridge.run_folder import RunFolder


def bring_data(run: RunFolder, data: Path, *, must_be_same: bool = False) -> None:
    """Copy prepared data (a folder that `prepare` wrote) into a run, so that the run stands alone.

    Args:
        run: the run folder.
        data: what `prepare` wrote.
        must_be_same: refuse to replace other data that the run has; for a resume, which would refuse it afterwards.

    Raises:
        StageError: the folder does not hold prepared data, or other data than the run's; a file is not as `prepare`
            wrote it.
    """
    if data.resolve() == run.root.resolve():
        return
    parts = ("recipe.json", "prompt_contract.json", "data")
    if missing := [name for name in parts if not (data / name).exists()]:
        hint = "give the folder that `mlx-sentis prepare --out` wrote"
        raise StageError(f"{data}: not prepared data ({', '.join(missing)} missing)", hint=hint)
    if must_be_same and run.path("data").is_dir():
        names = ("recipe.json", "data/train.jsonl", "data/valid.jsonl")
        other = [name for name in names if _digest(data / name) != _digest(run.root / name)]
        if other:
            hint = f"give --data {run.root}, or train without --resume"
            raise all_at_once(f"{data}: not what {run.root} was trained on, these differ:", other, hint=hint)
        return
    if faults := differing_files(data, parts):
        hint = "prepare the data again, or restore the files"
        raise all_at_once(f"{data}: files changed since `prepare` wrote them:", faults, hint=hint)
    with run.stage("data", [data / name for name in parts]) as stage:
        with folder_written_whole(run.path("data")) as new:
            shutil.copytree(data / "data", new, dirs_exist_ok=True)
        for name in parts[:2]:
            shutil.copyfile(data / name, run.path(name))
        stage.wrote(*(run.path(name) for name in parts))


def differing_files(data: Path, parts: Sequence[str]) -> list[str]:
    """Return a line for each file of a prepared folder that its manifest or `data/dataset.json` knows otherwise.

    Args:
        data: a folder that `prepare` wrote; a copy may lack the manifest.
        parts: the files and folders in it to look at.
    """
    found = {one.where: one.detail or one.reason for one in RunFolder(data).altered([data / name for name in parts])}
    dataset = data / "data" / "dataset.json"
    for split in (read_object(dataset, "splits")["splits"] if dataset.is_file() else {}).values():
        name = f"data/{split['file']}"
        if (digest := _digest(data / name)) != split["sha256"]:
            what = f"sha256 found {digest[:12]}…" if digest else "recorded, not there"
            found.setdefault(name, f"{what}, data/dataset.json has {split['sha256'][:12]}…")
    return [f"{name}: {why}" for name, why in found.items()]


def require_known_ids(rows: list[dict[str, Any]], vocabulary: int) -> None:
    """Refuse token ids that the embedding table does not have; MLX would read past its end without a word.

    Raises:
        StageError: every row with such an id.
    """
    faults = [f"{row['id']}: token id {highest}" for row in rows if (highest := max(row["ids"])) >= vocabulary]
    if faults:
        hint = "the tokenizer and config.json do not belong together"
        raise all_at_once(f"data: ids beyond the model's vocabulary of {vocabulary}:", faults, hint=hint)


def require_contract(
    run: RunFolder,
    rows: list[dict[str, Any]],
    recipe: dict[str, Any],
    valid: list[dict[str, Any]] | None = None,
    *,
    seed: int = 42,
) -> None:
    """Look at every row, and render prompt contract and a sample of rows again, before the first update.

    The contract must hold for what the model's directory says now and for the recipe that training goes by.

    Args:
        run: with `prompt_contract.json`.
        rows: training rows.
        recipe: what training goes by.
        valid: validation rows.
        seed: of the sample.

    Raises:
        StageError: what the model would see differs from what was prepared, row by row and field by field.
    """
    from mlx_sentis.prepare.checks import broken_hint, check_contract, check_rows
    from mlx_sentis.prepare.row_checks import row_faults, rows_to_render, turns_result
    from mlx_sentis.prepare.stage import tokenizer_of
    from mlx_sentis.recipe import make_recipe

    folder, contract = Path(recipe["model"]["path"]), read_object(run.path("prompt_contract.json"))
    given = recipe["template"]["source"] == "--template"
    now = make_recipe(folder, template=Path(recipe["template"]["file"]) if given else None)
    tokenizer = tokenizer_of(folder, recipe)
    results = check_contract(tokenizer, contract, now) + check_contract(tokenizer, contract, recipe)
    turns = contract.get("train_turns", "all")
    results.append(turns_result(rows, turns))
    holds = all(result.passed for result in results)  # where it does not, every row would say the same
    if holds and (faults := row_faults([*rows, *(valid or [])], tokenizer, recipe["stop_ids"], turns)):
        hint = "restore data/, or prepare the data again"
        raise all_at_once("data: rows that `prepare` did not write so:", faults, hint=hint)
    for split in (rows, valid or []):
        chosen = rows_to_render(split, recipe["stop_ids"], seed)
        results += check_rows(chosen, tokenizer, recipe, train_turns=turns) if chosen else []
    if failed := list(dict.fromkeys(str(result) for result in results if not result.passed)):
        raise all_at_once("the prompt contract does not hold before step 1:", failed, hint=broken_hint(recipe))


def _digest(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""
