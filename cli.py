"""The `mlx-sentis` command: a lazy group. Each name is imported when it is called, so `--help` answers at once."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from typing import Any

import click

from weights_bridge.signals import saving_later

# name -> (where, one line); the line stands here so that --help imports nothing
COMMANDS = {
    "doctor": ("parity.doctor:doctor", "Say what this machine offers: BLAS, devices, versions."),
    "families": ("converters.commands:families", "List families, architectures and stages."),
    "models": ("mlx_sentis.models_commands:models", "List or get the embedded models."),
    "recipe": ("mlx_sentis.recipe_commands:recipe", "Read a model's own facts: template, stop ids, constants."),
    "prepare": ("mlx_sentis.prepare.commands:prepare", "Shape, validate, split and render data."),
    "check-data": ("mlx_sentis.prepare.commands:check_data", "Look for what is wrong with data, without a model."),
    "show-mask": ("mlx_sentis.prepare.commands:show_mask", "Show a row token by token: trained or not."),
    "train": ("mlx_sentis.training_commands:train", "Train a LoRA or DoRA adapter with MLX."),
    "watch": ("mlx_sentis.watch.commands:watch", "Show a training's losses and pace as a page or a picture."),
    "bridge": ("parity.run_commands:bridge", "Merge the adapter and measure gate A0."),
    "export": ("converters.export_command:export", "Export a model to one ONNX file."),
    "swap": ("converters.commands:swap", "Put tuned weights into the proven graph."),
    "scan": ("converters.commands:scan", "Say what Sentis will make of a model."),
    "explain": ("converters.commands:explain", "Say which layers Sentis makes of a model."),
    "fix": ("converters.commands:fix", "Mend an ONNX file for Sentis, each pass proven."),
    "graph": ("converters.surgery.commands:graph", "Work on an ONNX graph by hand: look, cut, rename, inline."),
    "parity": ("parity.commands:parity", "Measure the gates of a run again."),
    "eval": ("parity.commands:evaluate", "Score held-out rows before and after, axis by axis."),
    "quantise": ("parity.quantisation.commands:quantise", "Say what Float16 and Uint8 weights in Unity will cost."),
    "validate": ("parity.validate_commands:validate", "Render the tuned model on three kinds of prompts, unjudged."),
    "unity": ("converters.unity.commands:unity", "Write a folder for Unity: model, C#, tests, harness."),
    "case": ("parity.case_commands:case", "Write a run's findings as a case file, each number with its record."),
    "probes": ("parity.probe_commands:probes", "Say what a measured version of Sentis does otherwise."),
    "bench": ("benchmarks.commands:bench", "Benchmarks, and a run against its budgets."),
    "run": ("parity.run_commands:run", "All stages in order; without a file, the embedded demo."),
}


TAKE_A_MODEL = ("export", "scan")  # the converters know paths only; catalogue names and hub ids become paths here


def _with_model_names(command: click.Command) -> click.Command:
    """Return a copy of a command whose first argument may also be an embedded model's name or a hub id."""
    argument = next(p.name for p in command.params if isinstance(p, click.Argument))
    resolving, original = copy.copy(command), command.callback
    assert argument is not None and original is not None

    def run(**arguments: Any) -> Any:
        path = arguments[argument]
        if not path.exists() and not path.suffix:
            from mlx_sentis.catalogue import resolve_model

            arguments[argument] = resolve_model(str(path), lambda text: click.echo(text, err=True))
        return original(**arguments)

    resolving.callback = run
    return resolving


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), function)
        return _with_model_names(command) if cmd_name in TAKE_A_MODEL else command

    def invoke(self, ctx: click.Context) -> Any:
        with saving_later():  # from the first moment: a training that is still being imported would die of SIGUSR1
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:  # while a command is imported; later the command itself says so
                click.echo("error: interrupted", err=True)
                ctx.exit(130)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            begun = [known for known in COMMANDS if name.startswith(known)]  # evaluate: eval, not validate
            near = begun or difflib.get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"unknown command {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from weights_bridge.console import write_examples

        write_examples(formatter, ("run", "parity runs/smollm2-135m-npc-commands"))


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        try:
            click.echo(f"mlx-sentis {importlib.metadata.version('mlx-sentis')}")
        except importlib.metadata.PackageNotFoundError:
            click.echo("mlx-sentis, from a source directory that is not installed")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version.")
@click.pass_context
def main(ctx: click.Context) -> None:
    """From an MLX fine-tune to an ONNX file that Unity Sentis imports and computes correctly, every edge measured.

    Exit codes: 0 done, 1 could not do it, 2 used wrongly, 3 measured and a budget was missed.
    """
    if "MLX_RANK" in os.environ and ctx.invoked_subcommand != "train":
        from mlx_sentis.launch import backend_of

        if backend_of():
            ctx.fail("only `train` runs in several processes: start this command without mlx.launch")


if __name__ == "__main__":
    sys.exit(main())
