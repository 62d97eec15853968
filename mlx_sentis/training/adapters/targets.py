"""Which modules are meant: names, patterns, ranges and regular expressions, and what is said when nothing is.

A pattern is one of
- `all-linear`: every module that can be adapted;
- a name or the dotted end of one: `q_proj`, `self_attn.q_proj`, `model.layers.0.self_attn.q_proj`;
- the same with `*` and `?`;
- the same with ranges of whole numbers, both ends included: `layers.[4-11].mlp.*`; no other brackets;
- `re:` and a regular expression that must match the whole name.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from weights_bridge.errors import all_at_once

ALL = "all-linear"
RANGE = re.compile(r"\[(\d+)-(\d+)\]")
Value = TypeVar("Value", int, float)


def choose(
    known: Sequence[str],
    targets: Iterable[str],
    exclude: Iterable[str] = (),
    why_not: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the known names that a target matches and no exclude does, in their order.

    Args:
        known: the names of all modules that can be adapted.
        targets: patterns.
        exclude: patterns.
        why_not: last name to the reason why such a module is not among the known.

    Raises:
        StageError: a pattern matches nothing, or nothing is left; all at once.
    """
    targets = list(targets)
    chosen, faults = _matched(known, targets, "targets")
    left_out, more = _matched(known, exclude, "exclude")
    faults += more
    ends = {target.rpartition(".")[2] for target in targets}
    faults += [f"{end}: {reason}" for end, reason in why_not.items() if end in ends]
    names = [name for name in known if name in chosen and name not in left_out]
    if not faults and not names:
        faults.append("exclude takes away every module that targets choose")
    if faults:
        raise all_at_once("adapter:", faults, hint=_hint(known))
    return names


def table_for(names: Sequence[str], table: Mapping[str, Value], common: Value, setting: str) -> dict[str, Value]:
    """Return name to value of the modules whose value a pattern changes; the first pattern that matches decides.

    Args:
        names: the trained modules.
        table: pattern to value.
        common: the value of all others.
        setting: the table's name, for the error.

    Raises:
        StageError: a pattern matches no trained module.
    """
    values: dict[str, Value] = {}
    faults = []
    for pattern, value in table.items():
        matched, more = _matched(names, [pattern], setting)
        faults += more
        for name in matched:
            values.setdefault(name, value)
    if faults:
        raise all_at_once("adapter:", faults, hint=_hint(names))
    return {name: values[name] for name in names if values.get(name, common) != common}


def grouped(names: Iterable[str]) -> list[str]:
    """Return names compactly, a line for each range of layers: `model.layers.[0-29]: self_attn.q_proj, mlp.up_proj`."""
    places: dict[tuple[str, str], list[int]] = {}
    lines = []
    for name in names:
        found = re.match(r"(.*?)\.(\d+)\.(.+)$", name)
        if found is None:
            lines.append(name)
        else:
            places.setdefault((found[1], found[3]), []).append(int(found[2]))
    shared: dict[str, list[str]] = {}
    for (start, end), indices in places.items():
        shared.setdefault(f"{start}.{_ranges(sorted(set(indices)))}", []).append(end)
    return lines + [f"{place}: {', '.join(ends)}" for place, ends in shared.items()]


def _ranges(indices: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return "[" + ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) + "]"


def _matched(known: Sequence[str], patterns: Iterable[str], setting: str) -> tuple[set[str], list[str]]:
    """Return what the patterns match, and the faults of those that match nothing."""
    chosen: set[str] = set()
    faults = []
    for pattern in patterns:
        if other := _other_brackets(pattern):
            faults.append(f"{setting}: {pattern!r}: {other} is no range; wanted [i-j], or a pattern for each number")
            continue
        try:
            matches = _matcher(pattern, known)
            matched = {name for name in known if matches(name)}
        except re.error as error:
            faults.append(f"{setting}: {pattern!r} is no regular expression: {error}")
            continue
        chosen |= matched
        if not matched:
            faults.append(f"{setting}: {pattern!r} matches no module{_nearest(pattern, known)}")
        elif beyond := _ends_beyond(pattern, known):
            faults.append(f"{setting}: {pattern!r} goes beyond the model, nothing matches {', '.join(beyond)}")
    return chosen, faults


def _other_brackets(pattern: str) -> str:
    """Return a bracket that is no range: as a set of characters, [11] would be layer 1 and [0-] layer 0."""
    found = None if pattern.startswith("re:") else re.search(r"\[[^\]]*\]?|\]", RANGE.sub("", pattern))
    return found[0] if found else ""


def _matcher(pattern: str, known: Sequence[str]) -> Callable[[str], bool]:
    """Return f(name) → whether the pattern matches one of the known names."""
    if pattern == ALL:
        return lambda name: True
    if pattern.startswith("re:"):
        expression = re.compile(pattern.removeprefix("re:"))
        return lambda name: expression.fullmatch(name) is not None
    expression = re.compile(f"(?:.*\\.)?{_expression(pattern, known)}", re.DOTALL)
    return lambda name: expression.fullmatch(name) is not None


def _expression(pattern: str, known: Sequence[str]) -> str:
    """Return a pattern as a regular expression; of a range only the numbers that names have, however long it is."""
    numbers = sorted({int(number) for name in known for number in re.findall(r"\d+", name)})
    pieces = RANGE.split(pattern)
    found = [_translated(pieces[0])]
    for low, high, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        first, last = sorted((int(low), int(high)))
        inside = "|".join(str(number) for number in numbers if first <= number <= last)
        found += [f"(?:{inside})" if inside else "(?!)", _translated(rest)]
    return "".join(found)


def _translated(piece: str) -> str:
    """Return `*` and `?` of a piece as a regular expression without an end of its own."""
    whole = fnmatch.translate(piece)  # (?s:…)\Z
    return whole[: whole.rindex(")") + 1]


def _ends(pattern: str) -> list[str]:
    """Return the pattern once for every combination of its ranges' first and last numbers."""
    pieces = RANGE.split(pattern)
    choices: list[list[str]] = [[pieces[0]]]
    for low, high, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        choices += [[str(number) for number in sorted({int(low), int(high)})], [rest]]
    return ["".join(combination) for combination in itertools.product(*choices)]


def _ends_beyond(pattern: str, known: Sequence[str]) -> list[str]:
    """Return the pattern at the ends of its ranges where nothing matches: a layer limit the model does not have."""
    if pattern.startswith("re:") or not RANGE.search(pattern):
        return []
    return [form for form in _ends(pattern) if not any(map(_matcher(form, known), known))]


def _nearest(pattern: str, known: Sequence[str]) -> str:
    dotted = pattern.count(".") + 1
    ends = {".".join(name.split(".")[-dotted:]) for name in known}
    near = difflib.get_close_matches(pattern, sorted(ends), n=3, cutoff=0.5)
    return f"; nearest: {', '.join(near)}" if near else ""


def _hint(known: Sequence[str]) -> str:
    last = sorted({name.rpartition(".")[2] for name in known})
    return f"known: {ALL}, {', '.join(last)}; patterns with *, layers.[0-3].*, or re:…"
