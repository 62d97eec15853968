"""Which form a row or a table has by its keys, with `--map FIELD=COLUMN` where they have other names.

With a map the form is the one that has all mapped fields; what it needs besides must stand under its own name.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from mlx_sentis.prepare.formats import FORMS, Form, form_of, listed, wanted
from weights_bridge.errors import StageError, UsedWronglyError, all_at_once, unknown_name

MAPPED_FORMS = tuple(form for form in FORMS.values() if form.name != "bfcl")  # BFCL is what its files are
FIELDS = tuple(dict.fromkeys(field for form in MAPPED_FORMS for field in form.fields))
MAP_FORM = "data.map takes FIELD=COLUMN, for example user=question"
# What columns are mostly called that hold a field; only ever suggested, never assumed.
SYNONYMS = {
    "user": ("question", "query", "request", "utterance", "input", "human", "ask"),
    "assistant": ("answer", "response", "reply", "target", "output", "bot"),
    "call": ("answers", "tool_call", "function_call", "ground_truth"),
}


def read_map(entries: Iterable[str]) -> dict[str, str]:
    """Return field to column of `FIELD=COLUMN` entries.

    Raises:
        UsedWronglyError: an entry of another form, a field that no form has, or one that is mapped twice.
    """
    mapping: dict[str, str] = {}
    for entry in entries:
        field, equals, column = (part.strip() for part in entry.partition("="))
        if not (field and equals and column):
            raise UsedWronglyError(f"map {entry!r}: wanted FIELD=COLUMN", hint=MAP_FORM)
        if field not in FIELDS:
            raise unknown_name("field", field, FIELDS, error=UsedWronglyError, also=f"; {MAP_FORM}")
        if field in mapping:
            raise UsedWronglyError(f"map {entry!r}: {field} is mapped to {mapping[field]} already", hint=MAP_FORM)
        mapping[field] = column
    return mapping


def renamed(value: dict[str, Any], mapping: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with its columns under the names of their fields.

    Raises:
        ValueError: a mapped column is not there.
    """
    if missing := [column for column in mapping.values() if column not in value]:
        raise ValueError(f"no {', '.join(missing)} in this row (data.map), found {listed(value)}")
    taken = set(mapping.values())
    rest = {key: item for key, item in value.items() if key not in taken and key not in mapping}
    return rest | {field: value[column] for field, column in mapping.items()}


def mapped_form(where: str, keys: Sequence[str], mapping: Mapping[str, str], name: str | None) -> Form:
    """Return the form that a map makes of rows with these keys.

    Args:
        where: the file, for errors.
        keys: columns, or the keys of the first rows.
        mapping: field to column.
        name: the form to think of; None is all.

    Raises:
        StageError: a column that is not there, fields of no common form, or a field that is needed and not mapped.
    """
    if missing := [column for column in mapping.values() if column not in keys]:
        faults = [str(unknown_name("column", column, keys)).replace("\n  hint:", ";") for column in missing]
        raise all_at_once(f"{where}: data.map names columns that are not there:", faults, hint=MAP_FORM)
    forms = [form for form in MAPPED_FORMS if name in (None, form.name) and set(mapping) <= set(form.fields)]
    if not forms:
        what = f"no format has the fields {', '.join(mapping)}" if name is None else f"{wanted(name)} lacks one of them"
        raise StageError(f"{where}: data.map gives {', '.join(mapping)}, {what}", hint=f"rows are {wanted()}")
    taken = set(mapping.values())
    have = {*mapping, *(key for key in keys if key not in taken)}
    if fitting := next((form for form in forms if form.fits(have)), None):
        return fitting
    lacks = _lacks(forms, mapping, have)
    flags = [" ".join(f"--map {field}=COLUMN" for field in one) for one in lacks]
    needed = " or ".join(" and ".join(one) for one in lacks)
    hint = f"{', or '.join(flags)}; columns: {', '.join(keys)}"
    raise StageError(f"{where}: {', '.join(mapping)} mapped, {needed} needed too", hint=hint)


def _lacks(forms: Sequence[Form], mapping: Mapping[str, str], have: set[str]) -> list[list[str]]:
    """Return what each form that a map can mean needs besides, those that need the least."""
    found = [
        [key for key in needs if key not in have] for form in forms for needs in form.needs if set(mapping) & set(needs)
    ] or [[forms[0].needs[0][0]]]
    least = min(map(len, found))
    return [one for at, one in enumerate(found) if len(one) == least and one not in found[:at]]


def named_form(where: str, columns: Sequence[str], name: str | None) -> Form:
    """Return the form of a table by its columns' names.

    Raises:
        StageError: no form has them.
    """
    if found := form_of(columns, name):
        return found
    meant = suggestion(tuple(columns)) if name is None else ""
    hint = f"{meant or 'name them: --map user=COLUMN --map assistant=COLUMN'}, or rename them in the file"
    raise StageError(f"{where}: found {listed(columns)}, wanted {wanted(name)}", hint=hint)


def unrecognised(keys: Iterable[str], name: str | None) -> str:
    """Return why a row with these keys cannot be read, with the map that is probably meant."""
    meant = suggestion(tuple(keys)) if name is None else ""
    return f"found {listed(keys)}, wanted {wanted(name)}" + (f"; {meant}" if meant else "")


@lru_cache(maxsize=256)  # all rows of a file mostly have the same keys
def suggestion(keys: tuple[str, ...]) -> str:
    """Return a map that is probably meant, the empty text when none comes to mind."""
    lowered = {key.lower().strip(): key for key in keys}
    if near := {field: lowered[field] for form in MAPPED_FORMS for field in form.fields if field in lowered}:
        exact = [form for form in MAPPED_FORMS if form.fits(near)]
        if exact:  # only upper and lower case differ
            return _as_flags({field: near[field] for field in exact[0].fields if field in near})
    by_synonym = {
        field: next((lowered[word] for word in (field, *words) if word in lowered), "")
        for field, words in SYNONYMS.items()
    }
    for second in ("call", "assistant"):
        if by_synonym["user"] and by_synonym[second]:
            return _as_flags({"user": by_synonym["user"], second: by_synonym[second]})
    close = {field: difflib.get_close_matches(field, lowered, n=1, cutoff=0.75) for field in FIELDS}
    near = {field: lowered[found[0]] for field, found in close.items() if found}
    likely = next((form for form in MAPPED_FORMS if form.fits(near)), None)
    return _as_flags({field: near[field] for field in likely.fields if field in near}) if likely else ""


def _as_flags(mapping: Mapping[str, str]) -> str:
    flags = " ".join(
        f"--map {shlex.quote(f'{field}={column}')}" for field, column in mapping.items() if field != column
    )
    return f"perhaps {flags}" if flags else ""
