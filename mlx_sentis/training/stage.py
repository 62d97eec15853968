"""`train` as a stage of a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from mlx_sentis.training import BLAS, adapters, events, loop, memory
from mlx_sentis.training.after_kill import clear_up, log_set_aside
from mlx_sentis.training.definitions import load_causal_lm
from mlx_sentis.training.going_on import hashes_of, numbers_of, require_equal_in_all, state_for_all
from mlx_sentis.training.idle_settings import require_agreeing, without_effect
from mlx_sentis.training.inputs import require_contract, require_known_ids
from mlx_sentis.training.plan import read_prepared, require_shares, require_trainable
from mlx_sentis.training.ranks import ALONE, Ranks
from mlx_sentis.training.resume import origin_of, require_state
from mlx_sentis.training.sinks import AtFirstSave, JsonLines
from weights_bridge.errors import counted
from weights_bridge.files import read_object
from weights_bridge.lock import one_at_a_time
from weights_bridge.model_folder import open_model_folder
from weights_bridge.run_folder import RunFolder
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
            heard_by = [*sinks, log, AtFirstSave(lambda: before.unlink(missing_ok=True))]
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


@contextmanager
def log_to_write(log: Path, replaced: Callable[[], bool], *, append: bool) -> Iterator[JsonLines]:
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
        sink = JsonLines(log, append=append)
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
