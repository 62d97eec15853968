"""The `export` command. It parses, refuses what does not go together, calls and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from converters.commands import PATH, SENTIS
from weights_bridge.console import Output, command
from weights_bridge.errors import StageError, counted
from weights_bridge.settings import resolve

if TYPE_CHECKING:
    from converters.route import Route


@command(
    "export",
    examples=("export path/to/model --out onnx", "export path/to/model --out onnx --dtype fp16 --batch dynamic"),
)
@click.argument("model", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder for base.onnx and contract.json.")
@click.option("--family", default=None, help="Refuse a model of another family.")
@click.option("--opset", type=int, default=18, show_default=True, help="ONNX opset to write.")
@click.option("--dtype", default="fp32", show_default=True, help="fp32, or fp16 weights with fp32 arithmetic.")
@click.option("--batch", default="1", show_default=True, help="1, or dynamic.")
@click.option("--argmax", is_flag=True, help="Also put out the next token's id, so that logits can stay on the device.")
@click.option(
    "--slots", type=click.IntRange(1), default=None, help="A cache of this many slots instead of a growing one."
)
@click.option("--query", type=click.IntRange(1), default=1, show_default=True, help="New tokens a call, with --slots.")
@click.option("--path", default="auto", show_default=True, help="wrapper (ours), optimum (where installed), or auto.")
@click.option("--optimum-python", default="", metavar="PYTHON", help="Interpreter of an environment with optimum-onnx.")
@click.option("--pt2", is_flag=True, help="Also write the exported program of torch beside it (Sentis 2.5 or newer).")
@click.option("--name", default="base.onnx", show_default=True, help="Name of the file.")
@SENTIS
def export(
    output: Output,
    model: Path,
    out: Path,
    family: str | None,
    opset: int,
    dtype: str,
    batch: str,
    argmax: bool,
    slots: int | None,
    query: int,
    path: str,
    optimum_python: str,
    pt2: bool,
    name: str,
    sentis: str,
) -> None:
    """Export a Hugging Face directory to one ONNX file, weights inside."""
    from converters import route
    from converters.export import export_model
    from converters.facts import facts
    from converters.families.causal_lm import Slots
    from converters.pt2 import refuse_pt2
    from weights_bridge.model_folder import open_model_folder

    if Path(name).suffix != ".onnx":
        raise click.UsageError(f"--name {name}: wanted a name that ends in .onnx")
    if slots is None and query != 1:
        raise click.UsageError(f"--query {query} is for --slots: a growing cache takes any number of tokens")
    facts(sentis)  # an unknown version is told before anything is loaded
    chosen = route.choose(model, path, optimum_python)
    output.story(str(chosen))
    if chosen.path == route.OPTIMUM:
        ours = {"--family": family, "--dtype": dtype != "fp32", "--argmax": argmax, "--slots": slots, "--pt2": pt2}
        if asked := [flag for flag, given in ours.items() if given]:
            hint = "leave them out, or --path wrapper"
            raise StageError(f"optimum-onnx decides that by itself: {', '.join(asked)}", hint=hint)
        _with_optimum(output, model, out / name, opset, sentis, chosen, optimum_python)
        return
    flags = (f"export.opset={opset}", f'export.dtype="{dtype}"', f'export.batch="{batch}"', f'export.sentis="{sentis}"')
    settings = resolve(overrides=(*flags, f"export.argmax={str(argmax).lower()}")).settings.export
    if pt2:
        refuse_pt2(dtype, "joined" if slots is None else "slots", sentis)
    known = open_model_folder(model).architecture
    if family is not None and family != known.family:
        raise StageError(f"{model}: family {known.family}, asked for {family}", hint="`mlx-sentis families` lists them")
    output.story(f"{model}: {known.model_type} as {known.family}; tracing prelude, one layer per kind, norm")
    cache = None if slots is None else Slots(slots, query)
    contract = export_model(model, out / name, settings, out / "contract.json", cache, chosen.as_json())
    _answer(output, model, out / name, contract, pt2=pt2)


def _answer(output: Output, model: Path, file: Path, contract: dict[str, Any], *, pt2: bool) -> None:
    """Say what was written, torch's own program beside it where that was asked for."""
    size, place = file.stat().st_size, file.parent / "contract.json"
    facts = {key: contract[key] for key in ("family", "architecture", "opset", "dtype", "batch", "topology_sha256")}
    document = {"model": str(file), "contract": str(place), "bytes": size} | facts | {"path": contract["path"]}
    text = f"{file}: {size / 1e6:.1f} MB, opset {contract['opset']}, {contract['dtype']}"
    if contract["dtype"] == "fp16":
        from converters.explain import HALF

        document["half_weights"] = HALF
        text += f"\nfp16 weights: {HALF}"
    if pt2:
        from converters.pt2 import write_pt2

        made = document["pt2"] = write_pt2(model, file.with_suffix(".pt2"), file, contract)
        level = "equal to the ONNX file" if made["psnr_db"] is None else f"{made['psnr_db']} dB from the ONNX file"
        head = f"{made['file']}: {made['bytes'] / 1e6:.1f} MB, torch {made['torch']}"
        text += f"\n{head}, {level}; not predicted for Sentis"
    output.answer("export", document, text)


def _with_optimum(output: Output, model: Path, file: Path, opset: int, sentis: str, chosen: Route, python: str) -> None:
    """Export with optimum-onnx and say what was checked."""
    from converters.optimum_path import export_with_optimum
    from converters.scan import scan

    made = export_with_optimum(model, file, opset, python)
    level = "equal to torch's" if made["psnr_db"] is None else f"{made['psnr_db']} dB from torch's"
    text = (
        f"{file}: {made['bytes'] / 1e6:.1f} MB, opset {made['opset']}, {made['checked']} {level}; no contract, no swap"
    )
    blocking = sum(finding.blocking for finding in scan(file, sentis))
    if blocking:
        text += f"\n{counted(blocking, 'finding')} for Sentis {sentis}: `mlx-sentis fix` mends what it can"
    output.answer("export", made | {"findings": blocking, "path": chosen.as_json()}, text)
