"""The parts of README.md that are generated, between `<!-- NAME -->` and `<!-- /NAME -->`, and the pages that are
generated as a whole. Run it to renew them.

With a finished run's folder it also renews what was measured, and the picture: `python tests/readme_blocks.py RUN`.
With the document of `bench export --full --json` it renews the table of predicted layers, and its record in `docs/`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

import cli
from benchmarks.export import SHORT
from benchmarks.result import cell
from converters import families
from converters.passes import page as passes_page
from converters.scan import rules_page
from parity.emulator import page as emulator_page
from parity.report import verdict_rows
from weights_bridge.files import read_json, write_json

README = Path(__file__).resolve().parent.parent / "README.md"
PICTURE = README.parent / "docs" / "demo-run.png"
HELP = README.parent / "docs" / "commands.md"
RULES = README.parent / "docs" / "sentis-rules.md"
PASSES = README.parent / "docs" / "passes.md"
EMULATOR = README.parent / "docs" / "sentis-emulator.md"
CASES = README.parent / "tests" / "parity" / "emulator" / "goldens" / "onnx_backend.json"
LAYERS = README.parent / "docs" / "export-layers.json"
EXPORT_ROWS = {
    "nodes": "nodes of the graph",
    "findings": "findings of `scan` for Sentis 2.6",
    "sentis_layers": "layers of Sentis 2.6 after its own fusions, predicted",
    "decode_tokens_per_second": "tokens a second behind 256 tokens, ONNX Runtime",
    "megabytes": "MB on disk",
    "seconds": "seconds to the file",
    "peak_memory_gib": "GiB at the peak",
}
LEAST_GAP = 10  # layers of a kind between two exporters, for a row of its own
PLOTS = ("loss.png", "error_by_layer.png")
PICTURE_WIDTH = 1800  # pixels, both plots
WIDTH = "80"  # click wraps at the terminal's width


def main(given: Path | None = None) -> None:
    """Write README.md anew when a block has changed; with a run or a benchmark's document, its figures too."""
    text = README.read_text(encoding="utf-8")
    run = given if given is not None and given.is_dir() else None
    if given is not None and run is None:
        write_json(LAYERS, layers_of(read_json(given)))
    new = renewed(text)
    if run is not None:
        new = with_block(new, "measured", measured(run))
        draw_picture(run / "parity" / "plots")
    if new != text:
        README.write_text(new, encoding="utf-8")
    print("README.md:", "up to date" if new == text else "blocks renewed")
    HELP.write_text(commands_page(), encoding="utf-8")
    RULES.write_text(rules_page.page(), encoding="utf-8")
    PASSES.write_text(passes_page.page(), encoding="utf-8")
    EMULATOR.write_text(emulator_page.page(read_json(CASES)), encoding="utf-8")


def renewed(text: str) -> str:
    """Return a README's text with every block that needs no run as it should be.

    Raises:
        ValueError: a block's marks are missing or occur twice.
    """
    blocks = {"families": families_table(), "commands": command_list(), "layers": layers_table()}
    for name, block in blocks.items():
        text = with_block(text, name, block)
    return text


def with_block(text: str, name: str, block: str) -> str:
    """Return a text with one block between its marks replaced.

    Raises:
        ValueError: its marks are missing or occur twice.
    """
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise ValueError(f"README.md: wanted one pair of marks <!-- {name} --> and <!-- /{name} -->")
    return marked.sub(lambda found: f"{found[1]}{block}\n{found[2]}", text)


def measured(run: Path) -> str:
    """Return a run's verdicts and costs as a table, with the day and the versions."""
    report = read_json(run / "parity" / "report.json")
    stages = report["stages"]
    minutes = sum(entry["seconds"] for entry in stages.values()) / 60
    peak, largest = max((entry["peak_memory_gib"], name) for name, entry in stages.items())
    slowest, entry = max(stages.items(), key=lambda item: item[1]["seconds"])
    cost = f"{minutes:.1f} min, of them {entry['seconds'] / 60:.1f} in {slowest}; peak {peak:.1f} GiB in {largest}"
    rows = [("all stages", "", cost), *verdict_rows(report)]
    rows = [("", "", row[0].strip()) if row[0].startswith(" ") else row for row in rows]  # a remark on the row above
    lines = ["| check | verdict | figure |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    found = report["versions"]
    names = ("python", "mlx", "mlx-lm", "torch", "transformers", "onnxruntime")
    made = ", ".join(f"{name} {found[name]}" for name in names)
    day = max(one["finished"] for one in stages.values())[:10]
    return "\n".join([*lines, "", f"Run of {day} on {found['system']}: {made}."])


def layers_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the README shows of a benchmark of exporters, with a passport.

    Raises:
        ValueError: it holds none, or not of the whole model.
    """
    bench = next((one for one in document["benches"] if one["bench"] == "export"), None)
    if bench is None or bench["facts"]["layers"] != bench["facts"]["of_layers"]:
        raise ValueError("wanted the document of `mlx-sentis bench export --full --json`")
    rows = zip(SHORT, bench["exporters"], strict=False)  # optimum-onnx is not in every run
    sides = {side: {key: row[key] for key in EXPORT_ROWS} for side, row in rows if "not_measured" not in row}
    levels = [row["found"] for row in bench["budgets"] if row["unit"] == "dB"]
    kept = ("torch", "transformers", "onnx", "onnxruntime")
    passport = {"title": bench["title"], "versions": {name: document["versions"][name] for name in kept}}
    passport |= {"optimum_versions": bench["facts"].get("optimum_versions", {}), "load_before": document["load_before"]}
    return passport | {"logits_db": levels, "kinds": bench["predicted"]} | sides


def layers_table() -> str:
    """Return our graph and the other exporters' side by side, predicted layers by kind where they differ."""
    known = read_json(LAYERS)
    sides = [side for side in SHORT if side in known]
    told = {key: words for key, words in EXPORT_ROWS.items() if key in known["ours"]}
    rows = [(words, [known[side][key] for side in sides]) for key, words in told.items()]
    kinds = [(f"… {row['layer']}", [row[side] for side in sides]) for row in known["kinds"] if row["layer"] != "all"]
    rows += [(words, figures) for words, figures in kinds if max(figures) - min(figures) >= LEAST_GAP]
    lines = [f"| {words} | {' | '.join(map(cell, figures))} |" for words, figures in rows]
    made = [f"{name} {version}" for name, version in known["versions"].items()]
    theirs = [f"{name} {version}" for name, version in known.get("optimum_versions", {}).items()]
    levels = " and ".join("0 (exact)" if level is None else f"{level} dB" for level in known["logits_db"])
    end = f"{known['title']}; logits {levels} from ours; load {known['load_before']} before; {', '.join(made)}"
    end += f". optimum-onnx in an environment of its own: {', '.join(theirs)}." if theirs else "."
    heading = " | ".join(SHORT[side] for side in sides)
    return "\n".join([f"| | {heading} |", "|---|" + "--:|" * len(sides), *lines, "", end])


def draw_picture(plots: Path) -> None:
    """Write the README's picture: a run's two plots side by side."""
    from PIL import Image

    images = [Image.open(plots / name).convert("RGB") for name in PLOTS]
    sheet = Image.new("RGB", (sum(image.width for image in images), max(image.height for image in images)), "white")
    for at, image in enumerate(images):
        sheet.paste(image, (sum(before.width for before in images[:at]), 0))
    small = sheet.resize((PICTURE_WIDTH, round(sheet.height * PICTURE_WIDTH / sheet.width)), Image.Resampling.LANCZOS)
    PICTURE.parent.mkdir(exist_ok=True)
    small.quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


def families_table() -> str:
    """Return the registry as a table; architectures that the same stages cover share a row."""
    heading = ("family", "architecture", *families.STAGES)
    lines = [heading, ("---",) * 2 + (":-:",) * len(families.STAGES)]
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in families.table():
        together.setdefault((row["family"], tuple(row["stages"])), []).append(f"`{row['architecture']}`")
    for (family, stages), names in sorted(together.items(), key=lambda item: (item[0][0], -len(item[0][1]))):
        marks = tuple("●" if stage in stages else "" for stage in families.STAGES)
        lines.append((family, ", ".join(names), *marks))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command_list() -> str:
    """Return one line per command, in the order of `mlx-sentis --help`."""
    lines = [f"| `mlx-sentis {name}` | {line} |" for name, (_, line) in cli.COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *lines])


def commands_page() -> str:
    """Return the page with the `--help` of the program and of every command."""
    blocks = ["# Commands", "Every `--help`, as printed on a terminal of 80 columns."]
    for words in ((), *command_paths()):
        name = " ".join(("mlx-sentis", *words))
        blocks.append(f"{'#' * max(2, len(words) + 1)} `{name}`\n\n```text\n{help_of(words)}\n```")
    return "\n\n".join(blocks) + "\n"


def command_paths() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, of groups and of the commands in them."""
    context = click.Context(cli.main)
    for name in cli.main.list_commands(context):
        yield (name,)
        command = cli.main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.list_commands(context))


def help_of(words: tuple[str, ...]) -> str:
    """Return what `mlx-sentis WORDS --help` prints on a terminal of 80 columns.

    Raises:
        RuntimeError: it failed.
    """
    result = CliRunner(env={"COLUMNS": WIDTH}).invoke(cli.main, [*words, "--help"], prog_name="mlx-sentis")
    if result.exit_code:
        raise RuntimeError(f"mlx-sentis {' '.join(words)} --help: exit {result.exit_code}")
    return result.output.rstrip()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
