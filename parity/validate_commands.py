"""The command `validate`. It parses, calls and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weights_bridge.console import Output, command
from weights_bridge.run_folder import RunFolder

PATH = click.Path(path_type=Path)


@command(
    "validate",
    examples=(
        'validate runs/npc --ood "Meet me by the river." --ood more-prompts.txt',
        'validate --trainer ltx --workspace projects/my-lora --command "uv run python scripts/train.py"',
    ),
)
@click.argument("run", required=False, type=PATH)
@click.option(
    "--ood", multiple=True, metavar="TEXT|FILE", help="A prompt of your own, or a file with one a line; or default."
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; without --ood that means generic prompts.")
@click.option("--checkpoint", metavar="N", help="An earlier checkpoint instead of the final one.")
@click.option("--runner", type=click.Choice(["mlx", "onnx"]), default="mlx", show_default=True, help="What answers.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), help="Per answer; the longest trained one by default.")
@click.option("--trainer", type=click.Choice(["ltx"]), help="Renders of an LTX-2 trainer's workspace instead of RUN.")
@click.option("--workspace", type=PATH, help="With --trainer: its folder, with config.yaml and dataset/.")
@click.option(
    "--command", "command_line", help="With --trainer: starts a training; the configuration is put behind it."
)
@click.option("--trainer-dir", type=PATH, help="With --trainer: where to start the command; here by default.")
@click.option("--trigger", metavar="WORD", help="With --trainer: the LoRA's trigger word, for generic prompts.")
def validate(output: Output, run: Path | None, ood: tuple[str, ...], yes: bool, **more: Any) -> None:
    """Render the tuned model on prompts it was trained on, new ones, and held-out ones, into outputs/eval.

    Nothing is judged: the files are for you to look at.
    """
    from mlx_sentis.validation.asking import is_terminal, ood_prompts
    from mlx_sentis.validation.phase import block

    _require_one(run, more)
    may_ask = not (yes or output.as_json or output.quiet) and is_terminal()

    def ask() -> list[str] | None:
        return ood_prompts(ood, may_ask=may_ask, say=output.story)

    rendered = _of_workspace(output, ask, more) if run is None else _of_run(output, run, ask, more)
    output.answer("validate", rendered.as_json(), block(rendered))


def _require_one(run: Path | None, more: dict[str, Any]) -> None:
    """Require a run, or a whole description of a trainer's workspace.

    Raises:
        UsageError: both, neither, or half of one.
    """
    of_trainer = {"--workspace": more["workspace"], "--command": more["command_line"]}
    given = [name for name, value in of_trainer.items() if value is not None]
    extra = [f"--{name.replace('_', '-')}" for name in ("trainer_dir", "trigger") if more[name] is not None]
    if more["trainer"] is None:
        if given or extra:
            raise click.UsageError(f"{', '.join(given + extra)}: only with --trainer ltx")
        if run is None:
            raise click.UsageError("give a run folder, or --trainer ltx with --workspace and --command")
    elif run is not None:
        raise click.UsageError("give a run folder or --trainer, not both")
    elif len(given) < len(of_trainer):
        raise click.UsageError("--trainer ltx needs --workspace and --command")


def _of_run(output: Output, run: Path, ask: Any, more: dict[str, Any]) -> Any:
    from parity.validate import validate_run
    from parity.verify import settings_of

    folder = RunFolder.existing(run)
    return validate_run(
        folder,
        settings_of(folder),
        ask,
        runner=more["runner"],
        checkpoint=more["checkpoint"],
        max_new_tokens=more["max_new_tokens"],
        say=output.story,
    )


def _of_workspace(output: Output, ask: Any, more: dict[str, Any]) -> Any:
    from mlx_sentis.validation.ltx.phase import validate_workspace

    return validate_workspace(
        more["workspace"],
        more["command_line"],
        ask,
        checkpoint=more["checkpoint"],
        folder=more["trainer_dir"],
        trigger=more["trigger"],
        say=output.story,
    )
