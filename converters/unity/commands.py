"""The command `unity`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from converters.unity.helpers import HELPERS
from weights_bridge.console import Output, command
from weights_bridge.errors import counted
from weights_bridge.run_folder import RunFolder

PATH = click.Path(path_type=Path)


@command(
    "unity",
    examples=(
        "unity runs/npc --out MyGame/Assets/Npc --namespace MyGame.Npc",
        "unity --probes --out MyGame/Assets/Probes",
    ),
)
@click.argument("folder", metavar="[RUN]", type=PATH, required=False)
@click.option("--out", type=PATH, required=True, help="Folder for Assets/; files of other names in it are left alone.")
@click.option("--namespace", help="Of the C# code, and its assembly's name: MlxSentis, without RUN MlxSentis.Tools.")
@click.option("--prompt-only", is_flag=True, help="Prompt and tests alone; a run that was prepared is enough.")
@click.option("--link", is_flag=True, help="A hard link to the run's model instead of a copy.")
@click.option("--helper", "helpers", multiple=True, metavar="NAME", help=f"{', '.join(HELPERS)} or all; repeatable.")
@click.option("--probes", is_flag=True, help="Tiny models that measure another version of the package; needs no run.")
@click.option("--ungated", is_flag=True, help="Go on without a passed edge A; the manifest says so.")
def unity(output: Output, folder: Path | None, out: Path, namespace: str | None, **settings: Any) -> None:
    """Write a folder for a Unity project: model, C# that runs it, tests, parity harness.

    The tests hold the C# code against the run's prompt contract, byte by byte and id by id. The harness imports the
    model in Unity and writes what Sentis computes, for `parity --sentis-dump`. Without RUN: helpers and probes alone.
    """
    from converters.unity.kit import NAMESPACE, KitSettings, write_kit, write_tools

    if folder is None:
        facts = write_tools(out, KitSettings(namespace or f"{NAMESPACE}.Tools", **settings))
        output.answer("unity", {"run": None, "out": str(out)} | facts, _written(out, facts))
        return
    run = RunFolder.existing(folder)
    facts = write_kit(run, out, namespace or NAMESPACE, **settings)
    if others := facts["other_openings"]:
        output.story(
            f"rows of kind {', '.join(others)} have another system turn or other tools: PromptBuilder writes the "
            "opening of the contract's first sample"
        )
    facts |= {"tokenizer": [] if settings["prompt_only"] else _tokenizer_findings(output, run)}
    output.story("in Unity: Window > General > Test Runner > EditMode > Run All")
    output.answer("unity", {"run": str(folder), "out": str(out)} | facts, _written(out, facts))


def _written(out: Path, facts: dict[str, Any]) -> str:
    return f"{out}: {counted(len(facts['files']), 'file')} in namespace {facts['namespace']}"


def _tokenizer_findings(output: Output, run: RunFolder) -> list[dict[str, Any]]:
    """Tell, and return, what Sentis' own reader of tokenizer.json has no builder for."""
    from converters.facts import facts
    from converters.scan.tokenizer import tokenizer_findings
    from weights_bridge.files import read_json

    sentis = read_json(run.path("onnx", "contract.json")).get("sentis", "2.6")
    found = list(tokenizer_findings(run.path("merged"), facts(sentis)))
    for finding in found:
        output.story(f"tokenizer.json: {finding.what}; {finding.mend}")
    return [finding.as_json() for finding in found]
