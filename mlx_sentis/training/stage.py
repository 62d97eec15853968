"""`train` as a stage of a run folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from mlx_sentis.training import BLAS, adapters, events, loop, memory
from mlx_sentis.training.after_kill import clear_up, log_set_aside
from mlx_sentis.training.checkpoints import STATE
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.idle_settings import require_agreeing, without_effect
from mlx_sentis.training.plan import read_prepared, require_shares, require_trainable
from mlx_sentis.training.ranks import ALONE, Ranks
from mlx_sentis.training.resume import (
    SavedState,
    differences,
    origin_of,
    require_same,
    require_state,
)
from weights_bridge.errors import StageError, all_at_once, counted
from weights_bridge.files import folder_written_whole, read_object, sha256_of, sha256_of_text
from weights_bridge.lock import one_at_a_time
from weights_bridge.model_folder import open_model_folder
from weights_bridge.run_folder import RunFolder, versions
from weights_bridge.settings import Settings

READ_OF_RECIPE = ("model.path", "model.name", "pad_id", "stop_ids", "template.source")


def train_run(
    run: RunFolder,
    settings: Settings,
    sinks: Sequence[events.Sink],
    say: Callable[[str], None] = lambda text: None,
    *,
    resume: Literal["no", "yes", "if-unfinished"] = "no",
    ready: Callable[[], None] = lambda: None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Train an adapter, or all weights, on a run's prepared data.

    Args:
        run: with `recipe.json`, `prompt_contract.json` and `data/`.
        settings: `adapter` and `train`.
        sinks: who hears of every update, beside `log.jsonl`.
        say: hears what is being done.
        resume: go on from the newest state; `if-unfinished` only when there is one to go on from, else from the start.
        ready: called when everything is checked, before the first update.
        ranks: the processes that train together; each has a run folder of its own, the first one's is the user's.

    Returns:
        The figures for the manifest.

    Raises:
        StageError: nothing to train on, the prompt contract is broken, a target matches nothing, a resume from
            something else, a loss that is not finite, memory that ran out (the last good state is kept).
    """
    with ExitStack() as opened:
        with ranks.together():
            opened.enter_context(one_at_a_time(run.root, "another training"))
            clear_up(run)
            recipe = read_object(run.path("recipe.json"), *READ_OF_RECIPE)
            train, valid = (read_prepared(run.path("data", f"{split}.jsonl")) for split in ("train", "valid"))
            require_agreeing(settings)
            require_trainable(train, settings.train, valid)
            require_shares(train, settings.train, ranks.size)
            folder = open_model_folder(Path(recipe["model"]["path"]))
            require_known_ids([*train, *valid], folder.config["vocab_size"])
            inputs = [run.path("data"), run.path("recipe.json"), run.path("prompt_contract.json")]
            if run.altered(inputs[-1:]):  # the field that differs says more than the file's hash, which is told next
                require_contract(run, train, recipe, valid, seed=settings.train.seed)
            stage = opened.enter_context(
                run.stage("train", [*inputs, *folder.weight_files()], seed=settings.train.seed)
            )
            if resume == "yes" and ranks.first:
                require_state(run.path("checkpoints"))  # before minutes of loading
            require_contract(run, train, recipe, valid, seed=settings.train.seed)
            if not BLAS.is_fast:
                say("MLX uses the reference BLAS here: about 20 times slower than it could be; see `mlx-sentis doctor`")
            for words in [*without_effect(settings), *memory.set_limits(settings.train)]:
                say(words)
            model = load_causal_lm(folder)
            facts = adapters.prepare_training(model, settings)
            trained = adapters.grouped(facts.targets)
            what = f"{folder.path.name}: {facts.name} on {counted(len(facts.targets), facts.noun)}"
            say("\n  ".join([what, *trained]))
            origin = origin_of(settings, hashes_of(run, recipe, facts.base), model, processes=ranks.size)
            origin |= {"versions": numbers_of()}
        require_equal_in_all(origin, ranks)
        resumed = state_for_all(run.path("checkpoints"), origin, resume, say, ranks)
        with ranks.together():
            ready()
        appending = resumed is not None and ranks.first
        with log_to_write(run.path("log.jsonl"), lambda: trainer.saved is not None, append=appending) as log:
            before = log_set_aside(run.path("log.jsonl"))
            heard_by = [*sinks, log, events.AtFirstSave(lambda: before.unlink(missing_ok=True))]
            where = (run.path("checkpoints"), heard_by, recipe["pad_id"])
            options = {"origin": origin, "resumed": resumed, "say": say, "ranks": ranks}
            trainer = loop.Trainer(model, facts, settings, *where, **options)
            outcome = trainer.run(train, valid)
        figures = {key: value for key, value in asdict(outcome).items() if key != "losses"}
        figures |= {"first_loss": trainer.done.first_loss, "last_loss": trainer.done.last_loss, "blas": BLAS.name}
        say(memory.hindsight(outcome.estimate_gib, outcome.peak_gib))
        figures |= {"trained": trained} | ({"processes": ranks.size} if ranks.size > 1 else {})
        stage.facts |= figures
        stage.wrote(*(path for path in (run.path("checkpoints"), run.path("log.jsonl")) if path.exists()))
    return figures


def require_equal_in_all(origin: dict[str, Any], ranks: Ranks) -> None:
    """Refuse processes that read other rows, another recipe or other base weights than the first one.

    Raises:
        StageError: what differs, of the first process where something does; in all processes.
    """
    first = json.loads(ranks.text_of(json.dumps(origin["files"])))
    with ranks.together():
        names = sorted(first.keys() | origin["files"].keys())
        if faults := [name for name in names if first.get(name) != origin["files"].get(name)]:
            hint = "copy the prepared data and the model of the first machine to the others"
            raise all_at_once("these are not the first process's:", faults, hint=hint)


def state_for_all(
    checkpoints: Path, origin: dict[str, Any], resume: str, say: Callable[[str], None], ranks: Ranks
) -> SavedState | None:
    """Return the state to resume, None to start over; only the first process has it on disk (see `Trainer`).

    Raises:
        StageError: a resume was asked for and is not possible.
    """
    state = None
    with ranks.together():
        if ranks.first:
            state = state_to_go_on_from(checkpoints, origin, resume, say)
    document = json.loads(ranks.text_of(json.dumps(state.document if state else None)))
    return state if ranks.first or document is None else SavedState(checkpoints, document)


def hashes_of(run: RunFolder, recipe: dict[str, Any], base: dict[str, str]) -> dict[str, str]:
    """Return name to SHA-256 of what decides the updates: rows, recipe (wherever the model lies), base weights."""
    facts = recipe | {"model": {key: value for key, value in recipe["model"].items() if key != "path"}}
    hashes = {"recipe.json": sha256_of_text(json.dumps(facts, sort_keys=True))}
    hashes |= {f"data/{split}.jsonl": sha256_of(run.path("data", f"{split}.jsonl")) for split in ("train", "valid")}
    return hashes | {f"base weights {name}": digest for name, digest in base.items()}


def numbers_of() -> dict[str, str]:
    """Return what may change the last bit of a number and is no fault of the user's: versions, BLAS."""
    known = versions()
    return {name: known.get(name, "") for name in ("mlx", "mlx-lm", "numpy", "system")} | {"blas": BLAS.name}


def state_to_go_on_from(
    checkpoints: Path, origin: dict[str, Any], resume: str, say: Callable[[str], None]
) -> SavedState | None:
    """Return the state to resume, None to start over; says what it found and why.

    Raises:
        StageError: a resume was asked for and is not possible.
    """
    if resume == "yes":
        state = require_state(checkpoints)
        require_same(state, origin)
    else:
        if not (checkpoints / "last" / STATE).is_file():
            return None
        try:
            state = require_state(checkpoints)
        except StageError as error:  # what cannot be gone on with is no reason not to train
            say(f"starting over: {error.message}")
            return None
        if state.document["finished"]:
            return None
        where = f"an unfinished training of {counted(state.document['step'], 'update')} is in {checkpoints}"
        if resume == "no":
            say(f"starting over: {where}; --resume would go on with it")
            return None
        if faults := differences(state, origin):
            say(f"starting over, as {where} but cannot be gone on with: {'; '.join(faults[:3])}")
            return None
    was, now = state.document["made_from"].get("versions", {}), origin["versions"]
    if changed := [f"{name} {was.get(name)} → {now[name]}" for name in now if was.get(name) != now[name]]:
        say(f"the last bits of numbers may differ from an uninterrupted run: {', '.join(changed)}")
    say(f"going on after update {state.document['step']}, epoch {state.progress.epoch}")
    return state


@contextmanager
def log_to_write(log: Path, replaced: Callable[[], bool], *, append: bool) -> Iterator[events.JsonLines]:
    """Yield the sink of `log.jsonl`; when training fails early, an earlier run's log comes back.

    A log belongs to the checkpoints beside it: as long as those are an earlier run's, what the failed one said goes
    to `log.failed.jsonl`. A run without an earlier log keeps its only one.

    Args:
        log: the file.
        replaced: whether this run has checkpoints of its own.
        append: go on in the file that is there.
    """
    before = log_set_aside(log)
    had = log.is_file() and not append
    if had:
        log.replace(before)
    sink = None
    try:
        sink = events.JsonLines(log, append=append)
        yield sink
    except BaseException:
        if had and not replaced():
            if log.is_file():
                log.replace(log.with_name("log.failed.jsonl"))
            before.replace(log)
        raise
    finally:
        if sink is not None:
            with suppress(OSError):  # every event was flushed: what a full disk refused has been told
                sink.file.close()
        if log.is_file():
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


def _digest(path: Path) -> str:
    return sha256_of(path) if path.is_file() else ""
