"""What onnx's operator definitions say of a node: the ends it must have, the types of its attributes."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

FIELD_OF = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs"}


def is_cut_short(node: onnx.NodeProto, opset: int) -> bool:
    """Tell whether a node lacks an input or output that ONNX wants in any case."""
    inputs, outputs = least_ends(node.domain, node.op_type, opset)
    return _lacks_inputs(node, inputs) or len(node.output) < outputs


def lacks_inputs(node: onnx.NodeProto, opset: int) -> bool:
    """Tell whether an input that ONNX wants is missing, as Sentis sees it: by the operator's name, in any domain."""
    return _lacks_inputs(node, least_ends("", node.op_type, opset)[0])


def _lacks_inputs(node: onnx.NodeProto, least: int) -> bool:
    return len(node.input) < least or not all(node.input[:least])


@functools.cache
def least_ends(domain: str, op: str, opset: int) -> tuple[int, int]:
    """Return how many inputs and outputs ONNX wants at least, none for an operator it does not know."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    opset = max(0, min(opset, newest))  # a damaged file may name any number
    for version in (newest,) if domain else (opset, newest):  # an operator younger than its model is run all the same
        with contextlib.suppress(onnx.defs.SchemaError):
            schema = onnx.defs.get_schema(op, version, domain)
            return schema.min_input, schema.min_output
    return 0, 0


@functools.cache
def attribute_types() -> dict[tuple[str, str], frozenset[int]]:
    """Return (operator, attribute) to the types that ONNX gives it in any opset."""
    import onnx

    types: dict[tuple[str, str], frozenset[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items() if schema.domain == "" else ():
            key = (schema.name, name)
            types[key] = types.get(key, frozenset()) | {int(getattr(attribute.type, "value", 0))}
    return types


def attribute_value(op: str, attribute: onnx.AttributeProto) -> Any:
    """Return an attribute's value, bytes as text; None where it has not the type that ONNX gives it."""
    wanted = attribute_types().get((op, attribute.name), frozenset())
    kind = attribute.type or next(iter(wanted), 0)  # the oldest files name no type
    if kind not in FIELD_OF or (wanted and kind not in wanted):
        return None
    value = getattr(attribute, FIELD_OF[kind])
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str | int | float) or hasattr(value, "ListFields"):
        return value
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in value]
