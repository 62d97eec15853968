"""The phase for a workspace: prompts with their media, the trainer's run, the tidied renders.

Training checkpoints are read by the trainer and never touched; `eval-config.yaml` goes when the renders are in place
and stays when something failed, to be run by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlx_sentis.validation.asking import WEAKER
from mlx_sentis.validation.layout import require_ours
from mlx_sentis.validation.ltx.conditions import Needed, conditions_of, generates, needed_conditions, raise_faults
from mlx_sentis.validation.ltx.scenes import describes_audio, generic_scenes
from mlx_sentis.validation.ltx.trainer import LtxRenderer, split_command
from mlx_sentis.validation.ltx.workspace import Sample, Workspace, checkpoint_of, open_workspace, trigger_of
from mlx_sentis.validation.phase import Rendered, render_phase
from mlx_sentis.validation.prompts import (
    HELD_OUT,
    HELD_OUT_PROMPTS,
    IN_DISTRIBUTION,
    OUT_OF_DISTRIBUTION,
    TRAINED_PROMPTS,
    Prompt,
    sampled,
)

BROKEN_NOTE = (
    "If the renders of every category look black or broken, run packages/ltx-pipelines/ directly: that tells a fault "
    "of the pipeline from one of the training."
)
Say = Callable[[str], None]


def validate_workspace(
    root: Path,
    command: str,
    ask: Callable[[], Sequence[str] | None],
    *,
    checkpoint: str | None = None,
    folder: Path | None = None,
    trigger: str | None = None,
    say: Say = lambda text: None,
) -> Rendered:
    """Render a workspace's final LoRA on prompts of three categories into `outputs/eval/`.

    Args:
        root: the workspace.
        command: the line that starts a training; the configuration's path is put behind it.
        ask: returns the user's out-of-distribution prompts, None for generic ones; called once.
        checkpoint: a step to render instead of the final one.
        folder: where to start the command.
        trigger: the LoRA's trigger word; None takes what `plan.md` records.
        say: hears what is being done.

    Raises:
        StageError: a part is missing, the final checkpoint is not there, the trainer failed, or renders are missing.
        UsedWronglyError: the command cannot be started.
    """
    words = split_command(command)
    workspace = open_workspace(root)
    weights = checkpoint_of(workspace, checkpoint)
    require_ours(workspace.eval_folder)
    prompts = collect(workspace, ask(), trigger or trigger_of(workspace), say)
    renderer = LtxRenderer(workspace, weights, words, folder, say)
    say(f"{len(prompts)} prompts with {weights.name}")
    files = render_phase(prompts, renderer, workspace.eval_folder)
    return Rendered(workspace.eval_folder, files, (*renderer.notes, BROKEN_NOTE))


def collect(workspace: Workspace, ood: Sequence[str] | None, trigger: str | None, say: Say) -> list[Prompt]:
    """Return all prompts in the order of the categories, each with the conditions of the mode.

    Captions are taken verbatim. New prompts borrow their media from held-out samples, so that the model has not seen
    those either; without any, from trained ones.

    Raises:
        StageError: media are missing, all at once.
    """
    needed = needed_conditions(workspace.config)
    texts = _new_texts(workspace, ood, trigger, say)
    donors = workspace.held_out or workspace.trained
    if needed and not workspace.held_out:
        say("no sample was held out: new prompts borrow their media from trained samples")
    trained, held_out = sampled(workspace.trained, TRAINED_PROMPTS), sampled(workspace.held_out, HELD_OUT_PROMPTS)
    plan = [(IN_DISTRIBUTION, one.caption, one) for one in trained]
    plan += [(OUT_OF_DISTRIBUTION, text, donors[number % len(donors)]) for number, text in enumerate(texts)]
    plan += [(HELD_OUT, one.caption, one) for one in held_out]
    faults: list[str] = []
    prompts = [Prompt(text, category, _conditions(workspace, needed, donor, faults)) for category, text, donor in plan]
    raise_faults(faults)
    return prompts


def _conditions(workspace: Workspace, needed: Sequence[Needed], sample: Sample, faults: list[str]) -> list[dict]:
    return conditions_of(needed, sample, workspace.dataset, faults)


def _new_texts(workspace: Workspace, ood: Sequence[str] | None, trigger: str | None, say: Say) -> list[str]:
    has_audio = generates(workspace.config, "audio")
    if ood is not None:
        silent = sum(not describes_audio(text) for text in ood)
        if has_audio and silent:
            say(f"{silent} of {len(ood)} prompts say nothing about sound: the audio may be weak without it")
        return list(ood)
    say(WEAKER)
    if trigger is None:
        say("no trigger word is known (--trigger WORD, or plan.md): the generic prompts go without one")
    captions = [sample.caption for sample in workspace.trained]
    if has_audio and not any(map(describes_audio, captions)):
        say("no caption describes the audio: the generic prompts describe it in words of our own")
    has_video = generates(workspace.config, "video")
    return generic_scenes(trigger, captions, has_video=has_video, has_audio=has_audio)
