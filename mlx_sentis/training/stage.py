"""`train` as a stage of a run folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlx_sentis.training import BLAS, adapters, events, loop
from mlx_sentis.training.definitions import load_causal_lm
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.files import folder_written_whole, read_json, read_jsonl
from weights_bridge.model_folder import open_model_folder
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Settings


def train_run(
    run: RunFolder,
    settings: Settings,
    sinks: Sequence[events.Sink],
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Train an adapter on a run's prepared data.

    Args:
        run: with `recipe.json`, `prompt_contract.json` and `data/`.
        settings: `adapter` and `train`.
        sinks: who hears of every update, beside `log.jsonl`.
        say: hears what is being done.

    Returns:
        The figures for the manifest.

    Raises:
        StageError: nothing to train on, the prompt contract is broken, a target matches nothing, or a loss that is
            not finite (the last good state is kept).
    """
    recipe = read_json(run.path("recipe.json"))
    train, valid = (read_jsonl(run.path("data", f"{split}.jsonl")) for split in ("train", "valid"))
    loop.require_trainable(train, settings.train)
    folder = open_model_folder(Path(recipe["model"]["path"]))
    require_known_ids([*train, *valid], folder.config["vocab_size"])
    inputs = [run.path("data"), run.path("recipe.json"), run.path("prompt_contract.json"), *folder.weight_files()]
    with run.stage("train", inputs, seed=settings.train.seed) as stage:
        require_contract(run, train, recipe)
        if not BLAS.is_fast:
            say("MLX uses the reference BLAS here: about 20 times slower than it could be; see `mlx-sentis doctor`")
        model = load_causal_lm(folder)
        facts = adapters.prepare_training(model, settings)
        trained = adapters.grouped(facts.targets)
        say("\n  ".join([f"{folder.path.name}: {facts.name} on {counted(len(facts.targets), facts.noun)}", *trained]))
        stage.facts["trained"] = trained
        with last_log_kept(run.path("log.jsonl")) as log_file:
            heard_by = [*sinks, events.JsonLines(log_file)]
            trainer = loop.Trainer(model, facts, settings, run.path("checkpoints"), heard_by, recipe["pad_id"])
            outcome = trainer.run(train, valid)
        figures = {key: value for key, value in asdict(outcome).items() if key not in ("losses", "valid_losses")}
        figures |= {"first_loss": outcome.losses[0], "last_loss": outcome.losses[-1]}
        figures |= {"valid_losses": outcome.valid_losses, "updates": len(outcome.losses), "blas": BLAS.name}
        stage.facts |= figures
        stage.wrote(run.path("checkpoints"), run.path("log.jsonl"))
    return figures


@contextmanager
def last_log_kept(log: Path) -> Iterator[Path]:
    """Yield the log to write live; when training fails, an earlier run's log comes back.

    What the failed one said is then in `log.failed.jsonl`. A run without an earlier log keeps its only one.
    """
    before = log.with_name(f".{log.name}-before")
    had = log.is_file()
    if had:
        log.replace(before)
    try:
        yield log
    except BaseException:
        if had:
            if log.is_file():
                log.replace(log.with_name("log.failed.jsonl"))
            before.replace(log)
        raise
    before.unlink(missing_ok=True)


def require_known_ids(rows: list[dict[str, Any]], vocabulary: int) -> None:
    """Refuse token ids that the embedding table does not have; MLX would read past its end without a word.

    Raises:
        StageError: every row with such an id.
    """
    faults = [f"{row['id']}: token id {highest}" for row in rows if (highest := max(row["ids"])) >= vocabulary]
    if faults:
        hint = "the tokenizer and config.json do not belong together"
        raise all_at_once(f"data: ids beyond the model's vocabulary of {vocabulary}:", faults, hint=hint)


def require_contract(run: RunFolder, rows: list[dict[str, Any]], recipe: dict[str, Any]) -> None:
    """Render prompt contract and a few rows again before the first update.

    The contract must hold for what the model's directory says now and for the recipe that training goes by.

    Raises:
        StageError: what the model would see differs from what was prepared, field by field.
    """
    from mlx_sentis.prepare.checks import check_contract, check_rows
    from mlx_sentis.prepare.stage import tokenizer_of
    from mlx_sentis.recipe import make_recipe

    folder, contract = Path(recipe["model"]["path"]), read_json(run.path("prompt_contract.json"))
    given = recipe["template"]["source"] == "--template"
    now = make_recipe(folder, template=Path(recipe["template"]["file"]) if given else None)
    tokenizer = tokenizer_of(folder, recipe)
    results = check_contract(tokenizer, contract, now) + check_contract(tokenizer, contract, recipe)
    results += check_rows(rows[:8], tokenizer, recipe, train_turns=contract.get("train_turns", "all"))
    if failed := list(dict.fromkeys(str(result) for result in results if not result.passed)):
        raise all_at_once("the prompt contract does not hold before step 1:", failed, hint="prepare the data again")


def bring_data(run: RunFolder, data: Path) -> None:
    """Copy prepared data (a folder that `prepare` wrote) into a run, so that the run stands alone.

    Raises:
        StageError: the folder does not hold prepared data.
    """
    if data.resolve() == run.root.resolve():
        return
    parts = ("recipe.json", "prompt_contract.json", "data")
    if missing := [name for name in parts if not (data / name).exists()]:
        hint = "give the folder that `mlx-sentis prepare --out` wrote"
        raise StageError(f"{data}: not prepared data ({', '.join(missing)} missing)", hint=hint)
    with run.stage("data", [data / name for name in parts]) as stage:
        with folder_written_whole(run.path("data")) as new:
            shutil.copytree(data / "data", new, dirs_exist_ok=True)
        for name in parts[:2]:
            shutil.copyfile(data / name, run.path(name))
        stage.wrote(*(run.path(name) for name in parts))
