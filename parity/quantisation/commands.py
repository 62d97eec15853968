"""`quantise`: it parses, calls and prints."""

from __future__ import annotations

from pathlib import Path

import click

from weights_bridge.console import FiniteFloat, Output, command
from weights_bridge.errors import BudgetMissedError
from weights_bridge.run_folder import RunFolder
from weights_bridge.sentis_version import SENTIS_VERSION


@command("quantise", examples=("quantise runs/demo", "quantise model.onnx --fixture f.npz --to uint8 --limit-mib 40"))
@click.argument("target", metavar="RUN|MODEL.onnx", type=click.Path(path_type=Path))
@click.option("--to", "wanted", multiple=True, metavar="KIND", help="float16 or uint8; may be given again. Both.")
@click.option("--fixture", type=click.Path(path_type=Path), help="With a graph: an npz file with in:: tensors.")
@click.option("--limit-mib", type=FiniteFloat(min=0), help="What the weights may take; Uint8 only beyond it.")
@click.option("--rows", type=click.IntRange(min=0), help="The first N held-out rows; 0 is all.")
@click.option("--no-task", is_flag=True, help="Only predict the numbers, ask no held-out rows.")
@click.option("--sentis", type=SENTIS_VERSION, help="The package version; the contract's, or 2.6.")
def quantise(
    output: Output,
    target: Path,
    wanted: tuple[str, ...],
    fixture: Path | None,
    limit_mib: float | None,
    rows: int | None,
    no_task: bool,
    sentis: str | None,
) -> None:
    """Say what Float16 and Uint8 weights, made by ModelQuantizer in Unity, will cost, before Unity is opened.

    Predicted error of every output against unquantised weights, what the weights take, and the held-out rows answered
    with fp32, Float16 and Uint8 weights, axis by axis. Nothing is written that Unity would read: Sentis quantises by
    itself. The order is fine-tune first, Float16, Uint8 only where memory is short; no kind that makes an axis worse.
    """
    from parity.emulator.quantise import KINDS, checked_kind
    from parity.quantisation.of_run import Options, preview_file, preview_run
    from parity.quantisation.words import closing, text_of

    asked = {checked_kind(kind) for kind in wanted} or set(KINDS)
    limit = None if limit_mib is None else int(limit_mib * 2**20)
    options = Options([kind for kind in KINDS if kind in asked], sentis, limit, rows, not no_task, output.quiet)
    if target.suffix == ".onnx":
        if fixture is None:
            raise click.UsageError("a graph is measured on a fixture: give --fixture")
        document = preview_file(target, fixture, options, output.story)
    elif fixture is not None:
        raise click.UsageError("--fixture goes with a graph; a run has fixtures of its own")
    else:
        document = preview_run(RunFolder.existing(target), options, output.story)
    output.answer("quantise", document, text_of(document))
    if not document["choice"]["acceptable"]:
        hint = "leave the weights as they are, tune a model that bears it, or give a larger --limit-mib"
        raise BudgetMissedError(closing(document), hint=hint)
