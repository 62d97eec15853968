"""A pattern in other words: every spelling that the facts list, one or several at once, each with what it says."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from converters.fusions.patterns import Node, parsed

SPELLINGS_AT_ONCE = 3


@dataclass(frozen=True)
class Reason:
    """What keeps a pattern from matching.

    Attributes:
        why: found and wanted.
        mend: how to write it.
        node: where, empty for the whole.
    """

    why: str
    mend: str
    node: str = ""


@functools.cache
def variants(text: str, spellings: tuple[tuple[str, str, str, str], ...]) -> list[tuple[Node, tuple[Reason, ...]]]:
    """Return a pattern in all its spellings, the pattern itself first, each with its reasons."""
    found: dict[str, tuple[Node, tuple[Reason, ...]]] = {text: (parsed(text), ())}
    begun = list(found.values())
    for _ in range(SPELLINGS_AT_ONCE):
        made = []
        for root, reasons in begun:
            for form, other, why, mend in spellings:
                for respelled in _respelled(root, parsed(form), parsed(other)):
                    if str(respelled) not in found and str(respelled) != str(parsed(text)):
                        found[str(respelled)] = (respelled, (*reasons, Reason(why, mend)))
                        made.append(found[str(respelled)])
        begun = made
    return list(found.values())


def _respelled(root: Node, form: Node, other: Node) -> Iterator[Node]:
    """Yield a pattern with one of the places that have a form written in another."""
    for node in root.walk():
        bound: dict[Node, Node] = {}
        if _unifies(form, node, bound):
            names = {placeholder.name: made for placeholder, made in bound.items()}
            yield _with(root, node, _filled(other, names), {})


def _unifies(form: Node, node: Node, bound: dict[Node, Node]) -> bool:
    if form.name:
        return bound.setdefault(form, node) is node
    if form.number is not None:
        return node.number is not None and type(node.number) is type(form.number) and node.number == form.number
    if form.op != node.op or len(form.inputs) != len(node.inputs) or dict(form.literals) != dict(node.literals):
        return False
    return all(_unifies(a, b, bound) for a, b in zip(form.inputs, node.inputs, strict=True))


def _filled(node: Node, names: dict[str, Node]) -> Node:
    if node.name:
        return names[node.name]
    return replace(node, inputs=tuple(_filled(one, names) for one in node.inputs))


def _with(node: Node, old: Node, new: Node, done: dict[Node, Node]) -> Node:
    """Return a pattern with one node exchanged; what is shared stays shared."""
    if node is old:
        return new
    if node not in done:
        changed = tuple(_with(one, old, new, done) for one in node.inputs)
        same = all(a is b for a, b in zip(changed, node.inputs, strict=True))
        done[node] = node if same else replace(node, inputs=changed)
    return done[node]
