"""Sequences whose elements are known, as plain tensors.

Why: Sentis imports no sequences. Exporters write them for split, chunk, unbind and stack: SplitToSequence and
SequenceAt become Slice, SequenceConstruct and ConcatFromSequence become Concat. Does not fire on places that are no
constants, on sequences that are inputs or outputs, or that a loop builds.
"""

from __future__ import annotations

import numpy as np

from converters.passes.emit import Emit, Refusal
from converters.passes.rewrite import node_pass
from converters.scan.view import Place

READERS = ("SequenceAt", "ConcatFromSequence", "SequenceLength")
MAKERS = ("SplitToSequence", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceEmpty")


def write(place: Place, emit: Emit) -> None:
    """Write what reads a sequence with its elements."""
    op, to = place.node.op_type, place.node.output[0]
    if op in MAKERS:
        raise Refusal("what reads the sequence is not mended")
    if op == "SequenceAt":
        at = place.value(1)
        if at is None or at.size != 1:
            raise Refusal("the place in the sequence is no constant")
        emit("Identity", _element(place, emit, place.name(0), int(at.reshape(()))), to=to)
        return
    elements = elements_of(place, emit, place.name(0))
    if op == "SequenceLength":
        emit.result(to, np.array(len(elements), np.int64))
        return
    axis = int(place.attributes["axis"])
    if place.attributes.get("new_axis", 0):
        elements = [emit.unsqueezed(one, [axis]) for one in elements]
    emit("Concat", *elements, to=to, axis=axis)


def _element(place: Place, emit: Emit, sequence: str, at: int) -> str:
    """Return one element; of a split with known parts it needs no other."""
    maker = place.view.maker(sequence)
    if maker is None or maker.op_type != "SplitToSequence" or at < 0:
        elements = elements_of(place, emit, sequence)
        if not -len(elements) <= at < len(elements):
            raise Refusal(f"there is no element {at} of {len(elements)}")
        return elements[at]
    part, given = _parts(place, sequence)
    if isinstance(part, list):
        return _slice(emit, maker.input[0], sum(part[:at]), sum(part[: at + 1]), given)
    return _slice(emit, maker.input[0], at * part, (at + 1) * part, given)


def elements_of(place: Place, emit: Emit, sequence: str) -> list[str]:
    """Return every element of a sequence.

    Raises:
        Refusal: they are not known.
    """
    maker = place.view.maker(sequence)
    if maker is not None and maker.op_type == "Identity":
        return elements_of(place, emit, maker.input[0])
    if maker is None or maker.op_type not in MAKERS:
        raise Refusal("the sequence is an input, or a loop builds it")
    if maker.op_type == "SequenceEmpty":
        return []
    if maker.op_type == "SequenceConstruct":
        return list(maker.input)
    if maker.op_type in ("SequenceInsert", "SequenceErase"):
        elements = elements_of(place, emit, maker.input[0])
        inserts = maker.op_type == "SequenceInsert"
        given = list(maker.input[2 if inserts else 1 :])
        where = place.view.value(given[0]) if given and given[0] else np.array(len(elements) - (not inserts))
        if where is None:
            raise Refusal("the place in the sequence is no constant")
        at = int(where.reshape(()))
        at += len(elements) if at < 0 else 0
        return [*elements[:at], maker.input[1], *elements[at:]] if inserts else elements[:at] + elements[at + 1 :]
    part, given = _parts(place, sequence)
    shape = place.view.shape(maker.input[0])
    size = shape[given[0]] if shape is not None else None
    if not isinstance(part, list):
        if size is None:
            raise Refusal("the size of the axis that is split is not known")
        part = [min(part, size - start) for start in range(0, size, part)]
    ends = np.cumsum(part).tolist()
    return [_slice(emit, maker.input[0], end - one, end, given) for one, end in zip(part, ends, strict=True)]


def _parts(place: Place, sequence: str) -> tuple[int | list[int], tuple[int, bool]]:
    """Return the size of a split's parts, one for all or one each, and (axis, whether the axis goes)."""
    maker = place.view.maker(sequence)
    assert maker is not None
    given = {attribute.name: attribute.i for attribute in maker.attribute}
    axis = (given.get("axis", 0), not given.get("keepdims", 1))
    if len(maker.input) < 2 or not maker.input[1]:
        return 1, axis
    sizes = place.view.value(maker.input[1])
    if sizes is None:
        raise Refusal("the sizes of the parts are no constants")
    whole = (axis[0], False)  # keepdims counts only where no sizes are given
    return (int(sizes), whole) if sizes.ndim == 0 else ([int(size) for size in sizes], whole)


def _slice(emit: Emit, data: str, start: int, end: int, given: tuple[int, bool]) -> str:
    axis, goes = given
    part = emit.sliced(data, [start], [end], [axis])
    return emit.squeezed(part, [axis]) if goes else part


PASS = node_pass("sequences", "Sentis imports no sequences", write, operators=[*READERS, *MAKERS])
