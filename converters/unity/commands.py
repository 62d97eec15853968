"""The command `unity`."""

from __future__ import annotations

from pathlib import Path

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import counted
from weights_bridge.run_folder import RunFolder

PATH = click.Path(path_type=Path)


@command(
    "unity", examples=("unity runs/npc --out MyGame/Assets/Npc", "unity runs/npc --out Npc --namespace MyGame.Npc")
)
@click.argument("folder", metavar="RUN", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder for Assets/; files of other names in it are left alone.")
@click.option("--namespace", default="MlxSentis", show_default=True, help="Of the C# code, and its assembly's name.")
def unity(output: Output, folder: Path, out: Path, namespace: str) -> None:
    """Write C# for a Unity project: prompt constants, prompt builder, EditMode tests.

    The tests hold the C# code against the run's prompt contract, byte by byte and id by id.
    """
    from converters.unity.kit import write_kit

    facts = write_kit(RunFolder.existing(folder), out, namespace)
    if others := facts["other_openings"]:
        output.story(
            f"rows of kind {', '.join(others)} have another system turn or other tools: PromptBuilder writes the "
            "opening of the contract's first sample"
        )
    output.story("in Unity: Window > General > Test Runner > EditMode > Run All")
    written = f"{out}: {counted(len(facts['files']), 'file')} in namespace {namespace}"
    output.answer("unity", {"run": str(folder), "out": str(out)} | facts, written)
