"""The command `case`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weights_bridge.console import Output, command
from weights_bridge.errors import BudgetMissedError, all_at_once, counted
from weights_bridge.run_folder import RunFolder

PATH = click.Path(path_type=Path)


@command("case", examples=("case runs/npc --out cases", "case runs/npc --check cases/smollm2-135m.md"))
@click.argument("source", metavar="[RUN]", required=False, type=PATH)
@click.option(
    "--out", type=PATH, help="A folder of case files: the page, its records, verified_exports.md, eval_log.md."
)
@click.option("--check", type=PATH, help="A page to hold against RUN; without RUN a folder against its own records.")
def case(output: Output, source: Path | None, out: Path | None, check: Path | None) -> None:
    """Write what a run found out about its model as a case file: constants, recipe, data, training, export, traps,
    parity.

    Every value names the record it comes from; what was not run says so. RUN is a run folder, finished or not, or the
    records that an earlier call kept (records/MODEL.json).
    """
    from parity.cases.keep import write_case
    from parity.cases.pages import case_page

    if out is not None and check is not None:
        raise click.UsageError("--out writes, --check compares: give one of them")
    if source is None:
        if check is None:
            raise click.UsageError("give a run folder, or --check with a folder of case files")
        _answer_check(output, check, _folder_faults(check))
        return
    records = _records(source)
    if check is not None:
        from parity.cases.keep import file_faults

        _answer_check(output, check, file_faults(check, case_page(records)))
    elif out is not None:
        files = write_case(records, out)
        document = {"model": records["model"], "date": records["date"], "files": [str(file) for file in files]}
        output.answer("case", document, "\n".join(map(str, files)))
    else:
        page = case_page(records)
        output.answer("case", {"model": records["model"], "page": page, "records": records}, page.rstrip("\n"))


def _records(source: Path) -> dict[str, Any]:
    from parity.cases.keep import shown_records
    from parity.cases.records import collect

    return shown_records(source) if source.suffix == ".json" else collect(RunFolder.existing(source))


def _folder_faults(folder: Path) -> list[str]:
    from parity.cases.keep import folder_faults

    if not folder.is_dir():
        raise click.UsageError(f"{folder} is no folder: a single page is held against RUN")
    return folder_faults(folder)


def _answer_check(output: Output, checked: Path, faults: list[str]) -> None:
    document = {"checked": str(checked), "passed": not faults, "faults": faults}
    output.answer(
        "case", document, f"{checked}: " + (counted(len(faults), "fault") if faults else "as the records say")
    )
    if faults:
        hint = "`mlx-sentis case RUN --out DIR` writes the pages again; numbers are changed by running, not by hand"
        raise all_at_once(f"{checked}: not what the records say:", faults, hint=hint, kind=BudgetMissedError)
