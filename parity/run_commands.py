"""The commands `run` and `bridge`. They parse, call and print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Literal

import click

from weights_bridge.console import Output, command
from weights_bridge.run_folder import RunFolder
from weights_bridge.settings import Resolved, resolve

PRECISIONS = ("fp16", "bf16", "8bit", "6bit", "5bit", "4bit")  # those of weights_bridge.merged_copy, not imported here

PATH = click.Path(path_type=Path)


@command("run", examples=("run", "run npc.toml --out runs/npc --set train.epochs=2"))
@click.argument("config", type=PATH, required=False)
@click.option("--out", type=PATH, default=None, help="Run folder; runs/<model>-<data> by default.")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Change one setting.")
@click.option("--from", "first", default=None, metavar="STAGE", help="Go on in --out with this stage.")
@click.option(
    "--progress", type=click.Choice(["stdout", "stderr", "jsonl", "off"]), default=None, help="Of the training stage."
)
@click.option(
    "--report-to",
    "trackers",
    type=click.Choice(["wandb", "trackio", "tensorboard"]),
    multiple=True,
    help="Tell a tracker that is installed of the training; may be given again.",
)
def run(
    output: Output,
    config: Path | None,
    out: Path | None,
    overrides: tuple[str, ...],
    first: str | None,
    progress: str | None,
    trackers: tuple[str, ...],
) -> None:
    """Run all stages in order, from a data file to a parity-verified ONNX; without CONFIG the embedded demo."""
    from mlx_sentis.catalogue import require_model_name
    from mlx_sentis.training.reporters import tracker_module
    from parity.pipeline import run_pipeline
    from parity.report import verdict_table
    from weights_bridge.files import read_json

    for name in trackers:
        tracker_module(name)  # one that is not installed is told before conversion, not after
    settings = settings_for(config, out, overrides, first)
    if settings is not None:
        require_model_name(settings.settings.model.name)  # before a run folder is made
    root = out or default_folder(resolve(file=config, overrides=overrides))
    where = progress or ("stderr" if output.as_json else "stdout")
    if output.as_json and where in ("stdout", "jsonl"):
        raise click.UsageError(f"--progress {where} and --json both want stdout")
    output.story(f"run folder {root}")
    told = {"progress": where, "trackers": trackers, "quiet": output.quiet, "say": output.story}
    run_pipeline(root, settings, first=first or "recipe", **told)
    report = read_json(root / "parity" / "report.json")
    text = verdict_table(report) + (f"\n\n{next_steps(root)}" if report["passed"] else "")
    output.answer("run", {"run": str(root), "report": report}, text)


def next_steps(root: Path) -> str:
    """Return what one does with a run that passed, as commands to copy."""
    run = shlex.quote(str(root))
    steps = (
        (f"mlx-sentis unity {run} --out MyGame/Assets/Npc", "a folder for a Unity project"),
        (f"mlx-sentis quantise {run}", "what Float16 and Uint8 weights in Unity will cost"),
        (f"mlx-sentis validate {run}", "answers to read for yourself"),
    )
    width = max(len(words) for words, _ in steps)
    return "\n".join(["Next:", *(f"  {words:<{width}}  {what}" for words, what in steps)])


def settings_for(
    config: Path | None, out: Path | None, overrides: tuple[str, ...], first: str | None
) -> Resolved | None:
    """Return the settings to write; going on with `--from` keeps the run's own unless some are given."""
    if first is None:
        return resolve(file=config, overrides=overrides)
    if out is None:
        raise click.UsageError("--from needs --out, the run to go on with")
    if config is None and not overrides:
        return None
    kept = out / "config.toml"
    return resolve(file=config or (kept if kept.is_file() else None), overrides=overrides)


def default_folder(resolved: Resolved) -> Path:
    """Return `runs/<model>-<data>`."""
    settings = resolved.settings
    return Path("runs") / f"{Path(settings.model.name).name}-{Path(settings.data.source).stem}"


@command("bridge", examples=("bridge runs/npc", "bridge runs/npc --to peft --out npc-peft"))
@click.argument("folder", metavar="RUN|MODEL", type=PATH)
@click.option(
    "--to",
    type=click.Choice(["torch", "mlx", "peft"]),
    default="torch",
    show_default=True,
    help="Of a run: the merged model, or the adapter for mlx-lm or PEFT. Of a model: whose layout.",
)
@click.option("--from", "source", nargs=2, metavar="peft|mlx DIR", help="First take this adapter into the run.")
@click.option("--out", type=PATH, help="Where an adapter or a model goes; RUN/peft and RUN/mlx by default.")
@click.option("--checkpoint", help="best (default), last or an update's number.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Write the merged model once more into --out, in fewer bits; packed ones are for mlx-lm.",
)
@click.option("--allow-pickle", is_flag=True, help="Read .bin and .pt too, as weights only.")
def bridge(
    output: Output,
    folder: Path,
    to: Literal["torch", "mlx", "peft"],
    source: tuple[str, str] | None,
    out: Path | None,
    checkpoint: str | None,
    precision: str | None,
    allow_pickle: bool,
) -> None:
    """Merge the trained adapter into a Hugging Face directory and measure gate A0.

    Or take adapters in and out (--from, --to), write the merged model in fewer bits (--precision), or rewrite a
    model directory in torch's or MLX's layout.
    """
    from mlx_sentis.catalogue import ENTRIES, get_model
    from parity.adapters_in_out import convert_model, export_adapter, import_adapter
    from parity.bridge import bridge_run, copy_merged
    from parity.verify import settings_of
    from weights_bridge.adapter_file import IMPORTED

    if str(folder) in ENTRIES and not folder.exists():
        folder = get_model(str(folder), output.story)
    is_model = (folder / "config.json").is_file() and not (folder / "manifest.json").is_file()
    if is_model:
        if to == "peft" or source or precision or out is None:
            raise click.UsageError("a model directory takes --to torch or mlx, and --out")
        facts = convert_model(folder, to, out, allow_pickle=allow_pickle)
        text = f"{out}: {facts['tensors']} tensors from {facts['from']}'s layout to {to}'s, bit by bit"
        left_out = "".join(f"\nleft out: {name}: {why}" for name, why in facts["left_out"].items())
        output.answer("bridge", facts, f"{text}; {_opened(facts)}{left_out}")
        return
    opened = RunFolder.existing(folder)
    if precision:
        if source or checkpoint or to != "torch" or out is None:
            raise click.UsageError("--precision is of the merged model as it is, and wants --out")
        facts = copy_merged(opened, precision, out)
        kept = facts["effect"]
        text = (
            f"{out}: {precision}, {facts['bytes'] / 1e6:.1f} MB, keeps {kept['kept']:.2%} of the adapter's effect, "
            f"{kept['least']:.2%} at the least ({kept['module']}); {_opened(facts)}"
        )
        output.answer("bridge", facts, text)
        return
    if source:
        if to != "torch" and out is not None and out.resolve() == Path(source[1]).resolve():
            raise click.UsageError("--out is the directory that --from reads")
        if source[0] not in ("peft", "mlx"):
            raise click.UsageError(f"--from {source[0]}: wanted peft or mlx")
        if checkpoint:
            raise click.UsageError("--from takes an adapter in and goes on with it: leave --checkpoint out")
        facts = import_adapter(opened, source[0], Path(source[1]), allow_pickle=allow_pickle)
        output.story(f"{facts['type']} of rank {facts['rank']}, alpha {facts['alpha']:g}, {facts['modules']} modules")
        if facts["made_for"] not in ("", facts["base"]):
            output.story(
                f"it was made for {facts['made_for']} and goes onto {facts['base']}: are these the same weights?"
            )
    which = checkpoint or (IMPORTED if source else "best")
    if to != "torch":
        facts = export_adapter(opened, to, which, out or folder / to)
        if to == "peft" and facts["packed"]:
            way = f"`mlx-sentis bridge {facts['packed']} --to torch --out NEW` makes what PEFT can put it on"
            output.story(f"its base is packed for MLX: {way}")
        output.answer("bridge", facts, f"{facts['out']}: {facts['type']}, {facts['modules']} modules, for {to}")
        return
    if out is not None:
        raise click.UsageError("--out is of adapters and models; the merged directory is RUN/merged")
    report = bridge_run(opened, settings_of(opened).parity, which, output.story)
    text = (
        f"{folder}/merged: gate A0 passed, {len(report.results)} checks; forward {report.worst_db('forward'):.1f} dB, "
        f"backward {report.worst_db('backward'):.1f} dB at the worst"
    )
    output.answer("a0", report.as_json(), text)


def _opened(facts: dict[str, Any]) -> str:
    return f"{facts['opened_by']} opened it" if facts["opened_by"] else f"nothing opened it: {facts['not_opened']}"
