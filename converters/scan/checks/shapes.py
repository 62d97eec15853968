"""Checks about shapes: broadcasts, axes, padding, sizes, Einsum's labels."""

from __future__ import annotations

from collections import Counter

from converters.scan.answers import Answer, Found, check, whole
from converters.scan.view import Place

HIGHEST_RANK = 8


@check
def prelu_enlarges(place: Place) -> Answer:
    """A slope with more dimensions than the input, or with a size where the input has 1."""
    data, slope = place.shape(0), place.shape(1)
    if data is None or slope is None:
        return None
    pairs = zip(reversed(data), reversed(slope), strict=False)
    grows = any(of is not None and by is not None and by not in (1, of) for of, by in pairs)
    return Found(f"slope {slope}, input {data}") if grows or len(slope) > len(data) else None


@check
def depth_padding(place: Place) -> Answer:
    """A 3D convolution whose depth is padded, unless depth and width of the output are known to be equal."""
    pads = place.attributes.get("pads") or []
    if 5 not in (place.rank(0), place.rank(1)) or len(pads) != 6 or not (pads[0] or pads[3]):
        return None
    out = place.view.shape(place.node.output[0]) if place.node.output else None
    if out and len(out) == 5 and out[2] is not None and out[2] == out[4]:
        return None
    return Found(f"pads {pads}")


@check
def layernorm_axis(place: Place) -> Answer:
    """An axis that is not the last, or a scale of more than one dimension."""
    axis, rank, scale = place.attributes.get("axis", -1), place.rank(0), place.rank(1)
    if scale is not None and scale > 1:
        return Found(f"a scale of rank {scale}")
    if axis == -1 or (rank is not None and axis == rank - 1):
        return None
    return Found(f"axis {axis}", sure=rank is not None)


@check
def pool_uneven(place: Place) -> Answer:
    """A pool that has one window more with ceil_mode: a rest is left, and the window does not start in the padding."""
    kernel, shape = place.attributes.get("kernel_shape"), place.shape(0)
    if not kernel:
        return None
    count = len(kernel)
    strides = place.attributes.get("strides") or [1] * count
    pads = place.attributes.get("pads") or [0] * 2 * count
    dilations = place.attributes.get("dilations") or [1] * count
    whole_lists = len(pads) == 2 * count and len(strides) == count == len(dilations) and 0 not in strides
    if shape is None or len(shape) != count + 2 or not whole_lists:
        return Found(sure=False)
    unknown = False
    for axis, (size, stride) in enumerate(zip(shape[2:], strides, strict=True)):
        if size is None:
            unknown |= stride != 1
            continue
        steps = size + pads[axis] + pads[axis + count] - dilations[axis] * (kernel[axis] - 1) - 1
        last_start = (steps // stride + 1) * stride
        if steps % stride and last_start < size + pads[axis]:
            return Found(f"axis {axis + 2} of {size} leaves {steps % stride}")
    return Found(sure=False) if unknown else None


@check
def padded(place: Place) -> Answer:
    """Any padding, explicit or automatic."""
    if any(pads := place.attributes.get("pads") or []):
        return Found(f"pads {pads}")
    auto = place.attributes.get("auto_pad", "NOTSET")
    return Found(auto, sure=False) if auto.startswith("SAME") else None


@check
def pads_over_axis(place: Place) -> Answer:
    """A reflection of as many elements as the axis has, or more."""
    pads, shape = place.ints("pads", 1), place.shape(0)
    if not pads or not shape:
        return None
    axes = whole(place.value(3)) if place.name(3) else list(range(len(shape)))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    for index, axis in enumerate(axes):
        size = shape[int(axis)] if -len(shape) <= axis < len(shape) else None
        most = max(pads[index], pads[index + len(axes)])
        if size is not None and most >= size > 0:
            return Found(f"{most} on axis {int(axis)} of {size}")
    return None


@check
def reshape_rank(place: Place) -> Answer:
    """A target of more than eight dimensions."""
    target, sizes = place.ints("shape", 1), place.shape(1)
    rank = len(target) if target is not None else (sizes[0] if sizes and len(sizes) == 1 else None)
    return Found(f"{rank} dimensions") if rank is not None and rank > HIGHEST_RANK else None


@check
def uneven_split(place: Place) -> Answer:
    """Parts without sizes that do not divide the axis."""
    shape, count = place.shape(0), len(place.node.output)
    axis = place.attributes.get("axis", 0)
    if "split" in place.attributes or place.name(1) or not shape or not count or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return Found(f"{size} into {count} parts") if size is not None and size % count else None


@check
def unsqueeze_axes(place: Place) -> Answer:
    """Axes that are not where the opset has them."""
    if place.opset < 13:
        return Found(f"opset {place.opset}, no axes attribute") if "axes" not in place.attributes else None
    return Found(f"opset {place.opset}, no axes input") if not place.name(1) else None


@check
def chain_without_perm(place: Place) -> Answer:
    """A Transpose of a Transpose, one of them without perm."""
    before = place.view.maker(place.name(0))
    if before is None or before.op_type != "Transpose":
        return None
    lacks = "perm" not in place.attributes or "perm" not in {attribute.name for attribute in before.attribute}
    return Found(f"behind {before.name or before.output[0]!r}") if lacks else None


@check
def dense_of_other_rank(place: Place) -> Answer:
    """A constant weight of rank 1, or of rank 3 and more with an Add of one number behind it."""
    if not place.view.is_constant(place.name(1)):
        return None
    rank = place.rank(1)
    if rank == 1:
        return Found("a constant weight of rank 1")
    if rank is None or rank < 3 or not place.node.output:
        return None
    for reader, position in place.view.readers.get(place.node.output[0], ()):
        others = [name for index, name in enumerate(reader.input) if index != position]
        value = place.view.value(others[0]) if reader.op_type == "Add" and others else None
        if value is not None and value.size == 1:
            return Found(f"a constant weight of rank {rank} and an Add of one number")
    return None


@check
def einsum_order(place: Place) -> Answer:
    """An equation without `->` whose labels first appear in another order than the alphabet's."""
    equation = _equation(place)
    if "->" in equation:
        return None
    counts = Counter(character for character in equation if character.isalpha())
    once = [label for label in counts if counts[label] == 1]  # in order of appearance
    return Found(f"equation {equation!r}") if once != sorted(once) else None


@check
def einsum_ellipsis(place: Place) -> Answer:
    """An ellipsis that stands for different numbers of dimensions."""
    terms = _equation(place).split("->")[0].split(",")
    stands = {
        rank - sum(character.isalpha() for character in term)
        for position, term in enumerate(terms)
        if "..." in term and (rank := place.rank(position)) is not None
    }
    return Found(f"{sorted(stands)} dimensions") if len(stands) > 1 else None


def _equation(place: Place) -> str:
    return str(place.attributes.get("equation", "")).replace(" ", "")
