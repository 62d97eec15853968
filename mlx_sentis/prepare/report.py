"""What the prepared data looks like, in words: `data/report.md` of a `data/dataset.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlx_sentis.prepare.findings import finding_lines
from weights_bridge.errors import counted

LISTED = 100  # rows of a table, and bad rows
SHOWN = 60  # characters of a text
NO_WINDOW = {"dropped": (), "dropped_rows": 0}  # nothing was tokenised
LARGE_SHARE = 0.2  # of the rows, from which one group of near-duplicates is worth a remark


def report_text(facts: Mapping[str, Any]) -> str:
    """Return `report.md` of a `dataset.json`."""
    parts = [
        f"# Data: {facts['source']}",
        f"Read as `{facts['format']['name']}` ({facts['format']['why']}).",
        *_size_parts(facts),
        "## Rows by class\n\n`none` is a row whose right answer is no call, `text` one whose last turn is prose.",
        table(["class", *facts["splits"]], _class_rows(facts)),
        *text_parts(facts),
        *section("To look at", _things_to_look_at(facts)),
    ]
    return "\n\n".join(parts) + "\n"


def text_parts(facts: Mapping[str, Any]) -> list[str]:
    """Return the sections that need no tokenizer: what is alike, signs of mistakes, languages, rows left out."""
    return [
        *_alike_parts(facts),
        *_nearest_parts(facts),
        *section("Signs of a wrong mapping or a damaged text", finding_lines(facts["findings"])),
        *_language_parts(facts),
        *_left_out_parts(facts),
    ]


def _size_parts(facts: Mapping[str, Any]) -> list[str]:
    head = ["split", "rows", "tokens", "trained tokens", "row: least", "median", "most", "repeated"]
    body = []
    for name, one in facts["splits"].items():
        counts = (one[key] for key in ("rows", "tokens", "trained_tokens"))
        body.append([name, *counts, *one["row_tokens"].values(), facts["repeated_rows"][name]])
    longest, window = facts["longest_row_tokens"], facts["window"]
    share = f"{100 * facts['shared_prefix_share']:.0f} % of all tokens"
    over = window["cut_rows"] + window["dropped_rows"]
    what = f"{window['cut_rows']} cut, {window['dropped_rows']} left out" if over else "none"
    return [
        table(head, body),
        f"All rows begin with the same {facts['shared_prefix_tokens']} tokens ({share}); the longest row has {longest}."
        f" Rows over data.max_tokens = {window['max_tokens']}: {what}. Seed {facts['seed']}.",
        "![How long the rows are](lengths.png)",
    ]


def _class_rows(facts: Mapping[str, Any]) -> list[list[Any]]:
    kinds = list(dict.fromkeys(kind for counts in facts["classes"].values() for kind in counts))
    rows = [[kind, *(facts["classes"][name].get(kind, 0) for name in facts["splits"])] for kind in kinds]
    if len(rows) <= LISTED:
        return rows
    rest = [sum(row[at] for row in rows[LISTED:]) for at in range(1, len(rows[0]))]
    return [*rows[:LISTED], [f"{len(rows) - LISTED} more", *rest]]


def _alike_parts(facts: Mapping[str, Any]) -> list[str]:
    near, twice = facts["near_duplicates"], sum(facts["repeated_rows"].values())
    lines = [f"rows that repeat an earlier one of their split, answer and all: {twice}"]
    if near["threshold"] < 1:
        lines.append(
            f"rows that say almost the same as another (data.near_duplicate = {near['threshold']:g}): {near['rows']}, "
            f"in {counted(near['groups'], 'group')}; a group is never cut through"
        )
    if (largest := near["largest"]) and largest["rows"] > 2:
        lines.append(
            f"the largest group has {largest['rows']} rows, one is {largest['source']} {_line(largest['text'])}"
        )
    lines += _leak_lines(near["leaks"])
    found = facts["contradictions"]
    lines += [
        f"{one['first']['source']} and {one['second']['source']} answer {_line(one['text'])} differently: "
        f"{_line(one['first']['answer'])} and {_line(one['second']['answer'])}"
        for one in found["listed"]
    ]
    lines += _rest(found["count"], len(found["listed"]), "contradictions")
    return section("Repeats, near-duplicates, contradictions", lines)


def _nearest_parts(facts: Mapping[str, Any]) -> list[str]:
    """Return the held-out texts nearest to a trained one, for people to judge how new the held-out phrasings are."""
    if not (found := facts.get("nearest_held_out")):  # `check-data` cuts nothing
        return []
    what = "Similarity is that of words and pairs of words (Jaccard): 1 says the same, 0 shares no word."
    body = [
        [
            f"{one['similarity']:.2f}",
            *(f"{one[side]['source']} {_line(one[side]['text'])}" for side in ("holdout", "train")),
        ]
        for one in found
    ]
    heading = f"## Held-out texts nearest to a trained one\n\n{what}"
    return [heading, table(["similarity", "held out", "trained"], body)]


def _leak_lines(leaks: Mapping[str, Any]) -> list[str]:
    lines = [
        f"**{one['later']['split']} and {one['earlier']['split']} say almost the same** ({one['similarity']:.2f}): "
        f"{one['later']['source']} {_line(one['later']['text'])} and {one['earlier']['source']} "
        f"{_line(one['earlier']['text'])}"
        for one in leaks["listed"]
    ]
    return lines + _rest(leaks["count"], len(leaks["listed"]), "near-duplicates across splits")


def _language_parts(facts: Mapping[str, Any]) -> list[str]:
    found = facts["languages"]
    languages = ", ".join(f"{name} {count}" for name, count in found["languages"].items())
    scripts = ", ".join(f"{name} {100 * share:.1f} %" for name, share in list(found["scripts"].items())[:8])
    lines = [f"of {counted(found['sampled'], 'sampled text')}: {languages}", f"letters: {scripts or 'none'}"]
    return section("Languages of the users' texts", lines)


def _left_out_parts(facts: Mapping[str, Any]) -> list[str]:
    bad, window = facts["bad_rows"], facts.get("window", NO_WINDOW)
    lines = [f"{file}: {counted(count, 'bad row')}" for file, count in bad["by_file"].items()]
    lines += [f"{one['source']}: {one['reason']}" for one in bad["listed"][:LISTED]]
    lines += _rest(bad["count"], min(LISTED, len(bad["listed"])), "bad rows")
    lines += [f"{one['source']}: {one['reason']}" for one in window["dropped"]]
    lines += _rest(window["dropped_rows"], len(window["dropped"]), "rows over data.max_tokens")
    return section("Left out", lines)


def _things_to_look_at(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"{file}: {counted(count, 'blank line')} skipped" for file, count in facts["blank_lines"].items()]
    remarks = facts["remarks"]
    lines += [f"{one['source']}: {one['remark']}" for one in remarks["listed"]]
    lines += _rest(remarks["count"], len(remarks["listed"]), "remarks")
    if facts["edited_turns"]:
        turns = counted(facts["edited_turns"], "assistant turn")
        lines.append(f"{turns} lost text in rendering (the template edits them)")
    window = facts["window"]
    if over := window["rows_over_positions"]:
        lines.append(
            f"{counted(over, 'row')} of more tokens than the model has positions ({window['model_positions']})"
        )
    near, rows = facts["near_duplicates"], sum(one["rows"] for one in facts["splits"].values())
    if near["largest"] and near["largest"]["rows"] > LARGE_SHARE * rows:
        share = f"{100 * near['largest']['rows'] / rows:.0f} % of the rows"
        lines.append(f"one group of near-duplicates is {share}: a higher data.near_duplicate makes smaller groups")
    if not near["complete"]:
        lines.append("too many rows are alike to compare all of them: some near-duplicates may have been missed")
    return lines + list(facts["notes"])


def section(title: str, lines: Sequence[str]) -> list[str]:
    """Return a heading and its points, nothing where there are none."""
    if not lines:
        return []
    return [f"## {title}", "\n".join(line if line.startswith("  - ") else f"- {line}" for line in lines)]


def _rest(count: int, listed: int, what: str) -> list[str]:
    return [f"… and {count - listed} more {what}"] if count > listed else []


def _line(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown[:SHOWN] + ("…" if len(shown) > SHOWN else ""))


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
