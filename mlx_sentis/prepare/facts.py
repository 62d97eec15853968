"""What the prepared data looks like, in figures for machines: `data/dataset.json`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mlx_sentis.prepare.index import place_of
from mlx_sentis.prepare.nearest import nearest_pairs
from mlx_sentis.prepare.plots import length_bins
from mlx_sentis.prepare.sanity import spread
from mlx_sentis.prepare.sources import SPLITS
from mlx_sentis.prepare.splits import repeats
from mlx_sentis.prepare.survey import LeftOut, Survey
from mlx_sentis.prepare.tools import NONE
from mlx_sentis.prepare.writing import Tally
from weights_bridge.compare import Array
from weights_bridge.errors import counted
from weights_bridge.settings import DataSettings

SCHEMA = "mlx-sentis/dataset/1"
LISTED = 100  # pairs and rows that are listed; all are counted
NAMED = 12  # tools that one note names


def dataset_facts(
    survey: Survey,
    tally: Tally,
    settings: DataSettings,
    name: str,
    positions: int | None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return `dataset.json`.

    Args:
        survey: the first reading.
        tally: what was counted in the second.
        settings: how the data was shaped.
        name: what the source is called.
        positions: how many tokens the model can see, None where its files do not say.
        notes: what is to be said of the model.
    """
    twice, contradictions = repeats(survey.index, survey.splits)
    lengths = lengths_by_split(survey, tally)
    every = tally.tokens[tally.tokens > 0]
    prefix = len(tally.prefix or ())
    source = survey.source
    return {
        "schema": SCHEMA,
        "source": name,
        "format": {"name": source.format, "why": source.why},
        "splits": {split: _split_facts(split, lengths[split], tally) for split in survey.wanted},
        "tools": tally.tools,
        "shared_prefix_tokens": prefix,
        "shared_prefix_share": round(prefix * len(every) / int(every.sum()), 4),
        "longest_row_tokens": int(every.max()),
        "lengths": length_counts(lengths),
        "window": _window_facts(tally, settings, positions),
        "seed": settings.seed,
        "classes": class_counts(survey, tally.tokens > 0),
        "blank_lines": dict(source.blank_lines),
        "remarks": remark_facts(source.remarks),
        "bad_rows": bad_row_facts(survey.bad, tally.bad),
        "repeated_rows": {split: twice[split] for split in survey.wanted},
        "contradictions": contradiction_facts(survey, contradictions),
        "near_duplicates": near_duplicate_facts(survey, settings.near_duplicate),
        "nearest_held_out": nearest_facts(survey, tally.tokens > 0),
        "findings": [finding.as_json() for finding in survey.sanity.findings()],
        "languages": survey.languages.as_json(),
        "edited_turns": tally.edited_turns,
        "notes": [
            *survey.notes,
            *missing_classes(survey, tally),
            *lost_classes(survey, tally),
            *unused_tools(survey, tally),
            *unscored_rows(tally),
            *_mark_notes(tally),
            *notes,
        ],
    }


def lengths_by_split(survey: Survey, tally: Tally) -> dict[str, Array]:
    """Return split to the tokens of its written rows, [rows] uint32."""
    written = tally.tokens > 0
    return {split: tally.tokens[written & (survey.splits == SPLITS.index(split))] for split in survey.wanted}


def _split_facts(split: str, lengths: Array, tally: Tally) -> dict[str, Any]:
    return {
        "file": f"{split}.jsonl",
        "rows": len(lengths),
        "sha256": tally.files[split],
        "tokens": int(lengths.sum()),
        "trained_tokens": tally.trained.get(split, 0),
        "row_tokens": spread(lengths),
    }


def length_counts(lengths: Mapping[str, Array]) -> dict[str, Any]:
    """Return the histogram of the picture: edges in tokens, and split to rows from each edge up to the next."""
    every = np.concatenate([*lengths.values()])
    edges = length_bins(int(every.min()), int(every.max()))
    rows = {split: np.histogram(found, edges)[0].tolist() for split, found in lengths.items()}
    return {"edges": edges.tolist(), "rows": rows}


def _window_facts(tally: Tally, settings: DataSettings, positions: int | None) -> dict[str, Any]:
    dropped = tally.dropped.as_json()
    return {
        "max_tokens": settings.max_tokens,
        "too_long": settings.too_long,
        "cut_rows": tally.cut_rows,
        "dropped_rows": dropped["count"],
        "dropped": dropped["listed"][:LISTED],
        "model_positions": positions,
        "rows_over_positions": int((tally.tokens > positions).sum()) if positions else 0,
    }


def class_counts(survey: Survey, counted_rows: Array) -> dict[str, dict[str, int]]:
    """Return split to class (tool, `none`, `text`) to its number of rows, the most frequent first.

    Args:
        survey: the first reading.
        counted_rows: [rows] bool.
    """
    found: dict[str, dict[str, int]] = {}
    kinds, names = survey.index.kind_numbers, survey.index.kinds
    for split in survey.wanted:
        rows = counted_rows & (survey.splits == SPLITS.index(split))
        numbers = np.bincount(kinds[rows], minlength=len(names)).tolist()
        counts = {name: number for name, number in zip(names, numbers, strict=True) if number}
        found[split] = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return found


def missing_classes(survey: Survey, tally: Tally) -> list[str]:
    """Name tools and classes that are trained and never tested, or tested and never trained."""
    counts = class_counts(survey, tally.tokens > 0)
    trained, held = (_classes(counts.get(split, {})) for split in ("train", "holdout"))
    return [
        *_named(sorted(trained - held), "trained, but no held-out row has it", "are trained, but no held-out row has"),
        *_named(
            sorted(held - trained), "held out, but no training row has it", "are held out, but no training row has"
        ),
    ]


def lost_classes(survey: Survey, tally: Tally) -> list[str]:
    """Name classes whose rows were all left out."""
    every = class_counts(survey, np.ones(len(survey.index), bool))
    kept = class_counts(survey, tally.tokens > 0)
    lost = set().union(*every.values()) - set().union(*kept.values())
    return _named(sorted(lost), "all its rows were left out", "were all left out, every row of")


def unused_tools(survey: Survey, tally: Tally) -> list[str]:
    """Name tools that no row calls, or say that none calls any."""
    names = {tool["function"]["name"] for tool in tally.tools}
    if names and not tally.called and set().union(*class_counts(survey, tally.tokens > 0).values()) == {NONE}:
        return ["every row's right answer is no call: the model learns to call nothing"]
    unused = sorted(names - tally.called) if tally.called else []
    return _named(unused, "a tool that no row calls", "are tools, and no row calls")


def unscored_rows(tally: Tally) -> list[str]:
    """Say how many held-out rows have several calls as their answer, which no single right answer stands for."""
    rows = counted(tally.several_calls, "held-out row")
    return [f"{rows} with several calls in one answer: `eval` cannot score them"] if tally.several_calls else []


def _classes(counts: Iterable[str]) -> set[str]:
    return {tool for kind in counts for tool in kind.split("+")}  # several calls in one answer


def _named(kinds: Sequence[str], one: str, many: str) -> list[str]:
    if len(kinds) <= NAMED:
        return [f"{kind}: {one}" for kind in kinds]
    return [f"{len(kinds)} classes {many} them: {', '.join(kinds[:NAMED])}, …"]


def remark_facts(remarks: Mapping[str, str]) -> dict[str, Any]:
    """Return what is odd about rows that were read all the same."""
    first = itertools.islice(remarks.items(), LISTED)
    listed = [{"source": place_of(source), "remark": remark} for source, remark in first]
    return {"count": len(remarks), "listed": listed}


def bad_row_facts(read: LeftOut, rendered: LeftOut) -> dict[str, Any]:
    """Return the rows that could not be read and those that could not be trained as one list."""
    both = LeftOut(read.by_file + rendered.by_file, [*read.listed, *rendered.listed])
    empty = sum("empty" in fault.reason for fault in both.listed)
    return both.as_json() | {"empty": empty}


def contradiction_facts(survey: Survey, pairs: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return how often one prompt has two answers, and where."""
    listed = []
    for first, second in pairs[:LISTED]:
        (source, text, answer), (other, _, again) = survey.index.shown(first), survey.index.shown(second)
        listed.append({"text": text, "first": {"source": place_of(source), "answer": answer}})
        listed[-1]["second"] = {"source": place_of(other), "answer": again}
    return {"count": len(pairs), "listed": listed}


def near_duplicate_facts(survey: Survey, threshold: float) -> dict[str, Any]:
    """Return how many rows say almost the same as another, the largest such group, and pairs across given splits."""
    labels, index = survey.clusters.labels, survey.index
    _, firsts = np.unique(index.texts, return_index=True)
    groups, sizes = np.unique(labels[firsts], return_counts=True)
    near = groups[sizes > 1]  # groups of different texts
    rows = np.bincount(labels, minlength=len(labels))
    facts: dict[str, Any] = {"threshold": threshold, "complete": survey.clusters.complete}
    facts |= {"groups": len(near), "rows": int(rows[near].sum()), "largest": None}
    if len(near):
        largest = int(near[rows[near].argmax()])
        source, text, _ = index.shown(largest)
        facts["largest"] = {"rows": int(rows[largest]), "source": place_of(source), "text": text}
    return facts | {"leaks": _leaks(survey)}


def nearest_facts(survey: Survey, used: Array) -> list[dict[str, Any]]:
    """Return the held-out texts that are nearest to a trained one, with both; empty where nothing was compared.

    Args:
        survey: the first reading.
        used: [rows] bool, rows that were written.
    """
    if not survey.index.near:
        return []
    listed = []
    for pair in nearest_pairs(survey.index, survey.splits, used):
        sides = {}
        for name, row in (("holdout", pair.second), ("train", pair.first)):
            source, text, _ = survey.index.shown(row)
            sides[name] = {"source": place_of(source), "text": text}
        listed.append({"similarity": round(pair.similarity, 3)} | sides)
    return listed


def _leaks(survey: Survey) -> dict[str, Any]:
    listed = []
    for pair in survey.clusters.leaks[:LISTED]:
        sides = {}
        for name, row in (("earlier", pair.first), ("later", pair.second)):
            source, text, _ = survey.index.shown(row)
            sides[name] = {"split": SPLITS[survey.splits[row]], "source": place_of(source), "text": text}
        listed.append(sides | {"similarity": round(pair.similarity, 3)})
    return {"count": len(survey.clusters.leaks), "listed": listed}


def _mark_notes(tally: Tally) -> list[str]:
    return [f"the template's own marks: {note}" for note in tally.marks.notes()]
