"""What a source's rows are taken for, and why: asked for, mapped, or recognised by the keys of its first rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlx_sentis.prepare.formats import FORMS, form_of
from mlx_sentis.prepare.formats.columns import mapped_form, named_form
from mlx_sentis.prepare.formats.containers import Part

PEEKED = 256  # rows that a form is recognised by


def form_of_part(part: Part, format: str, mapping: Mapping[str, str]) -> str | None:
    """Return the form that every row of a part must have; None where each row has its own."""
    name = format if format in FORMS else "bfcl" if part.kind == "bfcl" else None
    if mapping:
        keys = part.columns or tuple(dict.fromkeys(key for value in _peeked(part) for key in value))
        return mapped_form(part.shown, keys, mapping, name).name
    return named_form(f"{part.shown}:1", part.columns, name).name if part.columns else name


def _peeked(part: Part) -> Iterator[dict[str, Any]]:
    return itertools.islice((item for _, item in part.items() if isinstance(item, dict)), PEEKED)


def recognised(part: Part, form: str | None, format: str, mapping: Mapping[str, str]) -> tuple[str, str]:
    """Return a source's format and what it was recognised by, in words for a user."""
    values = list(_peeked(part))
    counts = Counter(found.name if (found := form_of(value, form)) else "unrecognised" for value in values)
    if format != "auto":
        name, why = format, ["as asked for"]
    elif part.kind in ("csv", "tsv", "text", "bfcl", "datasets"):
        name, why = part.kind, []
    else:
        name, why = (form or next(iter(counts)), []) if form or len(counts) == 1 else ("mixed", [])
    if mapping:
        why.append("mapped: " + ", ".join(f"{field} is {column}" for field, column in mapping.items()))
    elif part.kind not in ("text", "bfcl"):
        why.append(_by_keys(part, form, values, counts))
    return name, "; ".join(filter(None, [*why, part.note]))


def _by_keys(part: Part, form: str | None, values: Sequence[Mapping[str, Any]], counts: Counter[str]) -> str:
    if len(counts) > 1 and form is None:
        several = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        return f"of the first {len(values)} rows: {several}; each is read by its own form"
    known = FORMS.get(form or next(iter(counts), ""))
    if known is None:
        return "no row has the keys of a known form"
    found = list(part.columns) or list(dict.fromkeys(key for value in values for key in value))
    what = "columns" if part.columns else "keys"
    by = f", {known.name} rows" if part.kind not in ("json", "jsonl") else ""
    return f"{what} {', '.join(key for key in found if key in known.fields)}{by}"
