"""The command `probes`. It parses, calls and prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, counted
from weights_bridge.sentis_version import SENTIS_VERSION

if TYPE_CHECKING:
    from parity.probes import Row

PATH = click.Path(path_type=Path)


@command(
    "probes",
    examples=(
        "probes MyGame/Assets/Probe/Probes~ --sentis-dump /tmp/probes",
        "probes MyGame/Assets/Probe/Probes~ --sentis-dump /tmp/probes --sentis 2.6 --json",
    ),
)
@click.argument("pack", type=PATH)
@click.option("--sentis-dump", "dump", type=PATH, required=True, help="What the harness wrote of the pack.")
@click.option("--sentis", type=SENTIS_VERSION, help="Version whose facts predict; by default the newest that is known.")
def probes(output: Output, pack: Path, dump: Path, sentis: str | None) -> None:
    """Say what a measured version of Sentis does otherwise than the facts about it.

    The pack is `Probes~`, which `unity --probes` writes; the harness in Unity measures it. Exit 3 where anything was
    measured otherwise than predicted.
    """
    from converters.facts import versions
    from parity.probes import read_probes

    reading = read_probes(pack, dump, sentis or versions()[-1])
    agreed = sum(row.agrees is True for row in reading.rows)
    head = f"package {reading.version}, measured {reading.date}, facts of {reading.facts}: "
    head += f"{agreed} of {len(reading.rows)} as predicted, of {len(reading.news)} nothing was predicted"
    lines = [line for row in (*reading.findings, *reading.news) for line in _lines(row)]
    output.answer("probes", reading.as_json(), "\n".join([head, *lines]))
    if found := len(reading.findings):
        hint = "correct the facts (converters/sentis/*.json) where they were wrong for this version"
        raise BudgetMissedError(f"{counted(found, 'probe')} not as the facts of {reading.facts} say", hint=hint)


def _lines(row: Row) -> list[str]:
    inputs = "" if row.fixture == "drawn" else f" / {row.fixture}"
    where = f" on {row.backend}" if row.backend else ""
    return [f"{row.probe}{inputs}{where}: {row.asks}", f"  predicted {row.predicted}", f"  measured  {row.measured}"]
