"""`prepare`, `check-data` and `show-mask`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import UsedWronglyError

# `formats.containers.NAMES` in words: importing it here would slow every command down.
FORMATS = "messages, sharegpt, bfcl, command, alpaca, completion, text; files: jsonl, json, csv, tsv, datasets"
FORMAT_HELP = f"The rows' form, where looking at them is not enough: {FORMATS}."


@command(
    "prepare",
    examples=(
        "prepare npc-commands --model smollm2-135m --out runs/npc",
        "prepare rows.jsonl --model ./my-model --out runs/mine --set data.max_tokens=2048",
    ),
)
@click.argument("data")
@click.option("--model", required=True, help="A model's name, its directory, or a hub id.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The run folder to write to.")
@click.option("--template", type=click.Path(path_type=Path), help="A Jinja chat template in place of the model's own.")
@click.option("--format", "form", metavar="NAME", help=FORMAT_HELP)
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Where a field stands. Repeatable.")
@click.option("--skip-bad", is_flag=True, help="Leave bad rows out and list them, instead of refusing the source.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting, e.g. data.seed=7. Repeatable.")
def prepare(
    output: Output,
    data: str,
    model: str,
    out: Path,
    template: Path | None,
    form: str | None,
    mapping: tuple[str, ...],
    skip_bad: bool,
    overrides: tuple[str, ...],
) -> None:
    """Shape DATA for a model: render, mask, split and check every row.

    DATA is a .jsonl file, a folder of {train,valid,calibration,holdout}.jsonl, or a shipped set's name. A row is
    {"user", "call"} (tools in tools.json beside it), {"messages", "tools"} or {"prompt", "completion"}.
    """
    from mlx_sentis.prepare.report import report_text
    from mlx_sentis.prepare.run import run_prepare
    from weights_bridge.settings import resolve

    settings = resolve(overrides=(*overrides, *_shorthands(form, mapping, skip_bad))).settings.data
    _require_data_settings(overrides)
    _require_name("--model", model, "a model's name, its directory or a hub id")
    bar = not (output.quiet or output.as_json)
    facts = run_prepare(data, model, out, settings, template=template, say=output.story, bar=bar)
    output.story(f"written: {out / 'data'}, {out / 'prompt_contract.json'}")
    output.answer("dataset", facts, report_text(facts).rstrip())


@command("check-data", examples=("check-data rows.jsonl", "check-data clips/transcripts.jsonl --json"))
@click.argument("data")
@click.option("--format", "form", metavar="NAME", help=FORMAT_HELP)
@click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="Where a field stands. Repeatable.")
@click.option(
    "--box-form",
    type=click.Choice(["xyxy", "xywh", "cxcywh"]),
    help="A box's four numbers: two corners (the default), a corner and the size, or the centre and the size.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting of data. Repeatable.")
def check_data(
    output: Output, data: str, form: str | None, mapping: tuple[str, ...], box_form: Any, overrides: tuple[str, ...]
) -> None:
    """Look for what is wrong with DATA, without a model.

    DATA is what `prepare` takes, or a manifest in JSON lines: rows with audio (a WAV file's path) and text, or rows
    with image and boxes. Rows that cannot be used are exit 1.
    """
    from mlx_sentis.prepare import check
    from weights_bridge.settings import resolve

    settings = resolve(overrides=(*overrides, *_shorthands(form, mapping, skip_bad=False))).settings.data
    _require_data_settings(overrides)
    bar = not (output.quiet or output.as_json)
    facts = check.check_data(data, settings, box_form=box_form, bar=bar)
    output.answer("check", facts, check.check_text(facts))
    check.require_usable(facts)


def _require_data_settings(overrides: tuple[str, ...]) -> None:
    """Refuse settings that shape no data, instead of leaving them aside.

    Raises:
        UsedWronglyError: of another section, or the source, which is the argument.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if wrong := [key for key in keys if not key.startswith("data.") or key == "data.source"]:
        hint = "here only data.* is set, and DATA is the source; `train` and `run` take the others"
        raise UsedWronglyError(f"--set {', '.join(wrong)}: nothing here goes by it", hint=hint)


def _require_name(flag: str, name: str, wanted: str) -> None:
    if not name.strip():
        raise UsedWronglyError(f"{flag}: the name is empty", hint=f"give {wanted}")


def _shorthands(form: str | None, mapping: tuple[str, ...], skip_bad: bool) -> list[str]:
    """Return the flags as `--set` would have them; what was not given says nothing."""
    given = [f"data.format={form}"] if form else []
    given += [f"data.map={json.dumps(mapping, ensure_ascii=False)}"] if mapping else []
    return given + (["data.skip_bad=true"] if skip_bad else [])


@command("show-mask", examples=("show-mask runs/npc", "show-mask runs/npc --split holdout --row 3 --json"))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--row", "number", default=1, show_default=True, help="The row, counted from 1.")
@click.option("--split", default="train", show_default=True, help="train, valid, calibration or holdout.")
def show_mask(output: Output, folder: Path, number: int, split: str) -> None:
    """Print one prepared row token by token: trained (●) or not (·)."""
    from mlx_sentis.prepare.show import mask_text, read_mask

    mask = read_mask(folder, split, number)
    output.answer("mask", mask.as_json(), mask_text(mask))
