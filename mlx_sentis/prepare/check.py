"""`check-data`: what can be said of data without a model, for texts and for manifests of audio and of boxes."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlx_sentis.prepare import audio, boxes
from mlx_sentis.prepare.facts import (
    bad_row_facts,
    class_counts,
    contradiction_facts,
    near_duplicate_facts,
    remark_facts,
)
from mlx_sentis.prepare.findings import finding_lines
from mlx_sentis.prepare.media import Manifest, find_manifest, media_rows
from mlx_sentis.prepare.report import LISTED, section, table, text_parts
from mlx_sentis.prepare.sources import named_place
from mlx_sentis.prepare.splits import exact_leaks, repeats
from mlx_sentis.prepare.survey import LeftOut, Survey, progress, surveyed
from mlx_sentis.prepare.tools import SYSTEM_BLOCK
from weights_bridge.errors import StageError, UsedWronglyError, counted
from weights_bridge.settings import DataSettings

HINT = "the report names each of them"
TEXT_HINT = f"{HINT}; `prepare` would refuse them too"


def check_data(
    source: str, settings: DataSettings, *, box_form: boxes.BoxForm | None = None, bar: bool = False
) -> dict[str, Any]:
    """Return what is to be said of data.

    Args:
        source: a file or folder of rows or of a manifest, or a shipped set's name.
        settings: how rows are read.
        box_form: what the four numbers of a box mean; None is two corners (`xyxy`).
        bar: show a progress bar.

    Returns:
        `kind` (`text`, `audio` or `boxes`), counts, `findings`, and `unusable`, how many rows cannot be used.

    Raises:
        UsedWronglyError: an empty name, or a box form for rows without boxes.
        StageError: no such source, or nothing in it that can be read.
    """
    path = named_place(source)
    manifest = find_manifest(path) if path.exists() else None
    kind = manifest.kind if manifest else "text"
    if box_form is not None and kind != "boxes":
        raise UsedWronglyError(f"--box-form {box_form}: {source} has {kind}, no boxes", hint="leave --box-form out")
    facts = _media_facts(manifest, box_form or "xyxy", bar) if manifest else _text_facts(source, settings, bar)
    return {"source": path.name if path.exists() else source} | facts


def _media_facts(manifest: Manifest, box_form: boxes.BoxForm, bar: bool) -> dict[str, Any]:
    scan = audio.AudioScan() if manifest.kind == "audio" else boxes.BoxScan(box_form)
    blocking = audio.BLOCKING if manifest.kind == "audio" else boxes.BLOCKING
    unusable = 0
    for row in progress(media_rows(manifest), f"looking at {manifest.kind}", bar):
        before = scan.findings.count(blocking)
        scan.add(row)
        unusable += scan.findings.count(blocking) > before
    return scan.facts() | {"unusable": unusable}


def _text_facts(source: str, settings: DataSettings, bar: bool) -> dict[str, Any]:
    settings = dataclasses.replace(settings, skip_bad=True)  # they are counted and listed here
    with surveyed(source, SYSTEM_BLOCK, settings, Path(tempfile.gettempdir()), bar=bar, is_cut=False) as survey:
        return _facts_of(survey, settings)


def _facts_of(survey: Survey, settings: DataSettings) -> dict[str, Any]:
    twice, contradictions = repeats(survey.index, survey.splits)
    counts, leaks = survey.counts(), exact_leaks(survey.index)
    return {
        "kind": "text",
        "format": {"name": survey.source.format, "why": survey.source.why},
        "splits": {split: {"rows": counts[split]} for split in survey.wanted},
        "classes": class_counts(survey, np.ones(len(survey.index), bool)),
        "characters": survey.sanity.lengths(),
        "blank_lines": dict(survey.source.blank_lines),
        "remarks": remark_facts(survey.source.remarks),
        "bad_rows": bad_row_facts(survey.bad, LeftOut()),
        "repeated_rows": {split: twice[split] for split in survey.wanted},
        "leaks": {"count": len(leaks), "listed": leaks[:LISTED]},
        "contradictions": contradiction_facts(survey, contradictions),
        "near_duplicates": near_duplicate_facts(survey, settings.near_duplicate),
        "findings": [finding.as_json() for finding in survey.sanity.findings()],
        "languages": survey.languages.as_json(),
        "unusable": survey.bad.total + len(leaks),
    }


def require_usable(facts: Mapping[str, Any]) -> None:
    """Refuse data of which rows cannot be used.

    Raises:
        StageError: how many.
    """
    if facts["unusable"]:
        raise StageError(
            f"{facts['source']}: {counted(facts['unusable'], 'row')} cannot be used as they are",
            hint=TEXT_HINT if facts["kind"] == "text" else HINT,
        )


def check_text(facts: Mapping[str, Any]) -> str:
    """Return the findings of a check as Markdown."""
    body = {"text": _text_body, "audio": _audio_body, "boxes": _box_body}[facts["kind"]](facts)
    return "\n\n".join([f"# Check of {facts['source']}", *body])


def _text_body(facts: Mapping[str, Any]) -> list[str]:
    lengths = [[what, *one.values()] for what, one in facts["characters"].items()]
    kinds = list(dict.fromkeys(kind for counts in facts["classes"].values() for kind in counts))[:LISTED]
    classes = [[kind, *(counts.get(kind, 0) for counts in facts["classes"].values())] for kind in kinds]
    rows = ", ".join(f"{split} {one['rows']}" for split, one in facts["splits"].items())
    leaks, remarks = facts["leaks"], facts["remarks"]
    odd = [f"{one['source']}: {one['remark']}" for one in remarks["listed"]]
    odd += [f"{file}: {counted(count, 'blank line')} skipped" for file, count in facts["blank_lines"].items()]
    return [
        f"Read as `{facts['format']['name']}` ({facts['format']['why']}). Rows: {rows}.",
        table(["characters", "least", "median", "most"], lengths),
        table(["class", *facts["splits"]], classes),
        *section(f"In two splits: {leaks['count']}", leaks["listed"] if leaks["count"] else []),
        *text_parts(facts),
        *section("To look at", odd),
    ]


def _audio_body(facts: Mapping[str, Any]) -> list[str]:
    seconds = facts["seconds"]
    rates = ", ".join(f"{rate} Hz in {count}" for rate, count in facts["sample_rates"].items())
    channels = ", ".join(f"{number} in {count}" for number, count in facts["channels"].items())
    lines = [f"{counted(facts['rows'], 'row')}, {facts['files_read']} files read, {seconds['in all'] / 60:.1f} minutes"]
    if "median" in seconds:
        lines.append(f"seconds: {seconds['least']} to {seconds['most']}, median {seconds['median']}")
        lines.append(f"sample rates: {rates}; channels: {channels}")
    return ["\n".join(f"- {line}" for line in lines), *section("Findings", finding_lines(facts["findings"]))]


def _box_body(facts: Mapping[str, Any]) -> list[str]:
    what = f"{counted(facts['rows'], 'row')}, {facts['boxes']} boxes, read as {facts['box_form']}."
    classes = [[name, count] for name, count in facts["classes"].items()][:LISTED]
    return [
        what,
        table(["class", "boxes"], classes),
        *section("Findings", finding_lines(facts["findings"], one="box or row", several="boxes or rows")),
    ]
