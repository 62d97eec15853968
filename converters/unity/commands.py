"""The command `unity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from converters.unity.helpers import HELPERS
from weights_bridge.console import Output, command
from weights_bridge.errors import counted
from weights_bridge.run_folder import RunFolder

if TYPE_CHECKING:
    from converters.unity.kit import KitSettings

PATH = click.Path(path_type=Path)


@command(
    "unity",
    examples=(
        "unity runs/npc --out MyGame/Assets/Npc --namespace MyGame.Npc",
        "unity runs/npc --base --out MyGame/Assets/Npc",
    ),
)
@click.argument("folder", metavar="[RUN|EXPORTED]", type=PATH, required=False)
@click.option("--out", type=PATH, required=True, help="Folder for Assets/; files of other names in it are left alone.")
@click.option("--namespace", help="Of the C# code, and its assembly's name: MlxSentis, without RUN MlxSentis.Tools.")
@click.option("--prompt-only", is_flag=True, help="Prompt and tests alone; a run that was prepared is enough.")
@click.option("--base", is_flag=True, help="The base weights of a run: no training is needed.")
@click.option("--model", type=PATH, help="With a folder that export wrote: the model directory it was exported from.")
@click.option("--link", is_flag=True, help="A hard link to the run's model instead of a copy.")
@click.option("--helper", "helpers", multiple=True, metavar="NAME", help=f"{', '.join(HELPERS)} or all; repeatable.")
@click.option("--probes", is_flag=True, help="Tiny models that measure another version of the package; needs no run.")
@click.option("--ungated", is_flag=True, help="Go on without a passed edge A; the manifest says so.")
def unity(
    output: Output, folder: Path | None, out: Path, namespace: str | None, model: Path | None, **settings: Any
) -> None:
    """Write a folder for a Unity project: model, C# that runs it, tests, parity harness.

    The tests hold the C# code against the run's prompt contract, byte by byte and id by id. The harness imports the
    model in Unity and writes what Sentis computes, for `parity --sentis-dump`. A folder that `export` wrote gives a
    kit without prompt builder and gate. Without RUN: helpers and probes alone.
    """
    from converters.unity.base import is_exported
    from converters.unity.kit import NAMESPACE, KitSettings, write_tools

    exported = folder is not None and is_exported(folder)
    own = NAMESPACE if folder is not None else f"{NAMESPACE}.Tools"
    named = own if namespace is None else namespace  # an empty one is no C# name, and is told as such
    if model is not None and not exported:
        raise click.UsageError("--model goes with a folder that export wrote")
    if folder is None:
        facts = write_tools(out, KitSettings(named, **settings))
    elif exported:
        wanted = KitSettings(named, **{**settings, "base": True})
        facts = _of_export(output, folder, out, model, wanted)
    else:
        facts = _of_run(output, folder, out, named, settings)
    run = None if folder is None or exported else str(folder)
    output.answer("unity", {"run": run, "out": str(out)} | facts, _written(out, facts))


def _of_export(output: Output, folder: Path, out: Path, model: Path | None, wanted: KitSettings) -> dict[str, Any]:
    from converters.unity.base import base_of_export
    from converters.unity.kit import write_base_kit

    base = base_of_export(folder, model, ungated=wanted.ungated)
    facts = write_base_kit(base, out, wanted)
    return facts | {"tokenizer": _tokenizer_findings(output, base.tokenizer.parent, base.contract)}


def _of_run(output: Output, folder: Path, out: Path, namespace: str, settings: dict[str, Any]) -> dict[str, Any]:
    from converters.unity.base import base_of_run
    from converters.unity.kit import write_kit

    run = RunFolder.existing(folder)
    facts = write_kit(run, out, namespace, **settings)
    if others := facts["other_openings"]:
        output.story(
            f"rows of kind {', '.join(others)} have another system turn or other tools: PromptBuilder writes the "
            "opening of the contract's first sample"
        )
    found = []
    if not settings["prompt_only"]:
        base = settings["base"]
        tokenizer = base_of_run(run, ungated=True).tokenizer.parent if base else run.path("merged")
        found = _tokenizer_findings(output, tokenizer, run.path("onnx", "contract.json"))
    output.story("in Unity: Window > General > Test Runner > EditMode > Run All")
    return facts | {"tokenizer": found}


def _written(out: Path, facts: dict[str, Any]) -> str:
    return f"{out}: {counted(len(facts['files']), 'file')} in namespace {facts['namespace']}"


def _tokenizer_findings(output: Output, model: Path, contract: Path) -> list[dict[str, Any]]:
    """Tell, and return, what Sentis' own reader of tokenizer.json has no builder for."""
    from converters.facts import facts
    from converters.scan.tokenizer import tokenizer_findings
    from weights_bridge.files import read_json

    found = list(tokenizer_findings(model, facts(read_json(contract).get("sentis", "2.6"))))
    for finding in found:
        output.story(f"tokenizer.json: {finding.what}; {finding.mend}")
    return [finding.as_json() for finding in found]
