"""The `train` command. It parses, calls and prints."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlx_sentis.launch import backend_of
from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, StageError, all_at_once
from weights_bridge.files import read_object
from weights_bridge.lock import one_at_a_time
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Resolved, Settings, resolve

if TYPE_CHECKING:
    from mlx_sentis.training.ranks import Ranks

PATH = click.Path(path_type=Path)


@command(
    "train",
    examples=("train --data runs/npc --out runs/npc", "train --data runs/npc --out runs/npc-r8 --set adapter.rank=8"),
)
@click.option("--model", default=None, help="Must be the model the data was prepared for (checked).")
@click.option("--data", type=PATH, required=True, help="Folder that `prepare --out` wrote.")
@click.option("--out", type=PATH, required=True, help="Run folder; may be the same.")
@click.option("--config", type=PATH, default=None, help="TOML file of settings.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Change one setting.")
@click.option("--resume", is_flag=True, help="Go on exactly where a stopped training was saved.")
@click.option("--prove", is_flag=True, help="With --resume: train nothing; kill and resume copies, compare bit by bit.")
@click.option("--prove-updates", type=click.IntRange(4), default=20, show_default=True, help="Of the certificate.")
@click.option("--no-share-prefix", is_flag=True, help="Run every row whole: --set train.share_prefix=false.")
@click.option("--prove-step", is_flag=True, help="Train nothing: hold the step's gradients against the plain step's.")
@click.option(
    "--progress",
    type=click.Choice(["stdout", "stderr", "jsonl", "off"]),
    default=None,
    help="Where the tqdm line goes; stdout by default, stderr under --json. jsonl: JSON lines on stdout.",
)
@click.option(
    "--report-to",
    "trackers",
    type=click.Choice(["wandb", "trackio", "tensorboard"]),
    multiple=True,
    help="Tell a tracker that is installed as well; may be given again.",
)
def train(
    output: Output,
    model: str | None,
    data: Path,
    out: Path,
    config: Path | None,
    overrides: tuple[str, ...],
    no_share_prefix: bool,
    prove_step: bool,
    resume: bool,
    prove: bool,
    prove_updates: int,
    progress: str | None,
    trackers: tuple[str, ...],
) -> None:
    """Train an adapter (lora, rslora, dora, dora-cols, bora, or their -xs forms) or all weights, with MLX."""
    where = progress or ("stderr" if output.as_json else "stdout")
    if output.as_json and where in ("stdout", "jsonl"):
        raise click.UsageError(f"--progress {where} and --json both want stdout")
    if prove and not resume:
        raise click.UsageError("--prove belongs to --resume; the step's proof is --prove-step")
    if backend_of() and (prove or prove_step):
        raise click.UsageError("a proof runs in one process: start it without mlx.launch")
    kept = out / "config.toml"  # a run that has settings keeps them; flags change single ones
    overrides += ("train.share_prefix=false",) if no_share_prefix else ()
    settings = resolve(file=config or (kept if kept.is_file() else None), overrides=overrides)
    from mlx_sentis.training.ranks import join
    from mlx_sentis.training.reporters import reporter
    from mlx_sentis.training.sinks import AtFirstSave, sinks_on
    from mlx_sentis.training.stage import train_run

    ranks = join()
    with first_speaks(ranks), place_of(ranks, out) as place, ExitStack() as opened:
        follow_settings_of_first(settings, ranks)
        with ranks.together():
            opened.enter_context(one_at_a_time(place, "another training"))
            run = run_to_train(place, data, model, settings, resume=resume, from_run=config is None)
        if prove_step:
            answer_step_proof(output, run, settings.settings)
            return
        if prove:
            answer_resume_proof(output, run, settings.settings, prove_updates)
            return
        with ranks.together():
            told = [
                *sinks_on(where, output.story),
                *(reporter(name, out, settings.settings, output.story) for name in trackers),
            ]
        write = partial(settings.write, run.path("config.toml"))
        if run.path("config.toml").is_file():  # it belongs to the checkpoints: an earlier run's stays as long as those
            told.append(AtFirstSave(write))
            write = lambda: None  # noqa: E731
        figures = train_run(
            run,
            settings.settings,
            told if ranks.first else [],
            output.story if ranks.first else lambda text: None,
            resume="yes" if resume else "no",
            ready=write,
            ranks=ranks,
        )
    if ranks.first:
        text = f"{out}: {figures['updates']} updates in {figures['seconds']:.0f} s, the best after "
        output.answer("train", figures, f"{text}{figures['best_step']}")


def run_to_train(
    place: Path, data: Path, model: str | None, settings: Resolved, *, resume: bool, from_run: bool
) -> RunFolder:
    """Return the run folder with the prepared data in it and the settings of `data` taken over.

    Raises:
        StageError: no prepared data, settings that are not the data's, or another model than the data's.
    """
    from mlx_sentis.training.data_settings import take_data_settings
    from mlx_sentis.training.inputs import bring_data

    run = RunFolder(place)
    bring_data(run, data, must_be_same=resume)
    take_data_settings(run, settings, from_run=from_run)
    recipe = read_object(run.path("recipe.json"), "model.name", "model.path")
    if model is not None and model not in (recipe["model"]["name"], recipe["model"]["path"]):
        hint = "prepare the data for the model you train"
        raise StageError(f"--model {model}: the data was prepared for {recipe['model']['name']}", hint=hint)
    return run


@contextmanager
def first_speaks(ranks: Ranks) -> Iterator[None]:
    """Let the other processes end silently where the first one says why: failures are agreed on (`Ranks.together`)."""
    from mlx_sentis.training.ranks import LostProcessError

    try:
        yield
    except LostProcessError:
        raise
    except StageError:
        if ranks.first:
            raise
        sys.exit(0)


@contextmanager
def place_of(ranks: Ranks, out: Path) -> Iterator[Path]:
    """Yield the run folder, to the other processes one that is thrown away: only the first one's files are kept."""
    if ranks.first:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="mlx-sentis-") as folder:
        yield Path(folder)


def follow_settings_of_first(settings: Resolved, ranks: Ranks) -> None:
    """Take over the first process's settings: another machine may lack the run's `config.toml`."""
    if ranks.first and ranks.alone:
        return
    for section, values in json.loads(ranks.text_of(json.dumps(asdict(settings.settings)))).items():
        for name, value in values.items():
            setattr(getattr(settings.settings, section), name, value)


def answer_resume_proof(output: Output, run: RunFolder, settings: Settings, updates: int) -> None:
    """Answer with the resume certificate of a run's first updates.

    Raises:
        BudgetMissedError: the killed and resumed run differs from the one that never stopped.
    """
    from mlx_sentis.training.certificate import prove_resume

    found = prove_resume(run, settings, output.story, updates=updates)
    output.answer("resume", found.as_json(), found.text())
    if not found.passed:
        faults = [f"{one.what}: {one.row()[1]}" for one in found.compared if one.differing or not one.count]
        hint = "the state lacks something: tell us the model and the versions"
        if found.repeatable is False:
            hint = "two runs without a stop differ here too: this machine does not compute twice the same"
        faults += [found.refused] if found.refused else []
        raise all_at_once("resume is not exact:", faults, hint=hint, kind=BudgetMissedError)


def answer_step_proof(output: Output, run: RunFolder, settings: Settings) -> None:
    """Answer with the gradient proof of a run's first batch.

    Raises:
        BudgetMissedError: the gradients differ by more than the limit.
    """
    from mlx_sentis.training.prove import prove_run

    proof = prove_run(run, settings)
    output.answer("prove-step", proof.as_json(), proof.text())
    if not proof.passed:
        found = f"{proof.parameter}: the gradient differs by {proof.worst:.1e}, wanted {proof.limit:.0e} or less"
        raise BudgetMissedError(found, hint="train with --no-share-prefix, and tell us the model and the versions")
