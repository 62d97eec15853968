"""`graph info|extract|cut|fix-shape|rename-io|inline|inject-kv`: they parse, call and print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from weights_bridge.console import Output, command, write_examples
from weights_bridge.errors import UsedWronglyError, about, one_line

PATH = click.Path(path_type=Path)
OUT = click.option("--out", type=PATH, required=True, help="The file to write; the input is never changed.")
FIXTURE = click.option("--fixture", type=PATH, default=None, help="An npz file with in:: arrays to prove it on.")


def _fixture(path: Path | None) -> Any:
    from converters.fix import read_fixture

    return None if path is None else read_fixture(path)


def _pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dictionary; a name may hold colons and slashes, not =."""
    pairs = {}
    for text in values:
        name, found, value = text.rpartition("=")
        if not found or not name or not value:
            raise UsedWronglyError(f"{option} {text}: wanted NAME=VALUE", hint=f"as in {option} batch=1")
        pairs[name] = value
    return pairs


def _answer(output: Output, name: str, report: dict[str, Any]) -> None:
    nodes = report["nodes"]
    lines = [f"outputs now: {', '.join(report['outputs'])}"] if name in ("graph-extract", "graph-cut") else []
    if cut := report.get("cut"):
        lines.append("cut: " + ", ".join(f"{op} {count}" for op, count in sorted(cut.items())))
    lines += [f"named sizes left: {', '.join(left)}"] if (left := report.get("named_sizes_left")) else []
    lines.append(f"{report['output']}: {nodes['before']} → {nodes['after']} nodes; {report['proof']}")
    output.answer(name, report, "\n".join(map(one_line, lines)))


@command("info", examples=("graph info model.onnx", "graph info model.onnx --json"))
@click.argument("model", type=PATH)
def graph_info(output: Output, model: Path) -> None:
    """Say what is in a graph: inputs, outputs, operators, weights."""
    from converters.surgery.info import info, text_of

    facts = info(model)
    output.answer("graph-info", facts, text_of(facts))


@command(
    "extract",
    examples=(
        "graph extract model.onnx --to encoder_out --out encoder.onnx",
        "graph extract model.onnx --from hidden.3 --to hidden.4 --out layer.onnx",
    ),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--from", "begin", multiple=True, metavar="TENSOR", help="Becomes an input; may be given again.")
@click.option("--to", "end", multiple=True, metavar="TENSOR", help="Becomes an output; may be given again.")
@FIXTURE
def graph_extract(
    output: Output, model: Path, out: Path, begin: tuple[str, ...], end: tuple[str, ...], fixture: Path | None
) -> None:
    """Take the part of a graph between tensors.

    It is proven against the whole.
    """
    from converters.surgery.parts import extract

    if not begin and not end:
        raise click.UsageError("give --from TENSOR or --to TENSOR")
    inputs = _fixture(fixture)
    with about(model):
        report = extract(model, out, begin, end, inputs)
    _answer(output, "graph-extract", report)


@command(
    "cut",
    examples=("graph cut yolo.onnx --out yolo-bare.onnx", "graph cut model.onnx --before TopK --out bare.onnx"),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--before", multiple=True, metavar="OPERATOR", help="Goes with all behind it; NMS by default.")
@click.option("--at", multiple=True, metavar="TENSOR", help="End at these tensors instead.")
@FIXTURE
def graph_cut(
    output: Output, model: Path, out: Path, before: tuple[str, ...], at: tuple[str, ...], fixture: Path | None
) -> None:
    """Take away baked post-processing such as NMS.

    What it was fed becomes the outputs.
    """
    from converters.surgery.parts import POST_PROCESSING, cut

    inputs = _fixture(fixture)
    with about(model):
        report = cut(model, out, before or POST_PROCESSING, at, inputs)
    _answer(output, "graph-cut", report)


@command(
    "fix-shape",
    examples=(
        "graph fix-shape model.onnx --size batch=1 --out fixed.onnx",
        "graph fix-shape model.onnx --input image=1,3,224,224 --fold --out fixed.onnx",
    ),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--size", multiple=True, metavar="NAME=N", help="A named size; may be given again.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=N,N,…", help="All sizes of an input.")
@click.option("--fold", is_flag=True, help="Compute what is constant then.")
def graph_fix_shape(
    output: Output, model: Path, out: Path, size: tuple[str, ...], inputs: tuple[str, ...], fold: bool
) -> None:
    """Make named sizes numbers."""
    from converters.surgery.names import fix_shape

    if not size and not inputs:
        raise click.UsageError("give --size NAME=N or --input NAME=N,N,…")
    try:
        sizes = {name: int(number) for name, number in _pairs(size, "--size").items()}
        shapes = {name: [int(n) for n in text.split(",")] for name, text in _pairs(inputs, "--input").items()}
    except ValueError as error:
        raise UsedWronglyError(f"sizes are whole numbers: {error}", hint="as in --size batch=1") from None
    with about(model):
        report = fix_shape(model, out, sizes, shapes, fold=fold)
    _answer(output, "graph-fix-shape", report)


@command(
    "rename-io",
    examples=(
        "graph rename-io model.onnx --name x.1=image --out named.onnx",
        "graph rename-io model.onnx --name 42=logits --name 7=boxes --out named.onnx",
    ),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--name", "names", multiple=True, required=True, metavar="OLD=NEW", help="May be given again.")
@FIXTURE
def graph_rename_io(output: Output, model: Path, out: Path, names: tuple[str, ...], fixture: Path | None) -> None:
    """Give inputs and outputs other names."""
    from converters.surgery.names import rename_io

    renamed, inputs = _pairs(names, "--name"), _fixture(fixture)
    with about(model):
        report = rename_io(model, out, renamed, inputs)
    _answer(output, "graph-rename-io", report)


@command("inline", examples=("graph inline model.onnx --out whole.onnx", "graph inline m.onnx --out w.onnx --json"))
@click.argument("model", type=PATH)
@OUT
@FIXTURE
def graph_inline(output: Output, model: Path, out: Path, fixture: Path | None) -> None:
    """Bring side files and model-local functions into one file."""
    from converters.surgery.names import inline

    inputs = _fixture(fixture)
    with about(model):
        report = inline(model, out, inputs)
    _answer(output, "graph-inline", report)


@command(
    "inject-kv",
    examples=(
        "graph inject-kv decoder.onnx --out decoder-kv.onnx",
        "graph inject-kv d.onnx --ids tokens --out kv.onnx",
    ),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--ids", default=None, metavar="INPUT", help="With token ids; found by its name otherwise.")
@click.option("--logits", default=None, metavar="OUTPUT", help="With logits.")
@click.option("--tokens", type=click.IntRange(8), default=41, show_default=True, help="Of the sequence that proves it.")
def graph_inject_kv(output: Output, model: Path, out: Path, ids: str | None, logits: str | None, tokens: int) -> None:
    """Give a decoder that only exists as ONNX a cache.

    It is proven step by step against itself.
    """
    from converters.surgery.inject_kv import inject_kv

    with about(model):
        report = inject_kv(model, out, ids=ids, logits=logits, tokens=tokens)
    for row in report["ladder"]:
        level = row["reason"] if row["psnr_db"] is None else f"{row['psnr_db']:.1f} dB"
        output.story(f"{row['rung']:<32} {level}")
    _answer(output, "graph-inject-kv", report)


@command(
    "hoist-state",
    examples=(
        "graph hoist-state vad.onnx --time frames --out step.onnx",
        "graph hoist-state m.onnx --time T --out step.onnx --json",
    ),
)
@click.argument("model", type=PATH)
@OUT
@click.option("--time", required=True, metavar="SIZE", help="The named size that is time; it becomes 1.")
def graph_hoist_state(output: Output, model: Path, out: Path, time: str) -> None:
    """Make a recurrent model one step, its states outside.

    The caller carries the states; the step is proven against the whole.
    """
    from converters.surgery.hoist_state import hoist_state

    with about(model):
        report = hoist_state(model, out, time)
    for name, state in report["states"].items():
        output.story(f"{name} {state['sizes']} from zeros, next is {state['output']}")
    _answer(output, "graph-hoist-state", report)


class GraphGroup(click.Group):
    """The commands under one name; its `--help` ends in examples like any other."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, ("graph info model.onnx", "graph cut yolo.onnx --out bare.onnx"))


graph = GraphGroup(
    "graph",
    commands=[
        graph_info,
        graph_extract,
        graph_cut,
        graph_fix_shape,
        graph_rename_io,
        graph_inline,
        graph_inject_kv,
        graph_hoist_state,
    ],
    help="Work on a graph by hand: look, take a part, cut, fix sizes, rename, inline, give it a cache or its states.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
