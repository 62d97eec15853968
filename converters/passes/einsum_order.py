"""Einsum with its output labels, and without an ellipsis that stands for several ranks.

Why: without `->` Sentis takes the labels in the order of first appearance, ONNX in that of the alphabet; an ellipsis
must stand for as many dimensions in every operand. Does not fire where ranks are not known, or where a dimension of
an ellipsis is 1 in one operand and larger in another.
"""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place


def write(place: Place, emit: Emit) -> None:
    """Write the same Einsum with every label in its equation."""
    equation = str(place.attributes.get("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    if not arrow:
        counts = Counter(label for label in left if label.isalpha())
        once = "".join(sorted(label for label in counts if counts[label] == 1))
        right = ("..." if "..." in left else "") + once
    terms = left.split(",")
    if len({_stands_for(place, position, term) for position, term in enumerate(terms) if "..." in term}) > 1:
        terms, right = _spelled_out(place, terms, right)
    emit("Einsum", *place.node.input, to=place.node.output[0], equation=f"{','.join(terms)}->{right}")


def _stands_for(place: Place, position: int, term: str) -> int:
    rank = place.rank(position)
    if rank is None:
        raise Refusal(f"the rank of input {position} is not known")
    return rank - sum(label.isalpha() for label in term)


def _spelled_out(place: Place, terms: list[str], right: str) -> tuple[list[str], str]:
    """Return operands and output with letters in place of the ellipsis, aligned at its last dimension."""
    used = set("".join(terms) + right)
    counts = [_stands_for(place, position, term) if "..." in term else 0 for position, term in enumerate(terms)]
    letters = [letter for letter in ascii_letters if letter not in used][: max(counts)]
    if len(letters) < max(counts):
        raise Refusal("there are not enough letters")
    sizes: dict[str, int | None] = {}
    for position, (term, count) in enumerate(zip(terms, counts, strict=True)):
        if "..." not in term:
            continue
        shape, at = place.shape(position) or (), term.index("...")
        for letter, size in zip(letters[len(letters) - count :], shape[at : at + count], strict=True):
            if size is None or sizes.setdefault(letter, size) != size:
                raise Refusal(f"a dimension of the ellipsis broadcasts or is not known: {shape}")
    written = [t.replace("...", "".join(letters[len(letters) - c :])) for t, c in zip(terms, counts, strict=True)]
    return written, right.replace("...", "".join(letters))


PASS = node_pass(
    "einsum_order", "Sentis orders the labels of an Einsum without -> by first appearance", write,
    mends=["EINSUM.IMPLICIT", "EINSUM.ELLIPSIS"],
)  # fmt: skip
