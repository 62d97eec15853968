"""What the prepared data looks like, in figures: `data/dataset.json` for machines, `data/report.md` for people."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mlx_sentis.prepare.masks import Prepared
from mlx_sentis.prepare.splits import class_counts, repeated

SCHEMA = "mlx-sentis/dataset/1"
Splits = Mapping[str, Sequence[Prepared]]


def dataset_facts(
    splits: Splits,
    files: Mapping[str, str],
    *,
    source: str,
    seed: int,
    blank_lines: Mapping[str, int],
    notes: list[str],
) -> dict[str, Any]:
    """Return `dataset.json`.

    Args:
        splits: split to prepared rows.
        files: split to the SHA-256 of its file.
        source: what the user gave.
        seed: of the cut.
        blank_lines: file to blank lines skipped.
        notes: what the cut has to say.
    """
    every = [row for rows in splits.values() for row in rows]
    repeats = {split: repeated([row.row for row in rows]) for split, rows in splits.items()}
    return {
        "schema": SCHEMA,
        "source": source,
        "splits": {split: _split_facts(split, rows, files[split]) for split, rows in splits.items()},
        "tools": distinct_tools(every),
        "shared_prefix_tokens": shared_prefix_tokens(every),
        "longest_row_tokens": max(len(row.ids) for row in every),
        "seed": seed,
        "classes": {split: class_counts([row.row for row in rows]) for split, rows in splits.items()},
        "blank_lines": dict(blank_lines),
        "repeated_rows": {split: count for split, (count, _) in repeats.items()},
        "edited_turns": sum(row.edited_turns for row in every),
        "notes": [*notes, *_missing_classes(splits), *(note for _, found in repeats.values() for note in found)],
    }


def _split_facts(split: str, rows: Sequence[Prepared], digest: str) -> dict[str, Any]:
    lengths = sorted(len(row.ids) for row in rows) or [0]
    return {
        "file": f"{split}.jsonl",
        "rows": len(rows),
        "sha256": digest,
        "tokens": sum(len(row.ids) for row in rows),
        "trained_tokens": sum(row.trained_tokens for row in rows),
        "row_tokens": {"least": lengths[0], "median": statistics.median_low(lengths), "most": lengths[-1]},
    }


def shared_prefix_tokens(rows: Sequence[Prepared]) -> int:
    """Return how many tokens all rows begin with alike. [0, shortest row]"""
    # The common prefix of a set is that of its least and its greatest member.
    least, most = min(row.ids for row in rows), max(row.ids for row in rows)
    return next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))


def distinct_tools(rows: Sequence[Prepared]) -> list[dict[str, Any]]:
    """Return every tool of the rows once, in order of appearance."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for row in rows:
        if id(row.row.tools) not in seen:  # rows of one file share their list
            seen.add(id(row.row.tools))
            found |= {json.dumps(tool, sort_keys=True): tool for tool in row.row.tools}
    return list(found.values())


def _missing_classes(splits: Splits) -> list[str]:
    """Name classes that are trained and never tested, or tested and never trained."""
    kinds = {split: {row.row.kind for row in rows} for split, rows in splits.items()}
    trained, held = kinds["train"], kinds.get("holdout", set())
    notes = [f"{kind}: trained, but no held-out row has it" for kind in sorted(trained - held)]
    return notes + [f"{kind}: held out, but no training row has it" for kind in sorted(held - trained)]


def report_text(facts: Mapping[str, Any]) -> str:
    """Return `report.md` of a `dataset.json`."""
    splits = facts["splits"]
    head = ["split", "rows", "tokens", "trained tokens", "row: least", "median", "most", "repeated"]
    body = [
        [
            name,
            one["rows"],
            one["tokens"],
            one["trained_tokens"],
            *one["row_tokens"].values(),
            facts["repeated_rows"][name],
        ]
        for name, one in splits.items()
    ]
    kinds = list(dict.fromkeys(kind for counts in facts["classes"].values() for kind in counts))
    classes = [[kind, *(facts["classes"][name].get(kind, 0) for name in splits)] for kind in kinds]
    longest, shared = facts["longest_row_tokens"], facts["shared_prefix_tokens"]
    parts = [
        f"# Data: {facts['source']}",
        _table(head, body),
        f"All rows begin with the same {shared} tokens; the longest row has {longest}. Seed {facts['seed']}.",
        "## Rows by class\n\n`none` is a row whose right answer is no call, `text` one without tools.",
        _table(["class", *splits], classes),
        *_remarks(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _remarks(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"{file}: {count} blank lines skipped" for file, count in facts["blank_lines"].items()]
    if facts["edited_turns"]:
        lines.append(f"{facts['edited_turns']} assistant turns lost text in rendering (the template edits them)")
    lines += facts["notes"]
    return ["## To look at", "\n".join(f"- {line}" for line in lines)] if lines else []


def _table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
