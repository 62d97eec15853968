"""What Sentis computes at import: layers of constants, sizes that are known, shapes of Reshape.

A value is followed by its elements while it has 16 and fewer, as Sentis does: `Shape` of an input with one named size
is a constant in all other places, and `Gather` of one of those is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from converters.facts import Facts
from converters.fusions.layers import Constant, Layer, LayerGraph, Size
from converters.fusions.simplify import shape_constant

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
Elements = tuple[Size, ...]


def fold_constants(graph: LayerGraph, known: Facts) -> None:
    """Take out what is known before anything runs, and note the nodes that go."""
    row = next(fusion for fusion in known["fusions"] if fusion["pass"] == "fold_constants")
    elements: dict[str, Elements] = {
        name: tuple(map(int, constant.numbers))
        for name, constant in graph.constants.items()
        if constant.kind == "int" and constant.numbers is not None
    }
    gone: list[Layer] = []
    for layer in graph.layers:
        followed = _followed(layer, graph, elements)
        if followed is not None and len(followed) <= known["tracked_elements"]:
            elements[layer.output] = followed
        if _is_known(layer, graph, elements):
            gone.append(layer)
            for name in filter(None, layer.outputs):
                graph.hold(name, _result(name, graph, elements.get(name), known["tracked_elements"]))
    for layer in gone:
        graph.note(row, "", layer.output, layer.nodes)
    graph.remove(gone)
    graph.elements = elements


def _is_known(layer: Layer, graph: LayerGraph, elements: dict[str, Elements]) -> bool:
    if layer.op in RANDOM:
        return False
    if all(name in graph.constants for name in filter(None, layer.inputs)):
        return True
    known = elements.get(layer.output)
    return known is not None and all(isinstance(size, int) for size in known)


def _result(name: str, graph: LayerGraph, elements: Elements | None, tracked: int) -> Constant:
    """Return what a value is known as: numbers that are not sizes are not computed here and stand as NaN."""
    sizes = tuple(size if isinstance(size, int) else 1 for size in graph.sizes.get(name, ()))
    if elements is None or not all(isinstance(size, int) for size in elements):
        constant = Constant(graph.kinds.get(name, "") or "float", sizes)
        small = name in graph.sizes and constant.count <= tracked
        return replace(constant, numbers=(math.nan,) * constant.count) if small else constant
    if name not in graph.sizes:
        sizes = (len(elements),)
    return Constant("int", sizes, tuple(size for size in elements if isinstance(size, int)))


def _followed(layer: Layer, graph: LayerGraph, elements: dict[str, Elements]) -> Elements | None:
    """Return a layer's elements where they are sizes or made of sizes by carrying them about."""
    follow = _FOLLOWED.get(layer.op)
    given = [elements.get(name) for name in layer.inputs]
    if layer.op == "Shape":
        return graph.sizes.get(layer.inputs[0], ())[_range(layer)] if layer.inputs[0] in graph.sizes else None
    if follow is None or not given or given[0] is None or any(one is None for one in given[1:]):
        return None
    return follow(layer, [one for one in given if one is not None])


def _range(layer: Layer) -> slice:
    return slice(layer.literals.get("start", 0), layer.literals.get("end"))


def _gather(_layer: Layer, given: Sequence[Elements]) -> Elements | None:
    values, indices = given[0], given[1]
    if not all(isinstance(i, int) and -len(values) <= i < len(values) for i in indices):
        return None
    return tuple(values[i] for i in indices if isinstance(i, int))


def _slice(_layer: Layer, given: Sequence[Elements]) -> Elements | None:
    if any(len(one) != 1 or not isinstance(one[0], int) for one in given[1:]):
        return None
    numbers = [one[0] for one in given[1:] if isinstance(one[0], int)]
    step = numbers[3] if len(numbers) > 3 else 1
    return given[0][numbers[0] : numbers[1] : step] if step else None


def _arithmetic(compute: Callable[[int, int], int]) -> Callable[[Layer, Sequence[Elements]], Elements | None]:
    """A named size makes an unknown one: symbols are not computed with."""

    def follow(_layer: Layer, given: Sequence[Elements]) -> Elements | None:
        left, right = given
        if len(left) != len(right) and 1 not in (len(left), len(right)):
            return None
        count = max(len(left), len(right))
        pairs = zip(_spread(left, count), _spread(right, count), strict=True)
        return tuple(compute(a, b) if isinstance(a, int) and isinstance(b, int) else None for a, b in pairs)

    return follow


def _spread(values: Elements, count: int) -> Elements:
    return values if len(values) == count else values * count


def _joined(_layer: Layer, given: Sequence[Elements]) -> Elements:
    return tuple(size for one in given for size in one)


def _first(layer: Layer, given: Sequence[Elements]) -> Elements | None:
    return None if layer.op == "Cast" and layer.literals.get("to") != "int" else given[0]


_FOLLOWED: dict[str, Callable[[Layer, Sequence[Elements]], Any]] = {
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _joined,
    "Squeeze": _first,
    "Unsqueeze": _first,
    "Identity": _first,
    "Cast": _first,
    "Reshape": _first,
    "Add": _arithmetic(lambda a, b: a + b),
    "Sub": _arithmetic(lambda a, b: a - b),
    "Mul": _arithmetic(lambda a, b: a * b),
}


def constant_reshapes(graph: LayerGraph, known: Facts) -> None:
    """Write the shape of a Reshape as numbers where all but one are known: 0 keeps a size, -1 stands for the one."""
    del known
    for layer in graph.find("Reshape"):
        if graph.static(layer.inputs[1]) is not None:
            continue
        asked = graph.elements.get(layer.inputs[1])
        before, after = graph.sizes.get(layer.inputs[0]), graph.sizes.get(layer.output)
        if asked is None or after is None or len(asked) != len(after):
            continue
        wanted: list[Size] = [b if isinstance(b, int) else a for a, b in zip(asked, after, strict=True)]
        if before is not None and not layer.literals.get("allowzero"):
            kept = [isinstance(a, str) and a == b for a, b in zip(before, after, strict=False)]
            wanted = [0 if at < len(kept) and kept[at] else size for at, size in enumerate(wanted)]
        open_places = [at for at, size in enumerate(wanted) if not isinstance(size, int)]
        if len(open_places) == 1 and -1 not in wanted:
            wanted[open_places[0]] = -1
        if all(isinstance(size, int) for size in wanted):
            name, constant = shape_constant(layer.output, [size for size in wanted if isinstance(size, int)])
            graph.hold(name, constant)
            graph.feed(layer, 1, name)
